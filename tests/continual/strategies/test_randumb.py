"""RanDumb against scikit-learn's features and covariance and the authors' scores, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.covariance import OAS
from sklearn.kernel_approximation import RBFSampler

from everlight.continual.strategies.randumb import fourier_features, randumb
from tests.continual.small_net import CLASSES, compiled, run_tasks, small_setup, task_of, untrained
from tests.continual.strategies.references import frozen_stream as stream

WIDTH, SHRINKAGE = 60, 1e-3


def official_features(features, memory, gamma):
    """Return the features of scikit-learn with the memory's random numbers."""
    sampler = RBFSampler(gamma=gamma, n_components=memory.phase.shape[0]).fit(features)
    sampler.random_weights_ = np.sqrt(2 * gamma) * np.asarray(memory.directions, float)
    sampler.random_offset_ = np.asarray(memory.phase, float)
    return sampler.transform(features)


def official_scores(train, labels, test):
    """Return the scores of the authors' first model."""
    means = np.stack([train[labels == k].mean(axis=0) for k in np.unique(labels)])
    covariance = OAS(assume_centered=True).fit(train - means[labels]).covariance_
    regular = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.eye(train.shape[1])
    weights = np.linalg.lstsq(regular, means.T, rcond=None)[0]
    return test @ weights - np.sum(means.T * weights, axis=0) / 2


@pytest.mark.parametrize("gamma", ["scale", 0.05])
def test_a_stream_of_recurring_classes_has_the_official_scores(gamma):
    """Class 5 never comes; the batches' padding counts nothing."""
    train, labels, test, truth = stream.digits()
    order = np.random.default_rng(2).permutation(np.flatnonzero(labels < 5))
    setup = stream.identity_setup(train)
    strategy = compiled(randumb(setup, WIDTH, SHRINKAGE, gamma))
    task = task_of(0, range(CLASSES), stream.labelled_samples(order, labels))
    memory, learner = run_tasks(setup, strategy, [(task, [*stream.batches_of(labels, order)])])[-1]
    scale = 1 / (64 * train[order[:64]].var()) if gamma == "scale" else gamma
    np.testing.assert_allclose(memory.gamma, scale, rtol=1e-5)
    memory = stream.solved(strategy, memory, learner)
    predicted = np.asarray(strategy.predict(memory, learner, jnp.float32(test)), float)
    np.testing.assert_array_equal(predicted[:, 5], -np.inf)
    rows, tested = (official_features(part, memory, scale) for part in (train[order], test))
    expected = official_scores(rows, labels[order], tested)
    predicted, expected = (
        part - part.mean(axis=1, keepdims=True) for part in (predicted[:, :5], expected)
    )
    assert np.linalg.norm(predicted - expected) < 1e-3 * np.linalg.norm(expected)
    old = truth < 5
    assert (predicted[old].argmax(axis=1) == truth[old]).mean() > 0.9


def test_inner_products_approximate_the_kernel():
    setup = small_setup()
    memory, _ = untrained(setup, randumb(setup, 2000, gamma=0.3))
    rows = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    features = np.asarray(jax.jit(fourier_features)(memory, jnp.asarray(rows)))
    squares = np.sum((rows[:, None] - rows) ** 2, axis=-1)
    # The bound is three standard errors of a mean of 2,000 products of variance 1 at most.
    np.testing.assert_allclose(features @ features.T, np.exp(-0.3 * squares), atol=0.067)
