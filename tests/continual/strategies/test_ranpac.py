"""RanPAC against float64 ridge regression, also from scikit-learn, and its conditioning."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge

from everlight.continual.strategies.ranpac import ranpac, validated_ridge
from tests.continual import small_net as net
from tests.continual.many_labels import PAIRS, binary_setup, labelled_batch, targets_of
from tests.continual.small_net import CLASSES, DATA, START
from tests.continual.strategies.references import frozen_stream as stream

SETUP, WIDTH, RIDGE = net.small_setup(), 12, 0.3
TEST = np.arange(20, 40)


def hidden(features, memory):
    if not memory.projection.size:
        return features
    return np.maximum(features @ np.asarray(memory.projection, float), 0)


def regression(rows, targets, ridge):
    """Return scikit-learn's ridge regression, on the samples and not on sums."""
    return Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(rows, targets).coef_.T


@pytest.mark.parametrize("width", [WIDTH, 0])
def test_scores_are_ridge_regression_of_the_labels(width):
    """The statistics are of the projected features, or without a projection of the features."""
    strategy = net.compiled(ranpac(SETUP, width, RIDGE))
    memory, learner = stream.state_after(strategy)
    memory = stream.solved(strategy, memory, learner)
    features, labels = stream.arrivals()
    rows, targets = hidden(features, memory), np.eye(CLASSES)[labels]
    np.testing.assert_allclose(memory.regression.gram, rows.T @ rows, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(memory.regression.prototypes, rows.T @ targets, rtol=1e-5, atol=1e-5)
    kernel = regression(rows, targets, RIDGE)
    predicted = strategy.predict(memory, learner, jnp.float32(DATA[TEST]))
    expected = hidden(net.forward(START, TEST)[1], memory) @ kernel
    np.testing.assert_allclose(predicted, expected, atol=1e-4)
    assert np.all(predicted[:, [3, 4]] == 0)


def test_of_two_labels_both_classes_are_targets():
    setup, index = binary_setup(), np.array([0, 3, 9, 12, 27])
    memory, _ = stream.state_after(ranpac(setup, WIDTH, RIDGE), [labelled_batch(index)], setup)
    rows = hidden(net.forward(START, index, train=True)[1], memory)
    expected = rows.T @ targets_of(PAIRS[index])
    np.testing.assert_allclose(memory.regression.prototypes, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("relative", [1e-2, 1e-4, 1e-6])
def test_float32_is_enough_from_a_millionth_of_the_trace(relative):
    """300 random features of 200 samples make λ alone set the condition number."""
    rng = np.random.default_rng(3)
    width = 300
    both = np.maximum(rng.normal(size=(300, 20)) @ rng.normal(size=(20, width)), 0)
    rows, test = both[:200], both[200:]
    targets = np.eye(CLASSES)[rng.integers(0, CLASSES, 200)]
    gram = rows.T @ rows
    ridge = relative * np.trace(gram)
    strategy = net.compiled(ranpac(SETUP, width, ridge))
    memory, learner = stream.state_after(strategy, [])
    sums = memory.regression._replace(
        gram=jnp.float32(gram), prototypes=jnp.float32(rows.T @ targets)
    )
    memory = memory._replace(regression=sums)
    kernel = stream.solved(strategy, memory, learner).regression.kernel
    expected = test @ regression(rows, targets, ridge)
    error = np.linalg.norm(test @ np.asarray(kernel, float) - expected) / np.linalg.norm(expected)
    assert error < 1e-8 / relative + 1e-4


def test_a_ridge_within_float32_s_rounding_errors_gives_scores_of_use():
    """Cholesky's factorization fails; float64's regression has the same accuracy."""
    ridge = 1e-2
    memory, result, train, test = stream.streamed_digits(
        functools.partial(ranpac, width=600, ridge=ridge), shift=0
    )
    gram = np.asarray(memory.regression.gram) + ridge * np.eye(600, dtype=np.float32)
    assert np.isnan(jax.scipy.linalg.cho_factor(gram)[0]).any()
    _, labels, _, truth = stream.digits()
    kernel = regression(hidden(train, memory), np.eye(CLASSES)[labels], ridge)
    expected = hidden(test, memory) @ kernel
    exact = (expected.argmax(axis=1) == truth).mean()
    assert exact > 0.9
    assert abs((result.argmax(axis=1) == truth).mean() - exact) < 0.02


def split_of(mask, key):
    """Split the shuffled samples into four fifths and the rest."""
    order = np.asarray(jnp.lexsort((jax.random.uniform(key, mask.shape), ~mask)))
    order = order[: mask.sum()]
    return np.split(order, [int(len(order) * 0.8)])


def official_ridge(rows, targets, fit, held):
    """Compute the paper's update in float64."""
    ridges, errors = 10.0 ** np.arange(-8, 9), []
    for ridge in ridges:
        gram = rows[fit].T @ rows[fit] + ridge * np.eye(rows.shape[1])
        kernel = np.linalg.solve(gram, rows[fit].T @ targets[fit])
        errors.append(np.mean((rows[held] @ kernel - targets[held]) ** 2))
    return ridges[np.argmin(errors)]


@pytest.mark.parametrize(("width", "scale"), [(0, 1), (0, 16), (30, 1), (300, 16)])
def test_the_ridge_is_that_of_least_error_on_a_fifth_of_the_samples(width, scale):
    """Features are fewer than samples, or more; garbage in masked rows changes nothing."""
    features, labels, _, _ = stream.digits()
    features, labels = features[::4] * scale, labels[::4]
    rng = np.random.default_rng(4)
    rows = np.maximum(features @ rng.normal(size=(64, width)), 0) if width else features
    mask, key = rng.uniform(size=len(rows)) < 0.9, jax.random.key(5)
    targets = np.eye(CLASSES)[labels]
    expected = official_ridge(rows, targets, *split_of(mask, key))
    rows[~mask] = np.inf
    inputs = jnp.float32(rows), jnp.float32(targets)
    result = validated_ridge(*inputs, jnp.asarray(mask), jnp.float32(7.0), key)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_task_of_one_sample_leaves_the_ridge():
    mask = jnp.arange(4) == 2
    rows, targets = jnp.ones((4, 3)), jnp.ones((4, 2))
    for local in (mask, jnp.zeros(4, bool)):
        assert validated_ridge(rows, targets, local, jnp.float32(7.0), jax.random.key(0)) == 7


def test_validated_at_each_task_it_beats_the_default_on_digits():
    """The ridge is the last task's; the regression is over both tasks."""
    train, labels, test, truth = stream.digits()
    train, labels = train[::2], labels[::2]
    setup = stream.identity_setup(train)
    parts = np.flatnonzero(labels < 2), np.flatnonzero(labels >= 2)
    tasks = [
        (
            net.task_of(number, [], stream.labelled_samples(part, labels)),
            [*stream.batches_of(labels, part)],
        )
        for number, part in enumerate(parts)
    ]
    accuracy, targets = {}, np.eye(CLASSES)[labels]
    for ridge in (1e4, "validated"):
        strategy = net.compiled(ranpac(setup, width=150, ridge=ridge))
        assert strategy.needs_boundaries == (ridge == "validated")
        states = net.run_tasks(setup, strategy, tasks)
        for part, (memory, _) in zip(parts, states, strict=True):
            # The key is that of `run_tasks`.
            split = split_of(np.ones(len(part), bool), jax.random.key(2))
            rows = hidden(train[part], memory)
            target = 1e4 if ridge == 1e4 else official_ridge(rows, targets[part], *split)
            np.testing.assert_allclose(memory.regression.ridge, target, rtol=1e-5)
        memory, learner = states[-1]
        memory = stream.solved(strategy, memory, learner)
        kernel = regression(hidden(train, memory), targets, float(memory.regression.ridge))
        expected = hidden(test, memory) @ kernel
        predicted = strategy.predict(memory, learner, jnp.float32(test))
        np.testing.assert_allclose(predicted, expected, atol=2e-3)
        accuracy[ridge] = (np.argmax(predicted, axis=1) == truth).mean()
    assert accuracy["validated"] > accuracy[1e4] + 0.02
