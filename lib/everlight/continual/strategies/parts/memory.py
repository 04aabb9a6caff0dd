"""Replay buffers as arrays of fixed shape, draws from them, and reservoir sampling."""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Samples, StepInfo


def empty_buffer(capacity: int, labels: int) -> Samples:
    """Return an empty buffer; buffers hold indices into the data set, never images.

    A reservoir (`add_to_reservoir`), random exemplars (`exemplars.add_random_exemplars`) and
    exemplars of equal probability (`exemplars.add_seen_exemplars`) begin with it; herded ones with
    `exemplars.empty_exemplars`.

    Args:
      capacity: number of slots.
      labels: number of labels per sample, k.
    """
    index, pairs = jnp.zeros(capacity, jnp.int32), jnp.zeros((capacity, labels), jnp.int32)
    return Samples(index, pairs, jnp.zeros(capacity, bool))


def merge_buffer(train: Samples, buffer: Samples) -> Epoch:
    """Return an epoch of a task's samples and the buffer's, once each."""
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), train, buffer)
    new, old = jnp.zeros_like(train.mask), jnp.ones_like(buffer.mask)
    return Epoch(both, jnp.concatenate([new, old]))


def distinct(samples: Samples) -> Samples:
    """Return the samples with duplicates masked: the same index with the same labels."""
    columns = (*samples.labels.T, samples.index)
    order = jnp.lexsort((*columns, ~samples.mask))
    same = jnp.ones(order.shape[0] - 1, bool)
    for column in columns:
        same &= column[order][1:] == column[order][:-1]
    again = jnp.zeros_like(samples.mask).at[order[1:]].set(same)
    return samples._replace(mask=samples.mask & ~again)


def hash_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return a threefry key made of all words of a key of any implementation.

    Folding a number into a threefry key gives the same bits alone, in a batch and under `vmap`. The
    bits of an "rbg" or "unsafe_rbg" key depend on its position in a `vmap`, so they cannot rank
    samples. A threefry key is returned unchanged.
    """
    words = jax.random.key_data(key)
    first = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    return reduce(jax.random.fold_in, words[2:], first)


def carried_classes(samples: Samples, classes: int) -> Bool[Array, "c"]:
    """Return True for the classes among the samples' labels, `[c]`."""
    carried = samples.labels[..., None] == jnp.arange(classes)
    return jnp.any(carried & samples.mask[:, None, None], axis=(0, 1))


def draw_slots(
    mask: Bool[Array, "m"], size: int, key: PRNGKeyArray
) -> tuple[Int[Array, "n"], Float[Array, "n"]]:
    """Return random slots without replacement and their weights; padding has weight 0.

    A draw without replacement has at most m samples, so a size above m gives the whole memory.
    Mammoth's buffer does the same. The cost grows with m; where the filled slots come first,
    `draw_first_slots` is independent of it.

    Args:
      mask: True for filled slots, `[m]`.
      size: number of wanted slots; n is the lesser of it and m.
      key: random key of the draw.
    """
    drawn = jnp.where(mask, jax.random.uniform(key, mask.shape), -1.0)
    value, slots = jax.lax.top_k(drawn, min(size, mask.shape[0]))
    held = value >= 0
    # The held slots fill up in turn, so that batch norm sees each of them equally often.
    position = jnp.arange(slots.shape[0]) % jnp.maximum(jnp.sum(held), 1)
    return slots[position], held.astype(jnp.float32)


def draw_first_slots(
    filled: Int[Array, ""], capacity: int, size: int, key: PRNGKeyArray
) -> tuple[Int[Array, "n"], Float[Array, "n"]]:
    """Return random slots among the first ones without replacement, and their weights.

    It takes the first distinct numbers of an independent uniform sequence, so every ordered choice
    is equally likely. Time and memory do not depend on the capacity.

    Args:
      filled: number of filled slots, which come first.
      capacity: number of slots.
      size: number of wanted slots; n is the lesser of it and the capacity.
      key: random key of the draw.
    """
    size = min(size, capacity)
    if capacity <= 4 * size:
        return draw_slots(jnp.arange(capacity) < filled, size, key)
    # Among more than 4n slots, n / 8 repetitions are expected. A fuller draw needs one round.
    block = size + size // 4 + 8
    taken = jnp.arange(size + block) >= size

    def is_short(state: tuple) -> Bool[Array, ""]:
        return state[1] < jnp.minimum(size, filled)

    def draw_more(state: tuple) -> tuple:
        slots, number, key = state
        key, key_now = jax.random.split(key)
        drawn = jax.random.randint(key_now, (block,), 0, filled)
        tried = jnp.concatenate([slots, drawn])
        counts = taken | (jnp.arange(size + block) < number)
        again = jnp.any(jnp.tril((tried[:, None] == tried) & counts, -1), axis=1)
        new = counts & ~again
        first = jnp.argsort(~new, stable=True)[:size]
        return tried[first], jnp.minimum(jnp.sum(new, dtype=number.dtype), size), key

    # A memory that holds no more than is wanted is returned as a whole.
    few = filled <= size
    start = jnp.arange(size), jnp.where(few, filled, 0), key
    slots, number, _ = jax.lax.while_loop(is_short, draw_more, start)
    held = jnp.arange(size) < number
    return jnp.where(held, slots, slots[0]), held.astype(jnp.float32)


