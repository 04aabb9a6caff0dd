"""Streams in pieces: one pass, with sharp or blurry changes from some classes to the next.

Learnt by `online_protocol`, nothing tells where a task ends (Aljundi et al. 2019, CVPR, "Task-free
continual learning"); the pieces are only the moments of evaluation. Learnt by a protocol with
boundaries, each piece is a task of its own.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from everlight.checks import NonNegativeInt, PositiveInt, checked
from everlight.continual.base import Task, TaskSequence
from everlight.scenarios.class_incremental import class_incremental
from everlight.scenarios.shapes import stack_samples


@checked
def online_stream(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Sequence[Sequence[int]],
    classes: PositiveInt,
    pieces: PositiveInt = 1,
    blurry: float = 0.0,
    seed: NonNegativeInt = 0,
) -> TaskSequence:
    """A stream of the tasks' samples in random order within each, cut into pieces.

    Training samples come first in the data set and test samples after them; none validates. The
    test sets stay those of the tasks, so that an evaluation after every piece gives a row of as
    many accuracies as there are tasks. A piece introduces the classes whose first sample it holds.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`.
      tasks: the classes of each task, in order; every class in exactly one.
      classes: outputs of the head.
      pieces: into which each task's part of the stream is cut, as equal as it goes.
      blurry: share of each task's samples that is dealt to the others' parts evenly, at random;
        0 is sharp (Bang et al. 2021, CVPR, who take .1 and .3).
      seed: of the order and of who is dealt where.

    Raises:
      ValueError: a share outside [0, 1), fewer than one piece, a task's part of the stream with
        fewer samples than pieces, and as for `class_incremental`; the message names it.
    """
    if not 0 <= blurry < 1:
        raise ValueError(f"blurry={blurry}; give 0 or more, and less than 1")
    sharp = class_incremental(train_labels, test_labels, tasks, classes, valid_fraction=0.0)
    rng = np.random.default_rng(seed)
    class_task = np.asarray(sharp.class_task)
    order = rng.permutation(len(train_labels))
    part = _deal(class_task[train_labels[order]], len(tasks), blurry, rng)
    groups = []
    for task in range(len(tasks)):
        samples = order[part == task]
        if len(samples) < pieces:
            raise ValueError(
                f"task {task} has {len(samples)} samples of the stream; give at most so many pieces"
            )
        groups.extend(np.array_split(samples, pieces))
    labels = [train_labels[group] for group in groups]
    first = np.array([[label in piece for piece in labels] for label in range(classes)]).argmax(1)
    number = np.arange(len(groups))
    stream = Task(
        stack_samples(groups, [piece[:, None] for piece in labels]),
        stack_samples([number[:0]] * len(groups), [number[:0, None]] * len(groups)),
        jnp.asarray(first == number[:, None]),
        jnp.asarray(number),
    )
    return sharp._replace(tasks=stream)


def _deal(
    owner: Int[np.ndarray, "n"], tasks: int, blurry: float, rng: np.random.Generator
) -> Int[np.ndarray, "n"]:
    """The task in whose part of the stream each sample comes; samples in random order."""
    part = owner.copy()
    for task in range(tasks):
        own = np.flatnonzero(owner == task)
        dealt = own[: int(blurry * len(own))]
        others = np.delete(np.arange(tasks), task)
        if len(others):
            part[dealt] = np.resize(rng.permutation(others), len(dealt))
    return part
