"""ACIL against the authors' recursion and scikit-learn's ridge regression on all samples."""

import functools

import numpy as np
from sklearn.linear_model import Ridge

from everlight.continual.strategies.acil import acil
from tests.continual.small_net import CLASSES
from tests.continual.strategies.frozen_stream import digits, streamed_digits
from tests.continual.strategies.recursive_ridge import RecursiveRidge

WIDTH, RIDGE = 100, 0.1


def test_the_recursion_over_batches_is_the_joint_ridge_regression():
    """The recursion takes the classes in pairs; the strategy takes 64 samples at once."""
    memory, found, train, test = streamed_digits(
        functools.partial(acil, width=WIDTH, ridge=RIDGE), shift=0
    )
    _, labels, _, truth = digits()
    projection = np.asarray(memory.projection, float)
    rows, tested = (np.maximum(part @ projection, 0) for part in (train, test))
    targets = np.eye(CLASSES)[labels]
    recursion = RecursiveRidge(WIDTH, CLASSES, RIDGE)
    for first in (0, 2, 4):
        now = labels // 2 == first // 2
        recursion.fit(rows[now], targets[now])
    joint = Ridge(alpha=RIDGE, fit_intercept=False, solver="svd").fit(rows, targets).coef_.T
    np.testing.assert_allclose(recursion.weights, joint, atol=1e-9)
    expected = tested @ joint
    assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)
    assert (found.argmax(axis=1) == truth).mean() > 0.95
    # Uniform in ± 1 / √64, as PyTorch's linear layer begins: the variance is a third of 1 / 64.
    assert np.abs(projection).max() < 1 / 8
    np.testing.assert_allclose(projection.var(), 1 / 192, rtol=0.05)
