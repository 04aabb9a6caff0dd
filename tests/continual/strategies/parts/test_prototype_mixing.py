"""Adaptive prototypical feedback: which samples are mixed, and by how much."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Samples
from everlight.continual.strategies.parts import prototype_mixing as mixing
from everlight.continual.strategies.parts.memory import batch_at

KEY = jax.random.key(0)
MANY = jax.random.split(KEY, 4000)
SETTINGS = mixing.Mixing(0.75, 0.6, 0.5, 0.4)
# Classes 0, 1 and 3 have samples; 3 has no prototype in some tests.
LABELS = np.array([0, 1, 0, 3, 1, 0, 2, 2])
SAMPLES = Samples(jnp.arange(8) + 50, jnp.asarray(LABELS)[:, None], jnp.arange(8) < 6)


def test_odds_are_a_softmax_of_one_over_the_distance():
    """Prototypes are at 0, 2 and 6 of a line; another one's class has no samples."""
    prototypes = jnp.float32([[0.0], [2.0], [1.0], [6.0]])
    one, two = (jnp.asarray(side) for side in np.triu_indices(4, 1))
    possible = (one != 2) & (two != 2)
    powers = np.exp([1 / 2, 1 / 6, 1 / 4])
    result = mixing.pair_odds(prototypes, one, two, possible)
    np.testing.assert_allclose(result[jnp.array([0, 2, 4])], powers / powers.sum(), rtol=1e-6)
    assert np.count_nonzero(result) == 3
    assert not np.any(mixing.pair_odds(prototypes, one, two, jnp.zeros(6, bool)))


@pytest.mark.parametrize("total", [1, 7, 16])
def test_whole_shares_are_the_rounded_ones_but_for_single_steps(total):
    """`make_mix_pair` has the same: the sum is the total, and steps of one go in one direction."""
    rng = np.random.default_rng(total)
    rows = rng.dirichlet(np.ones(6), 50) * (np.arange(6) < 5)
    rows /= rows.sum(axis=1, keepdims=True)
    shares = jax.jit(jax.vmap(mixing.whole_shares, (0, None, 0)), static_argnums=1)
    result = np.asarray(shares(jnp.float32(rows), total, MANY[:50]))
    rounded = np.round(np.float32(rows) * total)
    np.testing.assert_array_equal(result.sum(axis=1), total)
    steps = result - rounded
    assert np.abs(steps).max() <= 1
    assert np.all((steps >= 0).all(axis=1) | (steps <= 0).all(axis=1))
    assert np.all(result >= 0)
    assert not result[:, 5].any(), "no pair without odds"
    assert np.abs(steps).sum() > 0, "rows whose rounded shares have another sum"
    assert not np.any(mixing.whole_shares(jnp.zeros(6), total, KEY))


def test_a_pairs_samples_are_of_its_two_classes():
    prototypes = jnp.float32([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    mixed = jax.jit(
        jax.vmap(lambda key: mixing.mix_classes(SAMPLES, prototypes, 5, SETTINGS, key))
    )(MANY)
    # Class 2 has no samples, class 3 no prototype.
    assert np.all(mixed.first.labels == 0)
    assert np.all(mixed.second.labels == 1)
    assert np.all(mixed.first.weight == 1)
    for batch, held in ((mixed.first, [50, 52, 55]), (mixed.second, [51, 54])):
        index, count = np.unique(batch.index, return_counts=True)
        np.testing.assert_array_equal(index, held)
        np.testing.assert_allclose(count / count.sum(), 1 / len(held), atol=0.03)
    # Each pair has one coin; where it falls, shares have the moments of Beta(0.4, 0.4).
    share = np.asarray(mixed.share)
    some = np.any(share > 0, axis=1)
    assert np.all(share[some].min(axis=1) >= 0)
    assert some.mean() == pytest.approx(0.6, abs=0.04)
    assert share[some].mean() == pytest.approx(0.5, abs=0.02)
    assert share[some].std() == pytest.approx(np.sqrt(0.25 / 1.8), abs=0.02)


def test_without_two_classes_no_pair_has_weight():
    prototypes = jnp.float32([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    mixed = mixing.mix_classes(SAMPLES, prototypes, 4, SETTINGS, KEY)
    np.testing.assert_array_equal(mixed.first.weight, 0)
    np.testing.assert_array_equal(mixed.second.weight, 0)


def test_partners_of_one_draw_are_a_permutation_of_its_samples():
    drawn = batch_at(SAMPLES, jnp.array([3, 1, 0, 5, 2]), jnp.float32([1, 1, 1, 0, 0]))
    mixed = jax.jit(jax.vmap(lambda key: mixing.mix_within_batch(drawn, SETTINGS, key)))(MANY)
    assert np.all(mixed.first.index == drawn.index)
    partners = np.asarray(mixed.second.index)[:, :3]
    np.testing.assert_array_equal(np.sort(partners, axis=1), np.tile([50, 51, 53], (4000, 1)))
    for first in range(3):
        share = [np.mean(partners[:, first] == part) for part in (50, 51, 53)]
        np.testing.assert_allclose(share, 1 / 3, atol=0.04)
    # Both coins fall with probability 0.6, the first one for the whole batch.
    share = np.asarray(mixed.share)
    assert np.mean(np.any(share > 0, axis=1)) == pytest.approx(0.6 * (1 - 0.4**5), abs=0.03)
    assert np.mean(share > 0) == pytest.approx(0.36, abs=0.03)
    assert share.max() <= 0.5
    assert share[share > 0].mean() == pytest.approx(0.25, abs=0.01)


def test_three_of_four_slots_mix_samples_of_the_draw():
    drawn = batch_at(SAMPLES, jnp.array([3, 1, 0, 5]), jnp.ones(4))
    prototypes = jnp.eye(4)
    mixed = mixing.mix_replayed(drawn, SAMPLES, prototypes, SETTINGS, KEY)
    np.testing.assert_array_equal(mixed.first.index[:3], drawn.index[:3])
    assert mixed.share.shape == mixed.second.weight.shape == (4,)
    assert mixed.first.labels[3, 0] < mixed.second.labels[3, 0]
    complete = mixing.mix_replayed(
        drawn, SAMPLES, prototypes, SETTINGS._replace(base_share=1.0), KEY
    )
    np.testing.assert_array_equal(complete.first.index, drawn.index)


def test_a_sample_of_each_class_is_stored():
    result = mixing.sample_per_label(SAMPLES, jnp.array([3, 0, 1]), jnp.ones(3), KEY)
    np.testing.assert_array_equal(result.labels[:, 0], [3, 0, 1])
    assert result.index[0] == 53
