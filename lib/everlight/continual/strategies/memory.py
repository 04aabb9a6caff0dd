"""Replay buffers as arrays of fixed shape, class-balanced and reservoir, and draws from them."""

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import Batch, Epoch, Samples, StepInfo


def empty_buffer(capacity: int, labels: int) -> Samples:
    """A buffer without samples; it holds indices into the data set, never images."""
    return Samples(
        jnp.zeros(capacity, jnp.int32),
        jnp.zeros((capacity, labels), jnp.int32),
        jnp.zeros(capacity, bool),
    )


def merge_buffer(train: Samples, buffer: Samples) -> Epoch:
    """An epoch of a task's samples and the buffer's, once each."""
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), train, buffer)
    new, old = jnp.zeros_like(train.mask), jnp.ones_like(buffer.mask)
    return Epoch(both, jnp.concatenate([new, old]))


def add_random_exemplars(
    buffer: Samples, samples: Samples, classes: Bool[Array, "c"], key: PRNGKeyArray
) -> Samples:
    """Fills the slots of some classes with random samples that carry their label.

    The buffer has the same number of slots for every class, those of class c at
    `[c * m, (c + 1) * m)`; other classes' slots stay as they are. A class with fewer samples than
    slots leaves the rest masked; a sample of two classes may stand for both.

    Args:
      buffer: class-balanced, `[classes * m]`.
      samples: of the task; one that is there twice counts once.
      classes: whose slots are filled, `[c]`.
      key: of the choice, of any implementation; padding never changes the choice.
    """
    base = hash_key(key)
    score = jax.vmap(lambda *sample: _rank(base, *sample))(samples.index, samples.labels)
    scores = jnp.broadcast_to(score, (classes.shape[0], score.shape[0]))
    return fill_slots(buffer, distinct(samples), classes, scores)


def add_seen_exemplars(
    buffer: Samples, samples: Samples, classes: int, key: PRNGKeyArray
) -> Samples:
    """The buffer after more samples were seen, each of a class's held with equal chance.

    Of all samples of a class that were ever added with the same key those with the least random
    numbers stay, whatever the order and the parts in which they came.

    Args:
      buffer: class-balanced, `[classes * m]`, filled by this function alone.
      samples: of the task.
      classes: that have slots.
      key: of the choice, the same at every call.
    """
    every = merge_buffer(samples, buffer).samples
    return add_random_exemplars(buffer, every, jnp.ones(classes, bool), key)


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
    """A threefry key made of all words of a key of any implementation.

    A number folded into a threefry key gives the same bits alone, in a batch and under `vmap`. The
    bits of an "rbg" or "unsafe_rbg" key depend on its place in a `vmap`, so they rank no samples. A
    threefry key comes back as it is.
    """
    words = jax.random.key_data(key)
    first = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    return reduce(jax.random.fold_in, words[2:], first)


def _rank(key: PRNGKeyArray, index: Int[Array, ""], labels: Int[Array, "k"]) -> Float[Array, ""]:
    # All labels: an image may be there twice, once with fewer.
    return jax.random.uniform(reduce(jax.random.fold_in, (index, *labels), key))


def add_herded_exemplars(
    buffer: Samples,
    samples: Samples,
    classes: Bool[Array, "c"],
    features: Float[Array, "n f"],
) -> Samples:
    """Fills the slots of some classes by herding (iCaRL, Rebuffi et al. 2017, algorithm 4).

    Each exemplar is the sample that brings the mean of the chosen features nearest to the class's
    mean; features are L2-normalised.

    Args:
      buffer: class-balanced, `[classes * m]`.
      samples: of the task, `[n]`.
      classes: whose slots are filled, `[c]`.
      features: of the samples, `[n, f]`.
    """
    count, size = classes.shape[0], samples.mask.shape[0]
    lengths = jnp.linalg.norm(features, axis=1, keepdims=True)
    rows = jnp.where(samples.mask[:, None], features / jnp.maximum(lengths, 1e-12), 0)
    squares = jnp.sum(rows**2, axis=1, keepdims=True)
    # Every label of every sample stands in its class's herd; what is in none, in one past the last.
    herded = samples.mask[:, None] & (samples.labels >= 0) & classes[samples.labels]
    herd = jnp.where(herded, samples.labels, count)
    place = jnp.broadcast_to(jnp.arange(size)[:, None], herd.shape)

    def by_herd(reduce: Callable, values: Array) -> Array:
        return reduce(values.reshape(-1, *values.shape[2:]), herd.reshape(-1), count + 1)

    members = by_herd(jax.ops.segment_sum, jnp.ones(herd.shape))
    # One of a sample's labels after another: rows for each at once would be the most memory.
    total = sum(jax.ops.segment_sum(rows, column, count + 1) for column in herd.T)
    mean = total / jnp.maximum(members, 1)[:, None]

    def choose(carry: tuple, step: Int[Array, ""]) -> tuple:
        total, free = carry
        # |total + row - (step + 1) mean|², less what is the same for all of a herd.
        away = total - (step + 1) * mean
        along = jax.lax.map(lambda column: jnp.sum(rows * away[column], axis=1), herd.T)
        distance = squares + 2 * along.T
        distance = jnp.where(free, distance, jnp.inf)
        nearest = distance == by_herd(jax.ops.segment_min, distance)[herd]
        best = by_herd(jax.ops.segment_min, jnp.where(free & nearest, place, size))
        filled = best < size
        total = total + jnp.where(filled[:, None], rows[best], 0)
        return (total, free & (place != best[herd])), (best[:count], filled[:count])

    start = (jnp.zeros_like(mean), herded)
    slots = buffer.index.shape[0] // count
    _, (best, filled) = jax.lax.scan(choose, start, jnp.arange(slots))
    chosen = jax.tree.map(lambda leaf: leaf[best.T], samples)._replace(mask=filled.T)
    return _refill(buffer, chosen, classes)


def fill_slots(
    buffer: Samples, samples: Samples, classes: Bool[Array, "c"], scores: Float[Array, "c n"]
) -> Samples:
    """The samples of least score in each class into that class's slots."""
    slots = buffer.index.shape[0] // classes.shape[0]

    def choose(label: Int[Array, ""]) -> tuple:
        member, score = _members(samples, label), scores[label]
        order = jnp.argsort(jnp.where(member, score, jnp.inf), stable=True)[:slots]
        order = jnp.pad(order, (0, slots - order.shape[0]))
        filled = jnp.arange(slots) < jnp.sum(member)
        return jax.tree.map(lambda leaf: leaf[order], samples)._replace(mask=filled)

    chosen = jax.lax.map(choose, jnp.arange(classes.shape[0]))
    return _refill(buffer, chosen, classes)


def _refill(buffer: Samples, chosen: Samples, classes: Bool[Array, "c"]) -> Samples:
    """The buffer with some classes' slots anew; `chosen` has all, `[c, slots]`."""
    refill = jnp.repeat(classes, chosen.mask.shape[1])

    def put(old: Array, new: Array) -> Array:
        new = new.reshape(old.shape)
        return jnp.where(refill.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return jax.tree.map(put, buffer, chosen)


def _members(samples: Samples, label: Int[Array, ""]) -> Bool[Array, "n"]:
    return samples.mask & jnp.any(samples.labels == label, axis=1)


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
