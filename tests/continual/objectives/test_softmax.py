"""Softmax objective against SciPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax

from everlight.base import Outputs, Predictions
from everlight.continual.objectives import with_predictions
from everlight.continual.objectives.multilabel import binary_objective
from everlight.continual.objectives.softmax import correct, softmax_objective
from tests.continual.objectives.outputs import outputs_of
from tests.refusals import refused

CLASSES = 6
GROUP = np.array([0, 1, 1, 0, 2, 1])
SEEN = np.array([1, 1, 0, 1, 0, 1], bool)


one_head = jax.jit(softmax_objective().loss)
head_per_task = jax.jit(softmax_objective(jnp.asarray(GROUP)).loss)
correct_compiled = jax.jit(correct)


def columns(labels):
    return jnp.asarray(labels)[:, None]


def logits_and_labels(seed, size=9, among=SEEN):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(size, CLASSES)).astype(np.float32) * 5
    return logits.astype(np.float64), rng.choice(np.flatnonzero(among), size)


@pytest.mark.parametrize("seed", range(3))
def test_one_head_over_the_seen_classes(seed):
    logits, labels = logits_and_labels(seed)
    result = one_head(outputs_of(logits), columns(labels), jnp.asarray(SEEN))
    expected = logsumexp(logits[:, SEEN], axis=1) - logits[np.arange(9), labels]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_head_per_task_whatever_is_seen(seed):
    logits, labels = logits_and_labels(seed, among=np.ones(CLASSES, bool))
    expected = [
        logsumexp(row[GROUP[label] == GROUP]) - row[label]
        for row, label in zip(logits, labels, strict=True)
    ]
    for seen in (SEEN, np.ones(CLASSES, bool)):
        result = head_per_task(outputs_of(logits), columns(labels), jnp.asarray(seen))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_head_per_task_over_its_seen_classes_or_all_where_none_is_seen(seed):
    logits, labels = logits_and_labels(seed, among=np.ones(CLASSES, bool))
    loss = softmax_objective(jnp.asarray(GROUP), only_seen=True).loss
    for seen in (SEEN, GROUP == 2):
        selected = [np.flatnonzero(GROUP[label] == GROUP) for label in labels]
        among = [group[seen[group]] if seen[group].any() else group for group in selected]
        expected = [
            logsumexp(row[classes]) - row[label]
            for row, label, classes in zip(logits, labels, among, strict=True)
        ]
        result = loss(outputs_of(logits), columns(labels), jnp.asarray(seen))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_is_probability_minus_target_and_0_at_unseen_classes():
    logits, labels = logits_and_labels(4)
    seen = jnp.asarray(SEEN)

    def total(values):
        return jnp.sum(one_head(outputs_of(values), columns(labels), seen))

    slope = jax.jit(jax.grad(total))(jnp.float32(logits))
    expected = -np.eye(CLASSES)[labels]
    expected[:, SEEN] += softmax(logits[:, SEEN], axis=1)
    np.testing.assert_allclose(slope, expected, atol=1e-6)
    assert np.all(slope[:, ~SEEN] == 0)


def test_large_logits_do_not_overflow():
    """An unseen class's logit does not count either; float32 has steps of 0.001 at 1e4."""
    logits = np.array([[1e4, 1e4 - 2, 3e38, -1e4, 0, 0.0]])
    for label, expected in ((0, np.log1p(np.exp(-2))), (1, 2 + np.log1p(np.exp(-2)))):
        result = one_head(outputs_of(logits), columns([label]), jnp.asarray(SEEN))
        np.testing.assert_allclose(result, [expected], atol=1e-3)


SCORES = jnp.array([[3.0, 1.0, 9.0, 2.0, 8.0, 0.0], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]])


