"""Streaming LDA against the paper's recursion in float64, and scikit-learn's LDA at its end."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.covariance import OAS
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from everlight.base import Batch
from everlight.continual.strategies.parts.class_statistics import no_means
from everlight.continual.strategies.parts.covariances import oas_covariance, shrunk_solve
from everlight.continual.strategies.streaming_lda import (
    add_one_by_one,
    discriminant_kernel,
    no_scatter,
    streaming_lda,
)
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, START
from tests.continual.strategies.references import frozen_stream as stream
from tests.continual.strategies.references.frozen_stream import MET

SETUP = net.small_setup()
SHRINKAGE = 0.01
LDA = net.compiled(streaming_lda(SETUP, shrinkage=SHRINKAGE))


def recursion(features, labels, classes):
    """Return means, counts and Σ after the samples one by one, as the paper writes them."""
    width = features.shape[1]
    means, counts = np.zeros((classes, width)), np.zeros(classes)
    covariance = np.zeros((width, width))
    for t, (z, y) in enumerate(zip(features, labels, strict=True)):
        away = z - means[y]
        delta = t / (t + 1) * np.outer(away, away)
        covariance = (t * covariance + delta) / (t + 1)
        means[y] = (counts[y] * means[y] + z) / (counts[y] + 1)
        counts[y] += 1
    return means, counts, covariance


def covariance_of(memory):
    """Return Σ of the memory's content, in float64."""
    central, (weight, total), count = jax.tree.map(lambda leaf: np.asarray(leaf, float), memory[1])
    origin = np.asarray(memory.means.origin, float)
    cross = np.outer(total, origin)
    return (central + cross + cross.T + weight * np.outer(origin, origin)) / count


def discriminant(means, covariance, shrinkage, features):
    """Return the paper's scores."""
    width = len(covariance)
    precision = np.linalg.inv((1 - shrinkage) * covariance + shrinkage * np.eye(width))
    bias = -np.diag(means @ precision @ means.T) / 2
    return features @ precision @ means.T + bias


def centered(scores):
    """Subtract from the scores what all classes share."""
    return scores - scores.mean(axis=1, keepdims=True)


def test_three_batches_are_the_paper_s_recursion():
    features, labels = stream.arrivals()
    means, counts, covariance = recursion(features, labels, CLASSES)
    memory, learner = stream.state_after(LDA)
    np.testing.assert_array_equal(memory.means.count, counts)
    np.testing.assert_allclose(memory.means.mean, means, atol=1e-6)
    np.testing.assert_allclose(covariance_of(memory), covariance, atol=1e-6)

    test = np.arange(20, 40)
    memory = stream.solved(LDA, memory, learner)
    predicted = np.asarray(LDA.predict(memory, learner, jnp.float32(DATA[test])))
    expected = discriminant(means, covariance, SHRINKAGE, net.forward(START, test)[1])
    np.testing.assert_allclose(
        centered(predicted[:, MET]), centered(expected[:, MET]), rtol=1e-4, atol=1e-4
    )
    assert np.all(predicted[:, [3, 4]] == -np.inf)


def test_the_first_sample_of_a_class_adds_its_own_square():
    """The first sample, z = 2 of class 0, adds nothing; then z = 4 of class 1 adds ½ · 4²."""
    labels = jnp.array([[0], [1]])
    batch = Batch(jnp.arange(2), labels, jnp.ones(2), jnp.zeros(2, bool))
    means, scatter = add_one_by_one(no_means(2, 1), no_scatter(1), jnp.array([[2.0], [4.0]]), batch)
    # The origin is 3, so that the second sample's square is (1 + 3)².
    np.testing.assert_allclose([means.origin[0], scatter.central[0, 0]], [3.0, 0.5])
    np.testing.assert_allclose([scatter.first.weight, scatter.first.total[0]], [0.5, 0.5])
    np.testing.assert_allclose(means.mean, [[2.0], [4.0]])


def test_dependent_features_of_any_size_are_solved():
    """The condition number is 6e8 in float64; what the samples span keeps three digits."""
    rng = np.random.default_rng(0)
    rows = np.tile(rng.normal(size=(5000, 32)) * 100, 2)
    covariance, right = np.cov(rows, rowvar=False, bias=True), rows[:4].T
    shrunk = (1 - 1e-4) * covariance + 1e-4 * np.eye(64)
    assert np.linalg.cond(shrunk) > 1e8
    result = shrunk_solve(jnp.float32(covariance), jnp.float32(right), 1e-4)
    expected = rows @ np.linalg.solve(shrunk, right)
    error = np.linalg.norm(rows @ np.asarray(result, float) - expected)
    assert error < 1e-3 * np.linalg.norm(expected)


class Shrunk(BaseEstimator):
    """The shrinkage of the paper, towards the identity."""

    def fit(self, rows):
        covariance = np.cov(rows, rowvar=False, bias=True)
        self.covariance_ = (1 - 1e-4) * covariance + 1e-4 * np.eye(len(covariance))
        return self


