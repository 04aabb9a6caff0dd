"""Replay buffers as arrays of fixed shape: class-balanced and reservoir."""

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
    slots = buffer.index.shape[0] // classes.shape[0]
    lengths = jnp.linalg.norm(features, axis=1, keepdims=True)
    unit = features / jnp.maximum(lengths, 1e-12)

    def herd(label: Int[Array, ""]) -> Float[Array, "n"]:
        member = _members(samples, label)
        rows = jnp.where(member[:, None], unit, 0)
        mean = jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(member), 1)

        def choose(carry: tuple, step: Int[Array, ""]) -> tuple:
            total, order = carry
            candidate = (total + rows) / (step + 1)
            distance = jnp.sum((candidate - mean) ** 2, axis=1)
            free = member & (order >= slots)
            best = jnp.argmin(jnp.where(free, distance, jnp.inf))
            taken = jnp.any(free)
            order = jnp.where(taken, order.at[best].set(step), order)
            return (jnp.where(taken, total + rows[best], total), order), None

        start = (jnp.zeros(unit.shape[1]), jnp.full(unit.shape[0], slots))
        (_, order), _ = jax.lax.scan(choose, start, jnp.arange(slots))
        return order.astype(float)

    def herd_if_new(label: Int[Array, ""]) -> Float[Array, "n"]:
        return jax.lax.cond(classes[label], herd, lambda _: jnp.zeros(unit.shape[0]), label)

    orders = jax.lax.map(herd_if_new, jnp.arange(classes.shape[0]))
    return fill_slots(buffer, samples, classes, orders)


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
    refill = jnp.repeat(classes, slots)

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
