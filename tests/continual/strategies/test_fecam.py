"""FeCAM against the authors' computation on all samples at once, in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.fecam import correlation, fecam, shrink
from tests.continual.small_net import CLASSES, compiled, run_tasks, task_of
from tests.continual.strategies.references import frozen_stream as stream

GAMMA = {"variance_shrinkage": 0.5, "covariance_shrinkage": 0.3}


def official_shrink(covariance, variance, other):
    """Return the authors' shrinkage, whose mean leaves out entries that are 0."""
    identity = np.eye(len(covariance))
    off = covariance * (1 - identity)
    mean = off.sum() / max(1, np.count_nonzero(off))
    return (
        covariance
        + variance * np.diagonal(covariance).mean() * identity
        + other * mean * (1 - identity)
    )


def official_distances(train, labels, test, beta, variance, other):
    """Return the authors' distances to every class with samples, for positive features."""

    def power(features):
        return np.sign(features) * np.abs(features) ** beta

    distances = []
    for k in np.unique(labels):
        selected = train[labels == k]
        covariance = np.cov(power(selected).T)
        for _ in range(2):
            covariance = official_shrink(covariance, variance, other)
        deviation = np.sqrt(np.diagonal(covariance))
        precision = np.linalg.pinv(covariance / np.outer(deviation, deviation))
        length = np.linalg.norm(test, axis=1, keepdims=True) + 1e-8
        rows = power(test / length)
        mean = power(selected.mean(axis=0))
        away = rows / np.linalg.norm(rows, axis=1, keepdims=True) - mean / np.linalg.norm(mean)
        distances.append(np.einsum("nf,fg,ng->n", away, precision, away))
    return np.stack(distances, axis=1)


@pytest.mark.parametrize("positive", [True, False])
def test_a_stream_of_recurring_classes_has_the_official_distances(positive):
    """No feature is constant; class 5 never comes, padding counts nothing."""
    train, labels, test, truth = stream.digits()
    mixing = np.random.default_rng(1).normal(size=(64, 12))
    train, test = (part @ mixing for part in (train, test))
    if positive:
        train, test = (np.abs(part) + 0.1 for part in (train, test))
    order = np.random.default_rng(2).permutation(np.flatnonzero(labels < 5))
    setup = stream.identity_setup(train)
    strategy = compiled(fecam(setup, **GAMMA))
    task = task_of(0, range(CLASSES), stream.labelled_samples(order, labels))
    memory, learner = run_tasks(setup, strategy, [(task, [*stream.batches_of(labels, order)])])[-1]
    memory = stream.solved(strategy, memory, learner)
    predicted = np.asarray(strategy.predict(memory, learner, jnp.float32(test)))
    np.testing.assert_array_equal(predicted[:, 5], -np.inf)
    stored = train[order], labels[order], test
    expected = official_distances(*stored, 0.5, *GAMMA.values())
    np.testing.assert_allclose(-predicted[:, :5], expected, rtol=2e-4)
    old = truth < 5
    assert (predicted[old].argmax(axis=1) == truth[old]).mean() > (0.9 if positive else 0.7)


@pytest.mark.parametrize(("variance", "other"), [(1.0, 1.0), (0.5, 0.0)])
def test_the_shrunk_correlation_does_not_depend_on_the_number_of_samples(variance, other):
    rows = np.random.default_rng(3).normal(size=(7, 4)) @ np.diag([1, 5, 0.1, 2])
    scatter = np.cov(rows.T) * 6
    result = correlation(shrink(jnp.float32(scatter), variance, other))
    expected = official_shrink(np.cov(rows.T), variance, other)
    deviation = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(result, expected / np.outer(deviation, deviation), rtol=1e-5)


def test_samples_that_do_not_differ_give_the_identity():
    np.testing.assert_array_equal(correlation(shrink(jnp.zeros((3, 3)), 1.0, 1.0)), np.eye(3))
