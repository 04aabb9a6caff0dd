"""Class-balanced exemplars: a number per class, or a fixed total shared by the seen classes.

With a fixed total of K slots every seen class keeps m = K // (seen classes) exemplars, so there are
never more than K. As m falls, a class keeps the first m in the order of their choice. The order is
that of herding (iCaRL, Rebuffi et al. 2017) or of each sample's fixed random number.
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Samples
from everlight.checks import checked
from everlight.continual.strategies.parts.memory import (
    distinct,
    empty_buffer,
    hash_key,
    merge_buffer,
)
from everlight.errors import Argument, ArgumentError


class ExemplarBuffer(NamedTuple):
    """Exemplars with the class and the herding rank of every slot."""

    samples: Samples
    label: Int[Array, "m"]
    """Class of each slot; a sample with several labels may have a slot for each."""
    rank: Int[Array, "m"]
    """Position in the order in which the class's exemplars were chosen, from 0."""


class Division(NamedTuple):
    """Equal parts of a buffer's slots, one per class."""

    first: Int[Array, "c"]
    """First slot of each class; past the end for a class without slots."""
    size: int | Int[Array, ""]
    """Number of slots per class."""


def empty_exemplars(capacity: int, labels: int) -> ExemplarBuffer:
    """Return a buffer without exemplars, which `add_herded_exemplars` fills.

    The buffers of `add_random_exemplars` and `add_seen_exemplars` are those of
    `memory.empty_buffer`.

    Args:
      capacity: number of slots.
      labels: number of labels per sample, k.
    """
    label, rank = jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, jnp.int32)
    return ExemplarBuffer(empty_buffer(capacity, labels), label, rank)


def exemplar_slots(exemplars_per_class: int, buffer_size: int | None, classes: int) -> int:
    """Return a buffer's number of slots: `buffer_size`, or `exemplars_per_class` for every class.

    Raises:
      ValueError: `buffer_size` is less than one exemplar per class.
    """
    if buffer_size is None:
        return exemplars_per_class * classes
    if buffer_size < classes:
        raise ArgumentError(
            Argument("buffer_size", buffer_size),
            f" is less than one exemplar for each of {classes} classes",
            remedy=(f"give at least {classes}",),
        )
    return buffer_size


