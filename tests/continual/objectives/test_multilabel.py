"""Binary objective against SciPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_expit

from everlight.continual.objectives.multilabel import (
    binary_cross_entropy,
    binary_objective,
    multi_hot,
    predicted_labels,
)
from tests.continual.objectives.outputs import outputs_of

CLASSES = 6
SEEN = np.array([1, 1, 0, 1, 0, 1], bool)
# Samples have two labels, one, one unseen beside a seen one, or none, in any order.
LABELS = np.array([[0, 3], [5, -1], [-1, 1], [2, 1], [-1, -1]])
TARGETS = np.array(
    [[1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0] * 6], bool
)

loss = jax.jit(binary_objective().loss)
metric = jax.jit(binary_objective().metric)
cross_entropy = jax.jit(binary_cross_entropy)


def random_logits(seed):
    rng = np.random.default_rng(seed)
    return np.float64(np.float32(4 * rng.normal(size=(len(LABELS), CLASSES))))


def expected_loss(logits, targets, among):
    losses = -(targets * log_expit(logits) + (1 - targets) * log_expit(-logits))
    masks = np.broadcast_to(among, losses.shape)
    return [row[mask].mean() for row, mask in zip(losses, masks, strict=True)]


def test_labels_become_targets_and_padding_none():
    np.testing.assert_array_equal(multi_hot(jnp.asarray(LABELS), CLASSES), TARGETS)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_mean_over_the_seen_classes(seed):
    logits = random_logits(seed)
    result = loss(outputs_of(logits), jnp.asarray(LABELS), jnp.asarray(SEEN))
    np.testing.assert_allclose(result, expected_loss(logits, 1.0 * TARGETS, SEEN), rtol=1e-5)


def test_the_gradient_is_probability_minus_target_over_the_number_of_seen_classes():
    logits = random_logits(3)

    def total(values):
        return jnp.sum(loss(outputs_of(values), jnp.asarray(LABELS), jnp.asarray(SEEN)))

    slope = jax.jit(jax.grad(total))(jnp.float32(logits))
    np.testing.assert_allclose(slope, SEEN * (expit(logits) - TARGETS) / 4, atol=1e-7)
    assert np.all(slope[:, ~SEEN] == 0)


def test_soft_targets_among_given_classes_one_mask_for_all_samples_or_one_each():
    logits, rng = random_logits(4), np.random.default_rng(0)
    targets = expit(np.float64(np.float32(rng.normal(size=logits.shape))))
    by_sample = rng.random(logits.shape) < 0.5
    by_sample[:, 2] = True
    for among in (SEEN, ~SEEN, by_sample):
        result = cross_entropy(jnp.float32(logits), jnp.float32(targets), jnp.asarray(among))
        np.testing.assert_allclose(result, expected_loss(logits, targets, among), rtol=1e-5)


def test_without_a_class_loss_and_gradient_are_0():
    def total(values):
        return jnp.sum(binary_cross_entropy(values, jnp.ones((2, 3)), jnp.zeros(3, bool)))

    value, slope = jax.value_and_grad(total)(jnp.ones((2, 3)))
    assert value == 0
    np.testing.assert_array_equal(slope, 0)


def test_large_logits_do_not_overflow_nor_does_an_unseen_infinite_one_count():
    logits = jnp.asarray([[1e4, -1e4, jnp.inf, 20.0, -jnp.inf, -20.0]])

    def total(values, labels):
        return jnp.sum(loss(outputs_of(values), labels, jnp.asarray(SEEN)))

    slope_of = jax.jit(jax.value_and_grad(total))
    small = np.log1p(np.exp(-20.0))
    value, slope = slope_of(logits, jnp.asarray([[0, 3]]))
    np.testing.assert_allclose(value, 2 * small / 4, rtol=1e-5)
    np.testing.assert_allclose(slope, np.zeros((1, 6)), atol=1e-8)
    value, slope = slope_of(logits, jnp.asarray([[1, 5]]))
    np.testing.assert_allclose(value, (1e4 + 1e4 + 20 + 20 + 2 * small) / 4, rtol=1e-6)
    np.testing.assert_allclose(slope, [[0.25, -0.25, 0, 0.25, 0, -0.25]], rtol=1e-6)


def test_predicted_are_the_seen_classes_of_a_sigmoid_above_one_half():
    scores = jnp.asarray([[0.1, -0.1, 9.0, 0.0, 9.0, 5.0], [-1.0] * 6])
    expected = [[1, 0, 0, 0, 0, 1], [0] * 6]
    np.testing.assert_array_equal(predicted_labels(scores, jnp.asarray(SEEN)), expected)


def test_the_metric_is_the_precision_weighted_jaccard_similarity_of_the_seen_labels():
    scores = jnp.asarray(
        [
            [1.0, -1.0, 1.0, 1.0, 1.0, -1.0],  # 0 and 3, both right.
            [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],  # Four for one.
            [-1.0, -1.0, 1.0, -1.0, 1.0, -1.0],  # None but unseen ones.
            [-1.0, 1.0, -1.0, -1.0, -1.0, 1.0],  # Two for one; the other label is not seen.
            [-1.0, -1.0, -1.0, -1.0, -1.0, 1.0],  # There is no label.
        ]
    )
    result = metric(scores, jnp.asarray(LABELS), jnp.asarray(SEEN))
    np.testing.assert_allclose(result, [1, 1 / 16, 0, 1 / 4, 0], rtol=1e-6)
