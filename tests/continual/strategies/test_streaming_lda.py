"""Streaming LDA against the paper's recursion in float64, and scikit-learn's LDA at its end."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from everlight.continual.base import Batch
from everlight.continual.strategies.nearest_mean import no_means
from everlight.continual.strategies.streaming_lda import (
    Discriminant,
    add_one_by_one,
    shrunk_solve,
    streaming_lda,
)
from tests.continual.small_net import (
    CLASSES,
    DATA,
    HIDDEN,
    START,
    forward,
    small_learner,
    small_setup,
)
from tests.continual.strategies.frozen_stream import (
    MET,
    after,
    arrivals,
    one_by_one,
    solved,
)

SETUP = small_setup()
SHRINKAGE = 0.01
LDA = streaming_lda(SETUP, shrinkage=SHRINKAGE)


def recursion(features, labels, classes):
    """Means, counts and Σ after the samples one by one, as the paper writes them."""
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


def test_three_batches_are_the_paper_s_recursion():
    features, labels = arrivals()
    means, counts, covariance = recursion(features, labels, CLASSES)
    memory, learner = after(LDA)
    np.testing.assert_array_equal(memory.means.count, counts)
    np.testing.assert_allclose(memory.means.mean, means, atol=1e-6)
    np.testing.assert_allclose(memory.scatter / counts.sum(), covariance, atol=1e-6)

    precision = np.linalg.inv((1 - SHRINKAGE) * covariance + SHRINKAGE * np.eye(HIDDEN))
    kernel = precision @ means.T
    bias = -np.diag(means @ precision @ means.T) / 2
    test = np.arange(20, 40)
    memory = solved(LDA, memory, learner)
    found = np.asarray(LDA.predict(memory, learner, jnp.asarray(DATA[test], jnp.float32)))
    expected = forward(START, test)[1] @ kernel + bias
    np.testing.assert_allclose(found[:, MET], expected[:, MET], rtol=1e-4, atol=1e-4)
    assert np.all(found[:, [3, 4]] == -np.inf)


def test_one_by_one_is_the_same():
    together, apart = after(LDA)[0], after(LDA, one_by_one())[0]
    np.testing.assert_allclose(apart.scatter, together.scatter, atol=1e-6)
    np.testing.assert_allclose(apart.means.mean, together.means.mean, atol=1e-6)


def test_the_first_sample_of_a_class_adds_its_own_square():
    """By hand: z = 2 of class 0 alone adds nothing, then z = 4 of class 1 adds ½ · 4²."""
    labels = jnp.array([[0], [1]])
    batch = Batch(jnp.arange(2), labels, jnp.ones(2), jnp.zeros(2, bool))
    means, scatter = add_one_by_one(
        no_means(2, 1), jnp.zeros((1, 1)), jnp.array([[2.0], [4.0]]), batch
    )
    np.testing.assert_allclose(scatter, [[8.0]])
    np.testing.assert_allclose(means.mean, [[2.0], [4.0]])


def test_dependent_features_of_any_size_are_solved():
    """A condition number of 6e8 in float64; what the samples span keeps three digits."""
    rng = np.random.default_rng(0)
    rows = np.tile(rng.normal(size=(5000, 32)) * 100, 2)
    covariance, right = np.cov(rows, rowvar=False, bias=True), rows[:4].T
    shrunk = (1 - 1e-4) * covariance + 1e-4 * np.eye(64)
    assert np.linalg.cond(shrunk) > 1e8
    found = shrunk_solve(jnp.float32(covariance), jnp.asarray(right, jnp.float32), 1e-4)
    expected = rows @ np.linalg.solve(shrunk, right)
    error = np.linalg.norm(rows @ np.asarray(found, float) - expected)
    assert error < 1e-3 * np.linalg.norm(expected)


class Shrunk(BaseEstimator):
    """The shrinkage of the paper, towards the identity."""

    def fit(self, rows):
        covariance = np.cov(rows, rowvar=False, bias=True)
        self.covariance_ = (1 - 1e-4) * covariance + 1e-4 * np.eye(len(covariance))
        return self


def test_many_samples_give_scikit_learn_s_discriminant():
    """Apart from 4 first samples among 4,000, and means that lag by a sample: a few percent."""
    rng = np.random.default_rng(2)
    mixing = rng.normal(size=(6, 6))
    labels = rng.permutation(np.repeat(np.arange(4), 1000))
    features = rng.normal(size=(4, 6))[labels] * 2 + rng.normal(size=(4000, 6)) @ mixing
    means, scatter = no_means(4, 6), jnp.zeros((6, 6))
    add = jax.jit(add_one_by_one)
    for part in np.split(np.arange(4000), 40):
        batch = Batch(
            jnp.asarray(part), jnp.asarray(labels[part, None]), jnp.ones(100), jnp.zeros(100, bool)
        )
        means, scatter = add(means, scatter, jnp.asarray(features[part], jnp.float32), batch)
    memory = Discriminant(means, scatter, jnp.zeros((6, 4)), jnp.zeros(4))
    memory = solved(streaming_lda(SETUP), memory, small_learner(SETUP, range(4)))
    reference = LinearDiscriminantAnalysis("lsqr", covariance_estimator=Shrunk(), priors=[0.25] * 4)
    reference.fit(features, labels)
    found = features @ np.asarray(memory.kernel, float) + np.asarray(memory.bias, float)
    expected = reference.decision_function(features)

    def centred(scores):
        return scores - scores.mean(axis=1, keepdims=True)

    error = np.linalg.norm(centred(found) - centred(expected))
    assert error < 0.03 * np.linalg.norm(centred(expected))
    same = np.argmax(found, axis=1) == reference.predict(features)
    assert same.mean() > 0.995