def test_the_metric_is_the_greatest_score_of_the_classes_that_compete():
    seen = jnp.asarray(SEEN)
    among_seen = jax.jit(softmax_objective().metric)
    # Among 0, 1, 3 and 5: class 0 wins the first row, class 5 the second.
    np.testing.assert_array_equal(among_seen(SCORES, columns([0, 5]), seen), [1, 1])
    np.testing.assert_array_equal(among_seen(SCORES, columns([3, 3]), seen), [0, 0])
    per_task = jax.jit(softmax_objective(jnp.asarray(GROUP)).metric)
    # The groups are 0 and 3; 1, 2 and 5; 4.
    np.testing.assert_array_equal(per_task(SCORES, columns([0, 3]), seen), [1, 1])
    np.testing.assert_array_equal(per_task(SCORES, columns([2, 2]), seen), [1, 0])
    np.testing.assert_array_equal(per_task(SCORES, columns([4, 4]), seen), [1, 1])


def test_correct_by_hand():
    """One mask of classes serves all samples, or one each; the lowest class wins a tie."""
    label = jnp.array([2, 4])
    np.testing.assert_array_equal(correct(SCORES, label, jnp.ones(6, bool)), [1, 0])
    np.testing.assert_array_equal(
        correct(SCORES, label, jnp.array([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0]], bool)), [0, 1]
    )
    tied = jnp.array([[1.0, 7.0, 7.0], [1.0, 7.0, 7.0]])
    np.testing.assert_array_equal(correct(tied, jnp.array([1, 2]), jnp.ones(3, bool)), [1, 0])


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.lists(st.booleans(), min_size=CLASSES, max_size=CLASSES))
def test_scores_of_other_classes_never_matter(seed, mask):
    """A label that is not among the competing classes is never correct."""
    rng = np.random.default_rng(seed)
    among = np.array(mask)
    among[rng.integers(CLASSES)] = True
    scores, labels = rng.normal(size=(8, CLASSES)), rng.integers(0, CLASSES, 8)
    raised = np.where(among, scores, rng.normal(size=scores.shape) + 100)
    expected = [
        float(label == np.flatnonzero(among)[np.argmax(row[among])])
        for row, label in zip(scores, labels, strict=True)
    ]
    for values in (scores, raised):
        result = correct_compiled(jnp.float32(values), jnp.asarray(labels), jnp.asarray(among))
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("task_incremental", "expected"), [(False, [0, 1]), (True, [3, 1])])
def test_the_prediction_is_among_seen_classes_or_those_of_the_task(task_incremental, expected):
    scores = jnp.array([[3.0, 2.0, 1.0, 4.0], [0.0, 2.0, 1.0, 4.0]])
    current = jnp.array([[False, False, True, True], [True, True, False, False]])
    objective = with_predictions(softmax_objective(), task_incremental)
    labels, zeros = jnp.array([[0], [1]]), jnp.zeros(2, int)
    predictions = Predictions(scores, scores, labels, zeros, jnp.zeros(4, int), current)
    seen = jnp.array([True, True, True, False])
    plain, chosen = objective.per_sample_metrics(predictions, seen)
    np.testing.assert_array_equal(chosen - 1, expected)
    np.testing.assert_array_equal(plain.class_incremental, [1, 1])


@pytest.mark.parametrize(("classes", "dtype"), [(32_767, jnp.int16), (32_768, jnp.int32)])
def test_predictions_have_as_many_bits_as_the_last_class_needs(classes, dtype):
    scores, zeros = jnp.arange(classes)[None] * 1.0, jnp.zeros(1, int)
    seen = jnp.ones(classes, bool)
    predictions = Predictions(scores, scores, columns([classes - 1]), zeros, zeros, seen[None])
    objective = with_predictions(softmax_objective()._replace(evaluate=lambda *_: ()))
    values = objective.per_sample_metrics(predictions, seen)
    _, chosen = objective.evaluate(None, values, seen)
    assert (int(chosen[0]), chosen.dtype) == (classes - 1, dtype)


@pytest.mark.parametrize("objective", [softmax_objective(), binary_objective()])
def test_a_network_with_fewer_outputs_than_classes_is_refused(objective):
    seen, labels, logits = jnp.ones(6, bool), jnp.zeros((1, 1), int), jnp.zeros((1, 4))
    message = "the network has 4 outputs and the tasks have 6 classes; give it 6 outputs"
    refused(message, lambda: objective.loss(Outputs(logits, logits), labels, seen))
    refused(message, lambda: objective.metric(logits, labels, seen))