def divide_slots(
    slots: int, classes: int, sharing_classes: Bool[Array, "c"] | None = None
) -> Division:
    """Divide slots equally among classes, in the order of their numbers.

    Args:
      slots: number of slots of the buffer.
      classes: number of all classes.
      sharing_classes: the classes that share the slots; with a fixed total, the seen ones. None
        divides the slots among all classes.
    """
    if sharing_classes is None:
        return Division(jnp.arange(classes, dtype=jnp.int32) * (slots // classes), slots // classes)
    count = jnp.sum(sharing_classes).astype(jnp.int32)
    size = slots // jnp.maximum(count, 1)
    position = (jnp.cumsum(sharing_classes) - 1).astype(jnp.int32)
    return Division(jnp.where(sharing_classes, position * size, slots), size)


@checked
def add_random_exemplars(
    buffer: Samples, samples: Samples, classes: Bool[Array, "c"], key: PRNGKeyArray
) -> Samples:
    """Fill the slots of given classes with random samples that have their label.

    Every class has m slots, those of class c at `[c * m, (c + 1) * m)`. Other classes' slots stay
    unchanged. A class with fewer samples than slots leaves the rest masked. A sample of two classes
    may fill slots of both.

    Args:
      buffer: class-balanced buffer, `[classes * m]`, which begins as `memory.empty_buffer`.
      samples: samples of the task; duplicates count once.
      classes: classes whose slots are filled, `[c]`.
      key: random key of the choice, which is independent of padding.

    Raises:
      ValueError: `buffer` has another type, such as that of `empty_exemplars`.
    """
    slots = buffer.index.shape[0]
    division = divide_slots(slots, classes.shape[0])
    candidates = distinct(samples)
    rank = random_ranks(candidates, key)
    chosen = fill_slots(candidates, candidates.labels, rank, rank >= 0, division, slots).samples
    refill = jnp.repeat(classes, division.size, total_repeat_length=slots)
    return _choose_slots(refill, chosen, buffer)


@checked
def add_seen_exemplars(
    buffer: Samples,
    samples: Samples,
    classes: int,
    key: PRNGKeyArray,
    sharing_classes: Bool[Array, "c"] | None = None,
) -> Samples:
    """Return the buffer after more samples; all samples of a class have equal probability.

    Of all samples of a class that were added with the same key, those with the least random numbers
    stay. The order and the batches in which they came have no effect.

    Args:
      buffer: class-balanced buffer, which begins as `memory.empty_buffer` and only this function
        fills it.
      samples: samples of the task.
      classes: number of all classes.
      key: random key of the choice, the same at every call.
      sharing_classes: the classes that share the slots, never fewer than at the last call; None is
        all.

    Raises:
      ValueError: `buffer` has another type, such as that of `empty_exemplars`.
    """
    slots = buffer.index.shape[0]
    candidates = distinct(merge_buffer(samples, buffer).samples)
    rank = random_ranks(candidates, key)
    division = divide_slots(slots, classes, sharing_classes)
    return fill_slots(candidates, candidates.labels, rank, rank >= 0, division, slots).samples


def random_ranks(samples: Samples, key: PRNGKeyArray) -> Int[Array, "n k"]:
    """Return each sample's position in a random order of the samples of each label; -1 for none.

    Args:
      samples: samples without duplicates.
      key: random key of the order, of any implementation. A sample has the same random number for
        all its labels and at every position.
    """
    hashed = hash_key(key)
    drawn = jax.vmap(lambda *sample: _draw_number(hashed, *sample))(samples.index, samples.labels)
    real = (samples.mask[:, None] & (samples.labels >= 0)).reshape(-1)
    label = jnp.where(real, samples.labels.reshape(-1), jnp.iinfo(samples.labels.dtype).max)
    order = jnp.lexsort((jnp.repeat(drawn, samples.labels.shape[1]), label))
    position = jnp.arange(order.shape[0], dtype=jnp.int32)
    begins = jnp.append(True, label[order][1:] != label[order][:-1])
    rank = position - jax.lax.cummax(jnp.where(begins, position, 0))
    ranks = jnp.zeros_like(position).at[order].set(rank)
    return jnp.where(real, ranks, -1).reshape(samples.labels.shape)


def _draw_number(
    key: PRNGKeyArray, index: Int[Array, ""], labels: Int[Array, "k"]
) -> Float[Array, ""]:
    # All labels: an image may be a candidate twice, once with fewer labels.
    return jax.random.uniform(reduce(jax.random.fold_in, (index, *labels), key))


@checked
def add_herded_exemplars(
    buffer: ExemplarBuffer,
    samples: Samples,
    classes: Bool[Array, "c"],
    features: Float[Array, "n f"],
    sharing_classes: Bool[Array, "c"] | None = None,
) -> ExemplarBuffer:
    """Herd exemplars of given classes; the other classes keep their first exemplars that fit.

    These are iCaRL's ConstructExemplarSet and ReduceExemplarSet (Rebuffi et al. 2017, algorithms 4
    and 5).

    Args:
      buffer: buffer with any number of slots, which begins as `empty_exemplars`.
      samples: samples of the task, `[n]`.
      classes: classes whose exemplars are chosen again, `[c]`.
      features: features of the samples, `[n, f]`.
      sharing_classes: the classes that share the slots; with a fixed total, the seen ones. None
        divides the slots among all classes.

    Raises:
      ValueError: `buffer` has another type, such as that of `memory.empty_buffer`.
    """
    slots = buffer.rank.shape[0]
    division = divide_slots(slots, classes.shape[0], sharing_classes)
    rank = herd_ranks(samples, classes, features, division.size)
    herded = fill_slots(samples, samples.labels, rank, rank >= 0, division, slots)
    stays = buffer.samples.mask & ~classes[buffer.label]
    label, old_rank, chosen = (leaf[:, None] for leaf in (buffer.label, buffer.rank, stays))
    reduced = fill_slots(buffer.samples, label, old_rank, chosen, division, slots)
    return _choose_slots(herded.samples.mask, herded, reduced)


def herd_ranks(
    samples: Samples,
    classes: Bool[Array, "c"],
    features: Float[Array, "n f"],
    most: int | Int[Array, ""],
) -> Int[Array, "n k"]:
    """Return each sample's herding rank for each of its labels; -1 for samples not chosen.

    Each exemplar is the sample that brings the mean of the chosen features nearest to the class's
    mean (iCaRL, algorithm 4). Features are L2-normalized.

    Args:
      samples: candidate samples, `[n]`.
      classes: classes that choose exemplars, `[c]`.
      features: features of the samples, `[n, f]`.
      most: exemplars per class. As an array it limits the rounds to the largest class.
    """
    count, size = classes.shape[0], samples.mask.shape[0]
    lengths = jnp.linalg.norm(features, axis=1, keepdims=True)
    rows = jnp.where(samples.mask[:, None], features / jnp.maximum(lengths, 1e-12), 0)
    squares = jnp.sum(rows**2, axis=1, keepdims=True)
    # Each label of a sample is in its class's herd; those in no herd are in one past the last.
    herded = samples.mask[:, None] & (samples.labels >= 0) & classes[samples.labels]
    herd = jnp.where(herded, samples.labels, count)
    position = jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32)[:, None], herd.shape)

    def reduce_herds(reduce: Callable, values: Array) -> Array:
        return reduce(values.reshape(-1, *values.shape[2:]), herd.reshape(-1), count + 1)

    members = reduce_herds(jax.ops.segment_sum, jnp.ones(herd.shape, rows.dtype))
    # One of a sample's labels after another: rows for each at once would be the most memory.
    total = sum(jax.ops.segment_sum(rows, column, count + 1) for column in herd.T)
    mean = total / jnp.maximum(members, 1)[:, None]

    def choose(step: Int[Array, ""], carry: tuple) -> tuple:
        total, rank = carry
        free = herded & (rank < 0)
        # |total + row - (step + 1) mean|² without terms that a whole herd shares.
        away = total - (step + 1) * mean
        along = jax.lax.map(lambda column: jnp.sum(rows * away[column], axis=1), herd.T)
        distance = squares + 2 * along.T
        distance = jnp.where(free, distance, jnp.inf)
        nearest = distance == reduce_herds(jax.ops.segment_min, distance)[herd]
        best = reduce_herds(jax.ops.segment_min, jnp.where(free & nearest, position, size))
        total = total + jnp.where((best < size)[:, None], rows[best], 0)
        return total, jnp.where(free & (position == best[herd]), step.astype(jnp.int32), rank)

    rounds = most
    if not isinstance(most, int):
        rounds = jnp.minimum(most, jnp.max(members[:count]).astype(jnp.int32))
    start = (jnp.zeros_like(mean), jnp.full(herd.shape, -1, jnp.int32))
    return jax.lax.fori_loop(0, rounds, choose, start)[1]


