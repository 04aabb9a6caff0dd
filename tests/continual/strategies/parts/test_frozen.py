"""Strategies that count over features share a network that never changes, and streams."""

import functools
from dataclasses import replace

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine import Run, StoredImages, flax_setup, online_protocol, run_sequence
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies import nearest_mean, ranpac, streaming_lda
from everlight.continual.strategies.parts.covariances import ridge_solve
from everlight.models.caffe_nets import LinearClassifier
from everlight.scenarios.class_incremental import class_incremental
from tests.continual.small_net import small_setup
from tests.continual.strategies.references.frozen_stream import state_after

STRATEGIES = {
    "streaming lda": streaming_lda,
    "nearest mean": nearest_mean,
    "ranpac": functools.partial(ranpac, width=30, ridge=1.0),
}
each_strategy = pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES)


@each_strategy
def test_weight_decay_moves_no_parameter_and_statistics_stay(make):
    decaying = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9))
    setup = small_setup()._replace(optimizer=decaying)
    _, learner = state_after(make(setup), setup=setup)
    start, statistics = setup.init(jax.random.key(0))
    chex.assert_trees_all_equal(learner.params, start)
    chex.assert_trees_all_equal(learner.batch_stats, statistics)
    assert learner.step == 3


class Noisy(nn.Module):
    """Its features are stored ones with dropout before them and normalized by batch statistics."""

    @nn.compact
    def __call__(self, features, train):
        features = nn.Dropout(0.5, deterministic=not train)(features)
        features = nn.BatchNorm(use_running_average=not train)(features)
        return Outputs(nn.Dense(3)(features), features)


def clusters(seed=0, classes=3, per_class=40):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(classes, 5)) * 3 + 2
    labels = np.repeat(np.arange(classes), per_class)
    return centers[labels] + rng.normal(size=(len(labels), 5)), labels


@functools.cache
def streamed(make, network, updates):
    """Train in one pass over three tasks of one class, and test on the same samples."""
    features, labels = clusters()
    count = len(labels)
    sequence = class_incremental(
        labels, labels, [[0], [1], [2]], 3, valid_fraction=0.0, test_offset=0
    )

    def build(stored):
        source = StoredImages.of(stored, jnp.zeros(5), jnp.ones(5))
        setup = flax_setup(network, source, softmax_objective(), optax.sgd(0.1))
        return setup, make(setup)

    protocol = replace(online_protocol(16), updates_per_batch=updates)
    run = jax.jit(lambda x, s: run_sequence(Run(build, protocol, x, s, jax.random.key(0))))
    return count, run(jnp.float32(features), sequence)


@each_strategy
def test_a_stream_without_boundaries_is_learned_in_one_pass(make):
    _, result = streamed(make, LinearClassifier(3), 1)
    final = result.evaluation.class_incremental[-1]
    assert final.min() > 0.95
    # Nothing of the classes to come is known.
    assert np.all(np.triu(result.evaluation.class_incremental, 1) == 0)


def test_features_are_those_of_evaluation_mode():
    """Dropout would halve and double them; the running statistics begin at mean 0, variance 1."""
    count, result = streamed(nearest_mean, Noisy(), 1)
    features, labels = clusters()
    expected = [features[labels == c].mean(axis=0) / np.sqrt(1 + 1e-5) for c in range(3)]
    np.testing.assert_allclose(result.memory.mean, expected, rtol=1e-5, atol=1e-5)
    assert result.memory.count.sum() == count


def test_a_singular_matrix_among_others_is_solved_by_its_eigenvalues():
    """At rank 1 and λ = 1e-12 float64 gives v vᵀ/(|v|² + λ) for right-hand sides along v."""
    vector = np.array([3.0, 1.0, 2.0]) * 100
    matrices = jnp.asarray([np.eye(3), np.outer(vector, vector)], jnp.float32)
    right = jnp.asarray([np.eye(3), np.outer(vector, [1, 2, 3])], jnp.float32)
    solve = jax.jit(jax.vmap(ridge_solve, (0, 0, None)))
    regular, singular = solve(matrices, right, 1e-12)
    np.testing.assert_allclose(regular, np.eye(3), rtol=1e-6)
    expected = np.outer(vector, [1, 2, 3]) / (vector @ vector)
    np.testing.assert_allclose(vector @ singular, vector @ expected, rtol=1e-5)
    assert np.all(np.isfinite(singular))