def test_many_samples_give_scikit_learn_s_discriminant():
    """The 4 first samples of 4,000, and means that lag by a sample, differ by a few percent."""
    rng = np.random.default_rng(2)
    mixing = rng.normal(size=(6, 6))
    labels = rng.permutation(np.repeat(np.arange(4), 1000))
    features = rng.normal(size=(4, 6))[labels] * 2 + rng.normal(size=(4000, 6)) @ mixing
    means, scatter = no_means(4, 6), no_scatter(6)
    add = jax.jit(add_one_by_one)
    for part in np.split(np.arange(4000), 40):
        batch = Batch(
            jnp.asarray(part), jnp.asarray(labels[part, None]), jnp.ones(100), jnp.zeros(100, bool)
        )
        means, scatter = add(means, scatter, jnp.float32(features[part]), batch)
    kernel = np.asarray(discriminant_kernel(means, scatter, 1e-4), float)
    origin, offset = np.asarray(means.origin, float), np.asarray(means.offset, float)
    reference = LinearDiscriminantAnalysis("lsqr", covariance_estimator=Shrunk(), priors=[0.25] * 4)
    reference.fit(features, labels)
    result = (features - origin) @ kernel - np.sum(offset * kernel.T, axis=1) / 2
    expected = reference.decision_function(features)
    error = np.linalg.norm(centered(result) - centered(expected))
    assert error < 0.03 * np.linalg.norm(centered(expected))
    same = np.argmax(result, axis=1) == reference.predict(features)
    assert same.mean() > 0.995


@pytest.mark.parametrize("shift", [0, 1000])
def test_digits_far_from_0_keep_the_digits_of_the_official_scores(shift):
    """The reference is the official recursion in float64 on the same float32 features."""
    make = functools.partial(streaming_lda, shrinkage=1e-3)
    memory, result, train, test = stream.streamed_digits(make, shift)
    _, labels, _, truth = stream.digits()
    means, _, covariance = recursion(train, labels, CLASSES)
    assert np.abs(covariance_of(memory) - covariance).max() < 1e-6 * np.abs(covariance).max()
    expected = centered(discriminant(means, covariance, 1e-3, test))
    error = np.linalg.norm(centered(result) - expected) / np.linalg.norm(expected)
    assert error < 2e-6
    np.testing.assert_array_equal(result.argmax(axis=1), expected.argmax(axis=1))
    assert (result.argmax(axis=1) == truth).mean() > 0.97


@pytest.mark.parametrize(("count", "width"), [(40, 7), (5, 9), (2, 3), (30, 1)])
def test_the_shrunk_covariance_is_scikit_learn_s(count, width):
    rows = np.random.default_rng(count).normal(size=(count, width)) @ np.diag(1 + np.arange(width))
    expected = OAS(assume_centered=True).fit(rows).covariance_
    empirical = jnp.float32(rows.T @ rows / count)
    result = oas_covariance(empirical, jnp.int32(count))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def official_base(features, labels, later, later_labels, update):
    """Compute base means and OAS covariance, then the recursion, as the authors' code does."""
    means, counts = np.zeros((CLASSES, features.shape[1])), np.zeros(CLASSES)
    for c in np.unique(labels):
        means[c], counts[c] = features[labels == c].mean(axis=0), np.sum(labels == c)
    covariance = OAS(assume_centered=True).fit(features - means[labels]).covariance_
    for t, (z, y) in enumerate(zip(later, later_labels, strict=True), len(features)):
        away = z - means[y]
        if update:
            covariance = (t * covariance + t / (t + 1) * np.outer(away, away)) / (t + 1)
        means[y] += away / (counts[y] + 1)
        counts[y] += 1
    return means, counts, covariance


@pytest.mark.parametrize("shift", [0, 1000])
@pytest.mark.parametrize("update", [True, False])
def test_a_base_task_gives_means_and_shrunk_covariance_once(update, shift):
    """The first task comes in two epochs, which add nothing to its base."""
    train, labels, test, truth = stream.digits()
    train, test = (np.float32(part + shift).astype(float) for part in (train, test))
    setup = stream.identity_setup(train)
    strategy = net.compiled(streaming_lda(setup, 1e-3, base_task=True, update_covariance=update))
    assert strategy.needs_boundaries
    base, later = np.flatnonzero(labels < 2), np.flatnonzero(labels >= 2)
    ruined = stream.labelled_samples(np.append(base, later[:3]), labels)
    ruined = ruined._replace(mask=ruined.mask & (ruined.labels[:, 0] < 2))
    tasks = [
        (net.task_of(0, [0, 1], ruined), [*stream.batches_of(labels, base)] * 2),
        (
            net.task_of(1, range(2, 6), stream.labelled_samples(later, labels)),
            [*stream.batches_of(labels, later)],
        ),
    ]
    memory, learner = net.run_tasks(setup, strategy, tasks)[-1]
    parts = train[base], labels[base], train[later], labels[later]
    means, counts, covariance = official_base(*parts, update)
    np.testing.assert_array_equal(memory.means.count, counts)
    assert memory.scatter.count == (len(labels) if update else len(base))
    assert np.abs(covariance_of(memory) - covariance).max() < 1e-6 * np.abs(covariance).max()
    memory = stream.solved(strategy, memory, learner)
    predicted = strategy.predict(memory, learner, jnp.float32(test))
    expected = centered(discriminant(means, covariance, 1e-3, test))
    error = np.linalg.norm(centered(np.asarray(predicted, float)) - expected)
    assert error < 1e-5 * np.linalg.norm(expected)
    assert (np.argmax(predicted, axis=1) == truth).mean() > 0.9


def test_a_covariance_that_no_sample_gives_is_refused():
    with pytest.raises(ValueError, match="give base_task=True"):
        streaming_lda(SETUP, update_covariance=False)
