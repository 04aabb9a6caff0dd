"""RanPAC against float64 ridge regression, also from scikit-learn, and its conditioning."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from everlight.continual.strategies.ranpac import ranpac
from tests.continual.many_labels import PAIRS, binary_setup, labelled_batch, targets_of
from tests.continual.small_net import CLASSES, DATA, START, forward, small_setup
from tests.continual.strategies.frozen_stream import after, arrivals, one_by_one, solved

SETUP, WIDTH, RIDGE = small_setup(), 12, 0.3
STRATEGY = ranpac(SETUP, WIDTH, RIDGE)
TEST = np.arange(20, 40)


def hidden(features, memory):
    return np.maximum(features @ np.asarray(memory.projection, float), 0)


def regression(rows, targets, ridge):
    """As scikit-learn does it, on the samples and not on sums."""
    return Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(rows, targets).coef_.T


def test_scores_are_ridge_regression_of_the_labels():
    memory, learner = after(STRATEGY)
    memory = solved(STRATEGY, memory, learner)
    features, labels = arrivals()
    rows, targets = hidden(features, memory), np.eye(CLASSES)[labels]
    np.testing.assert_allclose(memory.gram, rows.T @ rows, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(memory.prototypes, rows.T @ targets, rtol=1e-5, atol=1e-5)
    kernel = regression(rows, targets, RIDGE)
    found = STRATEGY.predict(memory, learner, jnp.asarray(DATA[TEST], jnp.float32))
    expected = hidden(forward(START, TEST)[1], memory) @ kernel
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.all(found[:, [3, 4]] == 0)


def test_order_and_batches_do_not_matter():
    together, _ = after(STRATEGY)
    apart, _ = after(STRATEGY, one_by_one()[::-1])
    np.testing.assert_array_equal(apart.projection, together.projection)
    np.testing.assert_allclose(apart.gram, together.gram, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(apart.prototypes, together.prototypes, rtol=1e-5, atol=1e-5)


def test_of_two_labels_both_classes_are_targets():
    setup, index = binary_setup(), np.array([0, 3, 9, 12, 27])
    memory, _ = after(ranpac(setup, WIDTH, RIDGE), [labelled_batch(index)], setup)
    rows = hidden(forward(START, index, train=True)[1], memory)
    expected = rows.T @ targets_of(PAIRS[index])
    np.testing.assert_allclose(memory.prototypes, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("relative", [1e-2, 1e-4, 1e-6])
def test_float32_is_enough_from_a_millionth_of_the_trace(relative):
    """300 random features of 200 samples, so that the condition number is what λ makes it."""
    rng = np.random.default_rng(3)
    width = 300
    both = np.maximum(rng.normal(size=(300, 20)) @ rng.normal(size=(20, width)), 0)
    rows, test = both[:200], both[200:]
    targets = np.eye(CLASSES)[rng.integers(0, CLASSES, 200)]
    gram = rows.T @ rows
    ridge = relative * np.trace(gram)
    strategy = ranpac(SETUP, width, ridge)
    memory, learner = after(strategy, [])
    memory = memory._replace(
        gram=jnp.asarray(gram, jnp.float32), prototypes=jnp.asarray(rows.T @ targets, jnp.float32)
    )
    kernel = solved(strategy, memory, learner).kernel
    expected = test @ regression(rows, targets, ridge)
    error = np.linalg.norm(test @ np.asarray(kernel, float) - expected) / np.linalg.norm(expected)
    assert error < 1e-8 / relative + 1e-4
