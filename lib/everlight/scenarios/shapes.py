"""Padding of tasks and sequences to common shapes, so that one compiled program serves all."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int

from everlight.base import Samples, TaskSequence
from everlight.checks import checked
from everlight.errors import ArgumentError


@checked
def stack_samples(
    groups: Sequence[Int[np.ndarray, "_"]], labels: Sequence[Int[np.ndarray, "_ k"]]
) -> Samples:
    """Stack every task's samples, padded to the longest with mask 0: `[t, n]`, `[t, n, k]`.

    Args:
      groups: indices of each task's samples in the data set.
      labels: labels of each task's samples, `[n, k]`.

    Raises:
      ValueError: a task has different numbers of labels and indices.
    """
    lengths = np.array([len(group) for group in groups])
    if lengths.tolist() != [len(task_labels) for task_labels in labels]:
        raise ArgumentError(
            f"groups of {lengths.tolist()}, labels of {[*map(len, labels)]} samples; give equally "
            "many"
        )
    mask = np.arange(max(1, lengths.max())) < lengths[:, None]
    index = np.zeros(mask.shape, int)
    index[mask] = np.concatenate(groups)
    padded = np.full((*mask.shape, labels[0].shape[1]), -1)
    padded[mask] = np.concatenate(labels)
    return jax.tree.map(jnp.asarray, Samples(index, padded, mask))


def unpadded_samples(index: ArrayLike, labels: Int[ArrayLike, "n"]) -> Samples:
    """Return samples of one label each, `[n]`, without padding."""
    return Samples(jnp.asarray(index), jnp.asarray(labels)[:, None], jnp.ones(len(labels), bool))


@checked
def pad_sequences(sequences: Sequence[TaskSequence]) -> list[TaskSequence]:
    """Pad the samples of sequences to the longest, with mask 0.

    Padding changes no result. The results can be stacked and vmapped over task orders.

    Args:
      sequences: sequences with equal numbers of tasks and classes.

    Raises:
      ValueError: the numbers of tasks or classes differ.
    """
    for axis, name in enumerate(("tasks", "classes")):
        counts = sorted({stream.tasks.classes.shape[axis] for stream in sequences})
        if len(counts) > 1:
            raise ArgumentError(f"sequences of {counts} {name}; give equal numbers")
    train = max(stream.tasks.train.mask.shape[1] for stream in sequences)
    valid = max(stream.tasks.valid.mask.shape[1] for stream in sequences)
    test = max(stream.test.mask.shape[0] for stream in sequences)
    return [
        stream._replace(
            tasks=stream.tasks._replace(
                train=pad_samples(stream.tasks.train, train, 1),
                valid=pad_samples(stream.tasks.valid, valid, 1),
            ),
            test=pad_samples(stream.test, test, 0),
            test_member=_fill(stream.test_member, test, 1),
        )
        for stream in sequences
    ]


def pad_training(sequence: TaskSequence, length: int) -> TaskSequence:
    """Return the sequence with so many training samples in every task, padded with mask 0."""
    tasks = sequence.tasks
    return sequence._replace(tasks=tasks._replace(train=pad_samples(tasks.train, length, 1)))


def pad_samples(samples: Samples, length: int, axis: int) -> Samples:
    """Return samples with so many slots along an axis, the further ones with mask 0."""
    return jax.tree.map(lambda leaf: _fill(leaf, length, axis), samples)


def _fill(leaf: Array, length: int, axis: int) -> Array:
    widths = [(0, 0)] * leaf.ndim
    widths[axis] = (0, length - leaf.shape[axis])
    return jnp.pad(leaf, widths)
