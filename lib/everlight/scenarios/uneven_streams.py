"""Uneven class-incremental streams: long-tailed classes, blurry boundaries, recurring classes.

A sequence keeps its test and validation sets, one for the classes that each of its tasks brings:
the accuracy on a task is that on these classes, whichever tasks train on their samples.
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from everlight.base import TaskSequence
from everlight.checks import (
    LARGEST,
    Between,
    NonNegativeInt,
    PositiveInt,
    UnitInterval,
    check_range,
    checked,
)
from everlight.errors import Argument, ArgumentError
from everlight.scenarios.shapes import stack_samples

Imbalance = Annotated[float, Between(1, LARGEST)]
_ROUNDING = 1 + 1e-9
"""Factor that keeps a whole number whole where its power is rounded down."""


class _TrainingSamples(NamedTuple):
    """Training samples of all tasks, with the task of each."""

    index: Int[np.ndarray, "n"]
    labels: Int[np.ndarray, "n k"]
    task: Int[np.ndarray, "n"]


@checked
def long_tailed_counts(
    counts: Annotated[Int[np.ndarray, "c"], Between(1)],
    imbalance: Imbalance,
    fewest: PositiveInt = 1,
) -> Int[np.ndarray, "c"]:
    """Return the number of samples of each class in a long-tailed, exponential profile.

    Class k of C has n · imbalance^(−k / (C − 1)) samples, rounded down (Cao et al. 2019, NeurIPS,
    "Learning imbalanced datasets with label-distribution-aware margin loss"). So imbalance is the
    ratio of the first class, the most frequent one, to the last. n is the largest number for which
    every class has enough samples: of equally large classes all samples of the first one are kept.

    Args:
      counts: samples of each class, `[c]`.
      imbalance: ratio of the most to the least frequent class; 1 gives equal classes.
      fewest: samples that every class must keep.

    Raises:
      ValueError: there is no class, or one would keep fewer; then the message has the largest ratio
        that is possible.
    """
    if not len(counts):
        raise ArgumentError("counts is empty; give the samples of one class or more")
    last = len(counts) - 1
    profile = float(imbalance) ** (-np.arange(len(counts)) / max(last, 1))
    sizes = np.floor(np.min(counts / profile) * profile * _ROUNDING).astype(int)
    if sizes[-1] < fewest:
        raise ArgumentError(
            Argument("imbalance", imbalance),
            f" leaves {sizes[-1]} of {counts[-1]} training samples of class {last}",
            remedy=(f"give {_largest_imbalance(counts, fewest)} or less",),
        )
    return sizes


@checked
def long_tailed_samples(
    labels: Int[np.ndarray, "n"],
    classes: PositiveInt,
    imbalance: Imbalance,
    seed: NonNegativeInt = 0,
    fewest: PositiveInt = 1,
) -> Bool[np.ndarray, "n"]:
    """Return True for the training samples of a long-tailed profile, drawn at random by class.

    Args:
      labels: class of each training sample, `[n]`; every class has one.
      classes: number of classes.
      imbalance: ratio of the most to the least frequent class, as in `long_tailed_counts`.
      seed: random seed of the draw.
      fewest: samples that every class must keep.

    Raises:
      ValueError: a label is out of range, a class has no sample, or one would keep fewer than
        `fewest`.
    """
    check_range("labels", labels, 0, classes - 1)
    counts = np.bincount(labels, minlength=classes)
    if not counts.all():
        raise ArgumentError(f"labels has no sample of class {np.argmin(counts)}; give one")
    rng, chosen = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for label, count in enumerate(long_tailed_counts(counts, imbalance, fewest)):
        chosen[rng.permutation(np.flatnonzero(labels == label))[:count]] = True
    return chosen


@checked
def with_recurring_classes(
    sequence: TaskSequence, probability: UnitInterval, seed: NonNegativeInt = 0
) -> TaskSequence:
    """Return a class-incremental sequence in which earlier classes come again in later tasks.

    Every class of an earlier task comes again in each later task with one probability (Hemati et
    al. 2023, CoLLAs, "Class-incremental learning with repetition", the sampling-based generator).
    Its training samples are divided at random, as equally as possible, among the tasks that have
    it, so every sample comes once; that generator draws equally many samples for every task.

    Args:
      sequence: sequence of `class_incremental`.
      probability: probability with which an earlier class is in a task; 1 brings all of them.
      seed: random seed of the tasks and of the division.
    """
    rng, samples = np.random.default_rng(seed), _training_samples(sequence)
    tasks, task = len(sequence.tasks.id), samples.task.copy()
    for label, first in enumerate(np.asarray(sequence.class_task)):
        later = np.arange(first + 1, tasks)
        places = np.append(first, later[rng.random(len(later)) < probability])
        members = rng.permutation(np.flatnonzero(samples.labels[:, 0] == label))
        for place, part in zip(places, np.array_split(members, len(places)), strict=True):
            task[part] = place
    return _regroup(sequence, samples._replace(task=task))


@checked
def with_blurry_boundaries(
    sequence: TaskSequence, share: UnitInterval, seed: NonNegativeInt = 0
) -> TaskSequence:
    """Return a sequence in which every task has a share of its samples from the other tasks.

    It is blurry M of Bang et al. 2021 (CVPR, "Rainbow memory"), with M = 100 · share per cent: this
    share of each task's training samples is distributed evenly at random to the other tasks. With
    tasks of equal size 1 − share of a task's samples are of its own classes. A class counts as
    introduced by the first task that has a sample of it.

    Args:
      sequence: sequence of `class_incremental`, or of `with_recurring_classes`.
      share: share of each task's samples that other tasks get, below 1; the paper has 0.1 and 0.3.
      seed: random seed of the samples and of the tasks that get them.

    Raises:
      ValueError: the share is 1.
    """
    if share == 1:
        raise ArgumentError(Argument("share", share), remedy=("give less than 1",))
    rng, samples = np.random.default_rng(seed), _training_samples(sequence)
    order = rng.permutation(len(samples.task))
    task = samples.task.copy()
    task[order] = distribute(samples.task[order], len(sequence.tasks.id), share, rng)
    return _regroup(sequence, samples._replace(task=task))


def distribute(
    owner: Int[np.ndarray, "n"], tasks: int, share: float, rng: np.random.Generator
) -> Int[np.ndarray, "n"]:
    """Return the task that gets each sample, of samples in random order and their own tasks."""
    part = owner.copy()
    for task in range(tasks):
        members = np.flatnonzero(owner == task)
        moved = members[: int(share * len(members))]
        others = np.delete(np.arange(tasks), task)
        if len(others):
            part[moved] = np.resize(rng.permutation(others), len(moved))
    return part


def largest_uneven_task(sequence: TaskSequence, recurring: float, share: float) -> int:
    """Return a bound of the number of training samples that a task can have for any seed.

    `sequence` has the largest task of all orders of the classes. In a task of recurring classes
    there are at most all samples of its own and half of each other class. Blurry boundaries keep
    1 − share of them, and bring an equal part of the other tasks' share. The bound is no less than
    the largest task of `sequence`.
    """
    counts = np.asarray(sequence.tasks.train.mask).sum(axis=1)
    total, most, tasks = int(counts.sum()), int(counts.max()), len(counts)
    largest = (total + most + len(sequence.class_task)) // 2 if recurring else most
    if share and tasks > 1:
        largest = int((1 - share) * largest + share * total / (tasks - 1)) + tasks + 1
    return min(max(largest, most), total)


def _training_samples(sequence: TaskSequence) -> _TrainingSamples:
    train = sequence.tasks.train
    mask = np.asarray(train.mask)
    return _TrainingSamples(
        np.asarray(train.index)[mask], np.asarray(train.labels)[mask], np.nonzero(mask)[0]
    )


def _regroup(sequence: TaskSequence, samples: _TrainingSamples) -> TaskSequence:
    """Return the sequence whose tasks train on these samples; a task introduces unseen classes."""
    number = np.arange(len(sequence.tasks.id))
    groups = [np.flatnonzero(samples.task == task) for task in number]
    train = stack_samples(
        [samples.index[rows] for rows in groups], [samples.labels[rows] for rows in groups]
    )
    first = np.array(sequence.class_task)
    labels = samples.labels[:, 0]
    for label in np.unique(labels):
        first[label] = samples.task[labels == label].min()
    introduced = jnp.asarray(first == number[:, None])
    return sequence._replace(tasks=sequence.tasks._replace(train=train, classes=introduced))


def _largest_imbalance(counts: Int[np.ndarray, "c"], fewest: int) -> int:
    """Return the largest whole ratio with which every class keeps so many samples, at least 1."""
    last = len(counts) - 1
    if not last or counts[-1] < fewest:
        return 1
    # Class k allows (counts[k] / fewest)^(last / (last - k)), which may exceed the range of floats.
    logarithms = np.log(counts[:-1] / fewest) * last / (last - np.arange(last))
    return max(int(np.exp(logarithms.min()) * _ROUNDING), 1)
