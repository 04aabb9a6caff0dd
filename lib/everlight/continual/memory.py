"""Replay buffers as arrays of fixed shape: class-balanced and reservoir."""

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.continual.base import Epoch, Samples


def empty_buffer(capacity: int, labels: int) -> Samples:
    """A buffer without samples; it holds indices into the data set, never images."""
    return Samples(
        jnp.zeros(capacity, int), jnp.zeros((capacity, labels), int), jnp.zeros(capacity, bool)
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
      samples: of the task.
      classes: whose slots are filled, `[c]`.
      key: of the choice, which padding never changes.
    """

    def rank(index: Int[Array, ""], labels: Int[Array, "k"]) -> Float[Array, ""]:
        # All labels: an image may be there twice, once with fewer.
        return jax.random.uniform(reduce(jax.random.fold_in, (index, *labels), key))

    score = jax.vmap(rank)(samples.index, samples.labels)
    scores = jnp.broadcast_to(score, (classes.shape[0], score.shape[0]))
    return fill_slots(buffer, samples, classes, scores)


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

    each = jnp.broadcast_to(rows[:, None], (*herd.shape, rows.shape[1]))
    members = by_herd(jax.ops.segment_sum, jnp.ones(herd.shape))
    mean = by_herd(jax.ops.segment_sum, each) / jnp.maximum(members, 1)[:, None]

    def choose(carry: tuple, step: Int[Array, ""]) -> tuple:
        total, free = carry
        # |total + row - (step + 1) mean|², less what is the same for all of a herd.
        away = total - (step + 1) * mean
        distance = squares + 2 * jnp.sum(rows[:, None] * away[herd], axis=2)
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


def add_to_reservoir(
    buffer: Samples, arrived: Int[Array, ""], sample: Samples, key: PRNGKeyArray
) -> Samples:
    """Reservoir sampling (Vitter 1985): after n arrivals each is held with probability m/n.

    Args:
      buffer: any samples, `[m]`.
      arrived: how many arrived before this one.
      sample: one sample, without its leading axis; one of mask 0 changes nothing.
      key: of the choice.
    """
    capacity = buffer.index.shape[0]
    drawn = jax.random.randint(key, (), 0, arrived + 1)
    slot = jnp.where(arrived < capacity, arrived, drawn)
    slot = jnp.where(sample.mask, slot, capacity)
    # A slot past the end is dropped by the scatter.
    return jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), buffer, sample)
