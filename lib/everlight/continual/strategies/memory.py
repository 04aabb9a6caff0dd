"""Replay buffers as arrays of fixed shape: draws from them, and the reservoir."""

from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import Batch, Epoch, Samples, StepInfo


def empty_buffer(capacity: int, labels: int) -> Samples:
    """A buffer without samples; it holds indices into the data set, never images."""
    index, pairs = jnp.zeros(capacity, jnp.int32), jnp.zeros((capacity, labels), jnp.int32)
    return Samples(index, pairs, jnp.zeros(capacity, bool))


def merge_buffer(train: Samples, buffer: Samples) -> Epoch:
    """An epoch of a task's samples and the buffer's, once each."""
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), train, buffer)
    new, old = jnp.zeros_like(train.mask), jnp.ones_like(buffer.mask)
    return Epoch(both, jnp.concatenate([new, old]))


def distinct(samples: Samples) -> Samples:
    """The samples with those masked that stand there before, with the same labels."""
    columns = (*samples.labels.T, samples.index)
    order = jnp.lexsort((*columns, ~samples.mask))
    same = jnp.ones(order.shape[0] - 1, bool)
    for column in columns:
        same &= column[order][1:] == column[order][:-1]
    again = jnp.zeros_like(samples.mask).at[order[1:]].set(same)
    return samples._replace(mask=samples.mask & ~again)


def hash_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return a threefry key made of all words of a key of any implementation.

    A number folded into a threefry key gives the same bits alone, in a batch and under `vmap`. The
    bits of an "rbg" or "unsafe_rbg" key depend on its place in a `vmap`, so they rank no samples. A
    threefry key comes back as it is.
    """
    words = jax.random.key_data(key)
    first = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    return reduce(jax.random.fold_in, words[2:], first)


def carried_classes(samples: Samples, classes: int) -> Bool[Array, "c"]:
    """The classes that the samples carry, `[c]`."""
    carried = samples.labels[..., None] == jnp.arange(classes)
    return jnp.any(carried & samples.mask[:, None, None], axis=(0, 1))


def draw_slots(
    mask: Bool[Array, "m"], size: int, key: PRNGKeyArray
) -> tuple[Int[Array, "n"], Float[Array, "n"]]:
    """Random slots without replacement, and weights: 0 for what fills up where fewer are held.

    A draw without replacement has at most m samples, so a size above m gives the whole memory. This
    is what Mammoth's buffer returns, whose batch is also as large as what is held.

    Args:
      mask: the slots that are held, `[m]`.
      size: wanted; n is the lesser of it and m.
      key: of the choice.
    """
    drawn = jnp.where(mask, jax.random.uniform(key, mask.shape), -1.0)
    value, slots = jax.lax.top_k(drawn, min(size, mask.shape[0]))
    held = value >= 0
    # What fills up is a held slot, for what normalises over the batch.
    return jnp.where(held, slots, slots[0]), held.astype(jnp.float32)


def draw_batch(buffer: Samples, size: int, key: PRNGKeyArray) -> Batch:
    """A batch of the buffer's samples without replacement, of at most `size`."""
    return batch_at(buffer, *draw_slots(buffer.mask, size, key))


def batch_at(buffer: Samples, slots: Int[Array, "n"], weight: Float[Array, "n"]) -> Batch:
    """A batch of the samples in some of the buffer's slots."""
    return Batch(buffer.index[slots], buffer.labels[slots], weight, jnp.ones(slots.shape, bool))


def fill_up(drawn: Batch, batch: Batch) -> Batch:
    """A batch drawn for a step, in which the step's own samples fill up where fewer are held.

    They keep weight 0, and to what normalises over the batch they are no strangers, as an empty
    slot's would be.

    Args:
      drawn: a batch of any size.
      batch: the step's own, whose samples are taken in turn, and again from the first.
    """
    held = drawn.weight > 0
    place = jnp.arange(drawn.index.shape[0]) % batch.index.shape[0]
    return drawn._replace(
        index=jnp.where(held, drawn.index, batch.index[place]),
        labels=jnp.where(held[:, None], drawn.labels, batch.labels[place]),
    )


def arrivals(batch: Batch) -> Samples:
    """A batch's samples, those of weight 0 masked: what a step brings to memory."""
    return Samples(batch.index, batch.labels, batch.weight > 0)


def arrived(info: StepInfo) -> Samples:
    """Return the samples that a step brings to memory: none before the last update on a batch."""
    new = arrivals(info.batch)
    return new._replace(mask=new.mask & info.arrives)


def add_to_reservoir(
    rows: PyTree,
    arrived: Int[Array, ""],
    new: PyTree,
    here: Bool[Array, "b"],
    key: PRNGKeyArray,
) -> tuple[PyTree, Int[Array, ""]]:
    """Reservoir sampling (Vitter 1985): after n arrivals each is held with probability m / n.

    Args:
      rows: what is held of each sample, leaves `[m, ...]`.
      arrived: how many arrived before.
      new: the same of a batch, leaves `[b, ...]`, which arrives in its order.
      here: which of the batch arrive; the others change nothing.
      key: of the choice.

    Returns:
      The rows, and how many arrived by now.
    """
    capacity = jax.tree.leaves(rows)[0].shape[0]
    number = arrived + jnp.cumsum(here) - 1
    drawn = jax.vmap(lambda key, most: jax.random.randint(key, (), 0, most + 1))(
        jax.random.split(key, here.shape[0]), jnp.maximum(number, 0)
    )
    slot = jnp.where(number < capacity, number, drawn)
    slot = jnp.where(here & (slot < capacity), slot, capacity)
    # The last one that a slot is given to stays; slots past the end are dropped.
    last = jax.ops.segment_max(jnp.arange(here.shape[0]), slot, capacity)

    def put(old: Array, arriving: Array) -> Array:
        given = (last >= 0).reshape(-1, *[1] * (old.ndim - 1))
        return jnp.where(given, arriving[jnp.maximum(last, 0)], old)

    return jax.tree.map(put, rows, new), arrived + jnp.sum(here, dtype=arrived.dtype)
