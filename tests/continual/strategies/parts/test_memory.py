"""Replay buffers: the reservoir, draws from a buffer, and epochs with one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Batch, Samples
from everlight.continual.strategies.parts.memory import (
    add_to_reservoir,
    batch_at,
    draw_batch,
    draw_first_slots,
    fill_up,
    merge_buffer,
)
from tests.continual.draw_frequencies import assert_equal_chances

CLASSES = 4
TEN = Samples(jnp.arange(50, 62), jnp.arange(12)[:, None] % CLASSES, jnp.arange(12) % 6 != 1)


def test_a_merged_epoch_has_the_task_s_samples_and_the_buffer_s_and_knows_which_are_which():
    new = Samples(jnp.array([50, 99]), jnp.array([[0, 1], [1, -1]]), jnp.array([True, False]))
    buffer = Samples(jnp.array([7, 0, 9]), jnp.array([[3, 1], [0, 0], [2, -1]]), jnp.eye(3)[0] > 0)
    epoch = merge_buffer(new, buffer)
    np.testing.assert_array_equal(epoch.samples.index, [50, 99, 7, 0, 9])
    np.testing.assert_array_equal(epoch.samples.labels, [[0, 1], [1, -1], [3, 1], [0, 0], [2, -1]])
    np.testing.assert_array_equal(epoch.samples.mask, [True, False, True, False, False])
    np.testing.assert_array_equal(epoch.memory_mask, [False, False, True, True, True])


def test_a_drawn_batch_has_no_sample_twice_and_every_held_one_with_equal_chance():
    """4,000 draws take 4 of 10 samples."""
    keys = jax.random.split(jax.random.key(0), 4000)
    batches = jax.jit(jax.vmap(lambda key: draw_batch(TEN, 4, key)))(keys)
    assert np.all(batches.weight == 1)
    assert np.all(batches.memory_mask)
    assert all(len(set(row)) == 4 for row in batches.index.tolist())
    np.testing.assert_array_equal(batches.labels[..., 0], (batches.index - 50) % CLASSES)
    members = np.asarray(TEN.index)[np.asarray(TEN.mask)]
    counts = [np.sum(batches.index == member) for member in members]
    assert_equal_chances(counts, 4000, 4 / 10)


def test_of_a_small_memory_a_draw_holds_all_and_fills_up_at_weight_0():
    """10 of 12 slots are filled; 11 and 40 samples are requested, and at most 12 are returned."""
    for size, count in ((11, 11), (40, 12)):
        batch = draw_batch(TEN, size, jax.random.key(1))
        assert batch.index.shape == (count,)
        assert batch.weight.sum() == 10
        remote = np.asarray(batch.weight) > 0
        members = np.asarray(TEN.index)[np.asarray(TEN.mask)].tolist()
        assert sorted(np.asarray(batch.index)[remote].tolist()) == members
        # Padding is a held sample.
        assert set(np.asarray(batch.index)[~remote].tolist()) <= set(members)


def test_the_held_samples_fill_up_a_draw_in_turn():
    """Batch norm reads all rows: one sample repeated would outweigh the others."""
    few = TEN._replace(mask=jnp.arange(12) % 4 == 1)
    batch = draw_batch(few, 12, jax.random.key(2))
    assert batch.weight.sum() == 3
    index, counts = np.unique(batch.index, return_counts=True)
    np.testing.assert_array_equal(index, [51, 55, 59])
    np.testing.assert_array_equal(counts, 4)


def test_a_step_s_own_samples_fill_up_its_draw():
    rows = Batch(jnp.arange(5), 2 * jnp.arange(5)[:, None], jnp.ones(5), jnp.zeros(5, bool))
    drawn = Batch(
        jnp.array([70, 71, 72, 73]),
        jnp.array([[1], [3], [5], [7]]),
        jnp.array([1.0, 0, 1, 0]),
        jnp.ones(4, bool),
    )
    filled = fill_up(drawn, rows)
    np.testing.assert_array_equal(filled.index, [70, 1, 72, 3])
    np.testing.assert_array_equal(filled.labels[:, 0], [1, 2, 5, 6])
    np.testing.assert_array_equal(filled.weight, drawn.weight)


# Five batches of 6, of which every third sample is missing, are 20 arrivals.
ARRIVALS, BATCH = 30, 6
REAL = [number for number in range(ARRIVALS) if number % 3 != 2]


@functools.cache
def reservoirs(capacity, keys):
    """Fill one reservoir per key with indices 100, 101, ... and vectors; return its history."""

    def one(key):
        def arrive(carry, first):
            number = first * BATCH + jnp.arange(BATCH)
            # Rows are of any tree: an index, and a vector that belongs to it.
            new = {"index": 100 + number, "vector": jnp.stack([number, -number], axis=1)}
            key_now = jax.random.fold_in(key, first)
            carry = add_to_reservoir(*carry, new, number % 3 != 2, key_now)
            return carry, carry

        rows = {"index": jnp.zeros(capacity, int), "vector": jnp.zeros((capacity, 2), int)}
        start = (rows, jnp.array(0))
        return jax.lax.scan(arrive, start, jnp.arange(ARRIVALS // BATCH))

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), keys))


def test_every_arrival_is_held_with_equal_probability():
    """20 samples arrive at 5 slots: each is in 1/4 of 4,000 reservoirs."""
    (rows, arrived), _ = reservoirs(5, 4000)
    assert np.all(arrived == 20)
    counts = [np.sum(rows["index"] == 100 + number) for number in REAL]
    assert_equal_chances(counts, 4000, 5 / 20)
    # A sample keeps its row, and none is held twice.
    np.testing.assert_array_equal(rows["vector"][..., 0], rows["index"] - 100)
    np.testing.assert_array_equal(rows["vector"][..., 1], 100 - rows["index"])
    assert all(len(set(row)) == 5 for row in np.asarray(rows["index"][:200]).tolist())


def test_two_arrivals_are_held_together_as_often_as_chance_has_it():
    """Two samples, even of one batch, share 5/20 · 4/19 of 4,000 reservoirs: 210.5 ± 14.1."""
    (rows, _), _ = reservoirs(5, 4000)
    index = np.asarray(rows["index"])
    for first, second in ((24, 25), (24, 27), (0, 1), (0, 28)):
        both = np.any(index == 100 + first, axis=1) & np.any(index == 100 + second, axis=1)
        assert abs(both.sum() - 4000 / 19) < 5 * 14.1


def test_the_first_arrivals_fill_the_slots_and_those_that_are_not_there_change_nothing():
    """After one batch four have arrived: 0, 1, 3 and 4; no reservoir ever holds 2, 5, 8, ..."""
    (rows, _), (history, arrived) = reservoirs(5, 4000)
    np.testing.assert_array_equal(history["index"][:, 0], [[100, 101, 103, 104, 0]] * 4000)
    np.testing.assert_array_equal(arrived[0], [4, 8, 12, 16, 20])
    assert not np.any((np.asarray(rows["index"]) - 100) % 3 == 2)


def test_a_reservoir_larger_than_the_stream_holds_all_of_it_in_its_order():
    (rows, _), _ = reservoirs(50, 2)
    for index in np.asarray(rows["index"]):
        assert index.tolist() == [100 + number for number in REAL] + [0] * 30


def test_the_count_of_arrivals_keeps_its_type_in_64_bits():
    """A sum of booleans has 64 bits with JAX_ENABLE_X64, and a memory must keep its dtypes."""
    with jax.enable_x64(True):
        rows, arrived = add_to_reservoir(
            jnp.zeros(3), jnp.int32(1), jnp.ones(4), jnp.arange(4) < 2, jax.random.key(0)
        )
        assert (arrived, arrived.dtype) == (3, jnp.int32)
        np.testing.assert_array_equal(rows, [0, 1, 1])


CAPACITY, SIZE = 64, 5
draws = jax.jit(
    jax.vmap(lambda key, filled: draw_first_slots(filled, CAPACITY, SIZE, key), in_axes=(0, None))
)


@pytest.mark.parametrize("filled", [6, 9, 30, 64])
def test_slots_are_distinct_filled_and_equally_likely(filled):
    """A chi-square test checks 4,000 draws, and the first slot of a draw alone."""
    slots, weight = draws(jax.random.split(jax.random.key(2), 4000), filled)
    assert np.all(weight == 1)
    assert all(len(set(row)) == SIZE for row in slots.tolist())
    assert slots.max() < filled
    for taken, chance in ((slots, SIZE / filled), (slots[:, :1], 1 / filled)):
        counts = np.bincount(taken.ravel(), minlength=filled)
        assert_equal_chances(counts, 4000, chance)


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
    for row, stored in zip(np.asarray(slots), np.asarray(weight) > 0, strict=True):
        assert sorted(row[stored]) == list(range(filled))
        assert set(row[~stored]) <= {0}


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