def fill_slots(
    samples: Samples,
    label: Int[Array, "n k"],
    rank: Int[Array, "n k"],
    chosen: Bool[Array, "n k"],
    division: Division,
    slots: int,
) -> ExemplarBuffer:
    """Put each chosen sample into the slot of its class and rank, if there is one.

    Args:
      samples: candidate samples, `[n]`.
      label: classes of each sample, up to k, `[n, k]`.
      rank: rank within the class, `[n, k]`, unique among the chosen samples of a class.
      chosen: True for samples that are put into a slot, `[n, k]`.
      division: division of the slots among classes.
      slots: number of slots of the buffer.
    """
    count = samples.mask.shape[0]
    fits = chosen & (rank < division.size)
    slot = jnp.where(fits, division.first[label] + rank, slots)
    position = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], slot.shape)

    def put(values: Int[Array, "n k"], empty: int) -> Int[Array, "m"]:
        filled = jnp.full(slots, empty, jnp.int32)
        return filled.at[slot].set(values.astype(jnp.int32), mode="drop")

    source = put(position, count)
    held = source < count
    row = jnp.where(held, source, 0)
    index = jnp.where(held, samples.index[row], 0).astype(jnp.int32)
    labels = jnp.where(held[:, None], samples.labels[row], 0).astype(jnp.int32)
    return ExemplarBuffer(Samples(index, labels, held), put(label, 0), put(rank, 0))


def _choose_slots(mask: Bool[Array, "m"], first: PyTree, second: PyTree) -> PyTree:
    """Return the slots of the first buffer where the mask is set, and of the second elsewhere."""
    return jax.tree.map(
        lambda a, b: jnp.where(mask.reshape(-1, *[1] * (a.ndim - 1)), a, b.astype(a.dtype)),
        first,
        second,
    )
