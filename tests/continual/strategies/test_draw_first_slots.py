"""Draws from a buffer whose filled slots come first: distinct, uniform, independent of capacity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from everlight.base import Samples
from everlight.continual.strategies.parts.memory import batch_at, draw_first_slots

CAPACITY, SIZE = 64, 5
draws = jax.jit(
    jax.vmap(lambda key, filled: draw_first_slots(filled, CAPACITY, SIZE, key), in_axes=(0, None))
)


@pytest.mark.parametrize("filled", [6, 9, 30, 64])
def test_slots_are_distinct_filled_and_equally_likely(filled):
    """In 4,000 draws, by a chi-square test; also the first slot of a draw alone."""
    slots, weight = draws(jax.random.split(jax.random.key(2), 4000), filled)
    assert np.all(weight == 1)
    assert all(len(set(row)) == SIZE for row in slots.tolist())
    assert slots.max() < filled
    for taken, chance in ((slots, SIZE / filled), (slots[:, :1], 1 / filled)):
        counts = np.bincount(taken.ravel(), minlength=filled)
        variance = 4000 * chance * (1 - chance)
        # Counts add up to a constant, which takes one degree of freedom.
        statistic = np.sum((counts - 4000 * chance) ** 2) / variance * (filled - 1) / filled
        assert chi2.ppf(1e-4, filled - 1) < statistic < chi2.ppf(1 - 1e-4, filled - 1)


def test_pairs_are_drawn_together_as_often_as_chance_has_it():
    """2 of 6 unordered slots are together in 5/6 · 4/5 = 2/3 of the draws of 5."""
    slots, _ = draws(jax.random.split(jax.random.key(3), 4000), 6)
    held = np.any(np.asarray(slots)[..., None] == np.arange(6), axis=1)
    together = held.T.astype(int) @ held.astype(int) / 4000
    pairs = together[~np.eye(6, dtype=bool)]
    assert np.all(np.abs(pairs - 2 / 3) < 5 * (2 / 9 / 4000) ** 0.5)


@pytest.mark.parametrize("filled", [0, 1, 4, 5])
def test_few_samples_are_drawn_as_a_whole_and_padding_has_weight_0(filled):
    slots, weight = draws(jax.random.split(jax.random.key(4), 10), filled)
    for row, kept in zip(np.asarray(slots), np.asarray(weight) > 0, strict=True):
        assert sorted(row[kept]) == list(range(filled))
        assert set(row[~kept]) <= {0}


def test_a_draw_is_independent_of_the_capacity_and_a_batch_holds_its_samples():
    buffer = Samples(jnp.arange(500, 600), jnp.arange(100)[:, None] % 7, jnp.arange(100) < 30)
    key = jax.random.key(5)
    batch = batch_at(buffer, *draw_first_slots(jnp.int32(30), 100, SIZE, key))
    slots, _ = draw_first_slots(jnp.int32(30), 10_000, SIZE, key)
    np.testing.assert_array_equal(batch.index, 500 + slots)
    np.testing.assert_array_equal(batch.labels[:, 0], slots % 7)
    assert np.all(batch.weight == 1)


def test_the_program_holds_no_array_of_the_capacity():
    program = jax.make_jaxpr(lambda key, n: draw_first_slots(n, 54_321, SIZE, key))
    assert "54321" not in str(program(jax.random.key(0), jnp.int32(9)))