class ReservoirDraw(NamedTuple):
    """Batch drawn from memory, and the slots of its samples."""

    batch: Batch
    slots: Int[Array, "n"]


def draw_from_reservoir(
    samples: Samples, arrived: Int[Array, ""], size: int, batch: Batch, key: PRNGKeyArray
) -> ReservoirDraw:
    """Return a batch drawn from a reservoir without replacement, filled up by the step's own.

    Args:
      samples: samples of the reservoir, which fills from the first slot on.
      arrived: number of samples that have arrived so far.
      size: number of wanted samples; fewer are drawn from a smaller memory.
      batch: the step's own batch.
      key: random key of the draw.
    """
    capacity = samples.mask.shape[0]
    slots, weight = draw_first_slots(jnp.minimum(arrived, capacity), capacity, size, key)
    return ReservoirDraw(fill_up(batch_at(samples, slots, weight), batch), slots)


def draw_batch(buffer: Samples, size: int, key: PRNGKeyArray) -> Batch:
    """Return a batch of at most `size` samples of the buffer, drawn without replacement."""
    return batch_at(buffer, *draw_slots(buffer.mask, size, key))


def batch_at(buffer: Samples, slots: Int[Array, "n"], weight: Float[Array, "n"]) -> Batch:
    """Return a batch of the samples in the given slots of the buffer."""
    return Batch(buffer.index[slots], buffer.labels[slots], weight, jnp.ones(slots.shape, bool))


def fill_up(drawn: Batch, batch: Batch) -> Batch:
    """Return a drawn batch in which the step's own samples replace the padding.

    They keep weight 0. Layers that normalize over the batch then see current samples instead of an
    empty slot's.

    Args:
      drawn: batch from memory, of any size.
      batch: the step's own batch; its samples are taken in turn, cyclically.
    """
    held = drawn.weight > 0
    position = jnp.arange(drawn.index.shape[0]) % batch.index.shape[0]
    return drawn._replace(
        index=jnp.where(held, drawn.index, batch.index[position]),
        labels=jnp.where(held[:, None], drawn.labels, batch.labels[position]),
    )


def arrivals(batch: Batch) -> Samples:
    """Return a batch's samples that may enter memory; those of weight 0 are masked."""
    return Samples(batch.index, batch.labels, batch.weight > 0)


def arrived(info: StepInfo) -> Samples:
    """Return the samples that enter memory after a step; none before a batch's last update."""
    new = arrivals(info.batch)
    return new._replace(mask=new.mask & info.arrives)


def add_to_reservoir(
    rows: PyTree,
    arrived: Int[Array, ""],
    new: PyTree,
    mask: Bool[Array, "b"],
    key: PRNGKeyArray,
) -> tuple[PyTree, Int[Array, ""]]:
    """Add a batch by reservoir sampling (Vitter 1985).

    After n arrivals each sample is held with probability m / n.

    Args:
      rows: stored values per sample, leaves `[m, ...]`.
      arrived: number of earlier arrivals.
      new: values of a batch, leaves `[b, ...]`, which arrive in order.
      mask: True for samples of the batch that arrive; the others have no effect.
      key: random key of the choice.

    Returns:
      The stored values and the number of arrivals after the batch.
    """
    capacity = jax.tree.leaves(rows)[0].shape[0]
    number = arrived + jnp.cumsum(mask) - 1
    drawn = jax.vmap(lambda key, most: jax.random.randint(key, (), 0, most + 1))(
        jax.random.split(key, mask.shape[0]), jnp.maximum(number, 0)
    )
    slot = jnp.where(number < capacity, number, drawn)
    slot = jnp.where(mask & (slot < capacity), slot, capacity)
    # If several samples arrive for one slot, the last one stays; slots past the end are
    # dropped. Each slot is then written at most once, in place, so that the cost does not grow with
    # the capacity.
    replaced = jnp.any(jnp.triu(slot[:, None] == slot, 1), axis=1)
    slot = jnp.where(replaced, capacity, slot)
    rows = jax.tree.map(lambda old, row: old.at[slot].set(row, mode="drop"), rows, new)
    return rows, arrived + jnp.sum(mask, dtype=arrived.dtype)
