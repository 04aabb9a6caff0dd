"""Online class-incremental streams: one pass, with sharp or blurry task boundaries.

The stream is cut into pieces. Under `online_protocol`, learning is task-free (Aljundi et al. 2019,
CVPR, "Task-free continual learning"): the pieces only determine when to evaluate. Under a protocol
with boundaries, each piece is a task of its own.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from everlight.base import Task, TaskSequence
from everlight.checks import NonNegativeInt, PositiveInt, ProperFraction, checked
from everlight.errors import ArgumentError
from everlight.scenarios.class_incremental import class_incremental
from everlight.scenarios.shapes import stack_samples
from everlight.scenarios.uneven_streams import distribute


@checked
def online_stream(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Sequence[Sequence[int]],
    classes: PositiveInt,
    pieces: PositiveInt = 1,
    blurry: ProperFraction = 0.0,
    seed: NonNegativeInt = 0,
) -> TaskSequence:
    """Build a stream of the tasks' samples, in random order within each task, cut into pieces.

    Test samples follow the training samples in the data set; there is no validation. The test sets
    are those of the tasks, so an evaluation after every piece gives one accuracy per task. A piece
    introduces the classes whose first sample it holds; a class without training samples is
    introduced by the first piece of its task.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`.
      tasks: classes of each task, in order; every class belongs to exactly one task.
      classes: number of outputs of the head.
      pieces: number of nearly equal pieces into which each task's part of the stream is cut.
      blurry: fraction of each task's samples distributed evenly at random to the other tasks'
        parts. 0 gives sharp boundaries (Bang et al. 2021, CVPR, use 0.1 and 0.3).
      seed: random seed of the order and the distribution.

    Raises:
      ValueError: `blurry` is outside [0, 1), `pieces` is below 1, or a task's part of the stream
        has fewer samples than pieces. Or as for `class_incremental`; the message names the fault.
    """
    sharp = class_incremental(train_labels, test_labels, tasks, classes, valid_fraction=0.0)
    rng = np.random.default_rng(seed)
    class_task = np.asarray(sharp.class_task)
    order = rng.permutation(len(train_labels))
    part = distribute(class_task[train_labels[order]], len(tasks), blurry, rng)
    groups = []
    for task in range(len(tasks)):
        samples = order[part == task]
        if len(samples) < pieces:
            raise ArgumentError(
                f"task {task} has {len(samples)} samples; give at most that many pieces"
            )
        groups.extend(np.array_split(samples, pieces))
    labels = [train_labels[group] for group in groups]
    held = np.array([[label in piece for piece in labels] for label in range(classes)])
    first = np.where(held.any(axis=1), held.argmax(axis=1), class_task * pieces)
    number = np.arange(len(groups))
    stream = Task(
        stack_samples(groups, [piece[:, None] for piece in labels]),
        stack_samples([number[:0]] * len(groups), [number[:0, None]] * len(groups)),
        jnp.asarray(first == number[:, None]),
        jnp.asarray(number),
    )
    return sharp._replace(tasks=stream)
