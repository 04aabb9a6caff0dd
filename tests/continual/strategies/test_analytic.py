"""ACIL and DS-AL against the authors' recursions and ridge regression in float64."""

import functools

import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import Ridge

from everlight.continual.strategies import acil, ds_al
from tests.continual.small_net import CLASSES, compiled, run_tasks, task_of
from tests.continual.strategies.references import frozen_stream as stream

WIDTH, RATIO, RIDGES = 50, 0.6, (0.5, 2.0)


class RecursiveRidge:
    """Inverse of the Gram matrix with its ridge, and weights, after each batch."""

    def __init__(self, width, classes, ridge):
        self.inverse, self.weights = np.eye(width) / ridge, np.zeros((width, classes))

    def fit(self, rows, targets):
        inner = np.linalg.inv(np.eye(len(rows)) + rows @ self.inverse @ rows.T)
        self.inverse = self.inverse - self.inverse @ rows.T @ inner @ rows @ self.inverse
        self.weights = self.weights + self.inverse @ rows.T @ (targets - rows @ self.weights)


def test_the_recursion_over_batches_is_the_joint_ridge_regression():
    """The recursion takes the classes in pairs; the strategy takes 64 samples at once."""
    memory, result, train, test = stream.streamed_digits(
        functools.partial(acil, width=100, ridge=0.1), shift=0
    )
    _, labels, _, truth = stream.digits()
    projection = np.asarray(memory.projection, float)
    rows, tested = (np.maximum(part @ projection, 0) for part in (train, test))
    targets = np.eye(CLASSES)[labels]
    recursion = RecursiveRidge(100, CLASSES, 0.1)
    for first in (0, 2, 4):
        now = labels // 2 == first // 2
        recursion.fit(rows[now], targets[now])
    joint = Ridge(alpha=0.1, fit_intercept=False, solver="svd").fit(rows, targets).coef_.T
    np.testing.assert_allclose(recursion.weights, joint, atol=1e-9)
    expected = tested @ joint
    assert np.linalg.norm(result - expected) < 1e-3 * np.linalg.norm(expected)
    assert (result.argmax(axis=1) == truth).mean() > 0.95
    # Values are uniform in ± 1 / √64, as in PyTorch's linear layer: variance 1 / (3 · 64).
    assert np.abs(projection).max() < 1 / 8
    np.testing.assert_allclose(projection.var(), 1 / 192, rtol=0.05)


def test_three_tasks_are_the_official_streams():
    """The net is evaluated at each task's end, and before the first one with the same result."""
    train, labels, test, truth = stream.digits()
    setup = stream.identity_setup(train)
    strategy = compiled(ds_al(setup, WIDTH, RATIO, *RIDGES))
    parts = [np.flatnonzero(labels // 2 == number) for number in range(3)]
    tasks = [
        (
            task_of(number, [2 * number, 2 * number + 1], stream.labelled_samples(part, labels)),
            [*stream.batches_of(labels, part)],
        )
        for number, part in enumerate(parts)
    ]
    states = run_tasks(setup, strategy, tasks)
    unended = run_tasks(setup, strategy._replace(end_task=None), tasks[:1])[0]
    projection = np.asarray(states[0][0].projection, float)
    main, other = (RecursiveRidge(WIDTH, CLASSES, ridge) for ridge in RIDGES)
    for number, (memory, learner) in enumerate(states):
        now = labels // 2 == number
        rows, targets = train[now] @ projection, np.eye(CLASSES)[labels[now]]
        main.fit(np.maximum(rows, 0), targets)
        left = targets - np.maximum(rows, 0) @ main.weights
        left[:, : 2 * number] = 0
        other.fit(np.tanh(rows), left)
        tested = test @ projection
        plain = np.maximum(tested, 0) @ main.weights
        expected = plain + RATIO * np.tanh(tested) @ other.weights
        for stored in ((memory, learner), unended)[: 2 if number == 0 else 1]:
            inputs = jnp.float32(test)
            predicted = np.asarray(
                strategy.predict(stream.solved(strategy, *stored), stored[1], inputs), float
            )
            error = np.linalg.norm(predicted - expected)
            assert error < 1e-4 * np.linalg.norm(expected)
            assert error < 0.01 * np.linalg.norm(expected - plain)
    assert (predicted.argmax(axis=1) == truth).mean() > 0.9
