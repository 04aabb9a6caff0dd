"""Class-incremental (Class-IL) sequences from label arrays: every task brings new classes."""

from collections.abc import Sequence
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.base import Samples, Task, TaskSequence
from everlight.checks import NonNegativeInt, PositiveInt, check_range, checked
from everlight.errors import Argument, ArgumentError
from everlight.scenarios.shapes import stack_samples, unpadded_samples


@checked
def class_incremental(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Sequence[Sequence[int]],
    classes: PositiveInt,
    valid_fraction: float | Float[np.ndarray, "c"] = 0.1,
    test_offset: NonNegativeInt | None = None,
) -> TaskSequence:
    """Build a class-incremental sequence whose task t brings the classes `tasks[t]`.

    Test samples follow the training samples in the data set. In every class, the first
    `valid_fraction` of the training samples, in their order, forms the in-task validation set.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`.
      tasks: classes of each task, in order; every class belongs to exactly one task.
      classes: number of outputs of the head.
      valid_fraction: validation fraction of the training samples, rounded down to whole samples
        (in floating point: 0.29 of 100 gives 28); one value or one per class, `[c]`.
      test_offset: index of the first test sample in the data set; None is n. Indices beyond the
        data are not detected, since the function does not receive the images.

    Raises:
      ValueError: a class is in no task or in two, a label is out of range, a fraction is outside
        [0, 1), or a task has no training or test samples. The message names the fault.
    """
    fractions = fractions_of_classes(valid_fraction, classes)
    train_labels, test_labels = np.asarray(train_labels), np.asarray(test_labels)
    class_task = _task_of_classes(tasks, classes)
    for name, labels in (("train_labels", train_labels), ("test_labels", test_labels)):
        check_range(name, labels, 0, classes - 1)
        empty = set(range(len(tasks))) - set(class_task[labels].tolist())
        if empty:
            raise ArgumentError(f"task {min(empty)} has no samples in {name}; give at least one")
    validates = first_of_each_class(train_labels, fractions)
    owner = class_task[train_labels]
    split = []
    for part in (~validates, validates):
        groups = [np.flatnonzero((owner == t) & part) for t in range(len(tasks))]
        split.append(stack_samples(groups, [train_labels[group, None] for group in groups]))
    offset = len(train_labels) if test_offset is None else test_offset
    introduced = class_task == np.arange(len(tasks))[:, None]
    stream = Task(*split, jnp.asarray(introduced), jnp.arange(len(tasks)))
    test = unpadded_samples(offset + np.arange(len(test_labels)), test_labels)
    member = class_task[test_labels] == np.arange(len(tasks))[:, None]
    introduced = jnp.asarray(introduced)
    return TaskSequence(stream, test, jnp.asarray(member), jnp.asarray(class_task), introduced)


@checked
def replace_test_with_validation(sequence: TaskSequence) -> TaskSequence:
    """Return the sequence with validation samples as test sets, for hyper-parameter selection.

    If the original test union is longer, arrays keep its length, so the same compiled programs
    serve both. A test set common to all tasks becomes one per task, with the classes of the common
    one; `class_task` is then the task that introduces a class, and the last one without any.

    Raises:
      ValueError: a task has no validation sample, or a sequence of several test sets has another
        number of tasks.
    """
    tests, tasks = sequence.test_member.shape[0], sequence.tasks.id.shape[0]
    if tests not in (1, tasks):
        raise ArgumentError(
            f"sequence has {tasks} tasks and {tests} test sets; give one per task, or one for all"
        )
    counts = jnp.sum(sequence.tasks.valid.mask, axis=1)
    if not isinstance(counts, jax.core.Tracer) and not counts.all():
        raise ArgumentError(
            f"task {int(jnp.argmin(counts))} has no validation sample to test on; give a larger "
            "valid_fraction, or more samples"
        )
    return validation_as_test(sequence)


def validation_as_test(sequence: TaskSequence) -> TaskSequence:
    """Return `replace_test_with_validation` of a sequence whose tasks may have no such samples."""
    valid = sequence.tasks.valid
    tasks, slots = valid.mask.shape
    test = jax.tree.map(lambda leaf: leaf.reshape(tasks * slots, *leaf.shape[2:]), valid)
    member = sequence.tasks.id[:, None] == jnp.repeat(sequence.tasks.id, slots)
    member &= test.mask
    missing = max(0, sequence.test.mask.shape[0] - tasks * slots)

    def pad(leaf: Array) -> Array:
        return jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1))

    class_task, test_classes = sequence.class_task, sequence.test_classes
    if sequence.test_member.shape[0] < tasks:
        introduced = sequence.tasks.classes
        class_task = jnp.where(introduced.any(axis=0), jnp.argmax(introduced, axis=0), tasks - 1)
        if test_classes is not None:
            test_classes = jnp.broadcast_to(test_classes, introduced.shape)
    return TaskSequence(
        sequence.tasks, jax.tree.map(pad, test), pad(member.T).T, class_task, test_classes
    )


@checked
def without_validation(sequence: TaskSequence) -> TaskSequence:
    """Return the sequence without in-task validation samples; shapes stay the same."""
    valid = sequence.tasks.valid
    none = valid._replace(mask=jnp.zeros_like(valid.mask))
    return sequence._replace(tasks=sequence.tasks._replace(valid=none))


@checked
def relabel_within_tasks(sequence: TaskSequence, tasks: Sequence[Sequence[int]]) -> TaskSequence:
    """Return the domain-incremental form of a class-incremental sequence (van de Ven et al. 2022).

    The label of a sample becomes the position of its class in its task: of digits in tasks of two,
    whether it is the first or the second digit. Every task then has the same labels, and the task
    is not needed to predict them.

    Args:
      sequence: sequence of `class_incremental` with these tasks.
      tasks: classes of each task, equally many.

    Raises:
      ValueError: tasks differ in their numbers of classes, or are not those of the sequence.
    """
    sizes = sorted({len(members) for members in tasks})
    if len(sizes) > 1:
        raise ArgumentError(f"tasks have {sizes} classes; give equally many in every task")
    position = np.zeros(sequence.class_task.shape[0], int)
    if sorted(chain.from_iterable(tasks)) != list(range(len(position))):
        raise ArgumentError(f"tasks do not have the {len(position)} classes of the sequence once")
    class_task = np.asarray(sequence.class_task)
    for number, members in enumerate(tasks):
        other = [member for member in members if class_task[member] != number]
        if other:
            raise ArgumentError(
                f"tasks have class {other[0]} in task {number}, the sequence in task "
                f"{class_task[other[0]]}; give the tasks of the sequence"
            )
        position[list(members)] = np.arange(len(members))

    def relabel(samples: Samples) -> Samples:
        labels = jnp.where(samples.labels < 0, -1, jnp.asarray(position)[samples.labels])
        return samples._replace(labels=labels)

    count, labels = len(tasks), sizes[0]
    stream = sequence.tasks
    return sequence._replace(
        tasks=stream._replace(
            train=relabel(stream.train),
            valid=relabel(stream.valid),
            classes=jnp.broadcast_to(stream.id[:, None] == 0, (count, labels)),
        ),
        test=relabel(sequence.test),
        class_task=jnp.zeros(labels, int),
        test_classes=jnp.ones((count, labels), bool),
    )


@checked
def equal_tasks(order: Sequence[int], count: PositiveInt) -> list[list[int]]:
    """Divide an order of classes into `count` tasks of equal size.

    Raises:
      ValueError: there are no classes, their number is not divisible by `count`, a class comes
        twice or is negative.
    """
    check_distinct("order", order)
    if not len(order) or min(order) < 0:
        raise ArgumentError(f"order has classes {list(order)[:5]}; give at least one, from 0 on")
    if len(order) % count:
        raise ArgumentError(
            f"{len(order)} classes do not divide into {count} equal tasks; give a divisor"
        )
    return np.reshape(order, (count, -1)).tolist()


def check_distinct(name: str, order: Sequence[int]) -> None:
    """Check that no class occurs twice.

    Raises:
      ValueError: one does; the message names it.
    """
    values, counts = np.unique(np.asarray(order), return_counts=True)
    if (counts > 1).any():
        raise ArgumentError(f"{name} has class {values[counts > 1][0]} twice; give each class once")


def _task_of_classes(tasks: Sequence[Sequence[int]], classes: int) -> Int[np.ndarray, "c"]:
    class_task = np.full(classes, -1)
    for number, members in enumerate(tasks):
        for member in members:
            if not 0 <= member < classes:
                raise ArgumentError(
                    f"task {number} has class {member}; classes are 0 to {classes - 1}"
                )
            if class_task[member] >= 0:
                raise ArgumentError(
                    f"class {member} is in task {class_task[member]} and {number}; keep it in one"
                )
            class_task[member] = number
    if np.any(class_task < 0):
        raise ArgumentError(f"class {np.argmin(class_task)} is in no task; put it in one")
    return class_task


def fractions_of_classes(
    valid_fraction: float | Float[np.ndarray, "c"], classes: int
) -> Float[np.ndarray, "c"]:
    """Return the validation fraction of each class.

    Raises:
      ValueError: a fraction is outside [0, 1), or their number is not that of the classes.
    """
    fractions = np.asarray(valid_fraction, float)
    if fractions.shape not in ((), (classes,)):
        raise ArgumentError(
            f"valid_fraction has {len(fractions)} values for {classes} classes; give one per "
            "class, or a single number"
        )
    fractions = np.broadcast_to(fractions, classes)
    wrong = fractions[~((fractions >= 0) & (fractions < 1))]
    if len(wrong):
        raise ArgumentError(
            Argument("valid_fraction", float(wrong[0])),
            remedy=("give 0 or more, and less than 1",),
        )
    return fractions


def first_of_each_class(
    labels: Int[np.ndarray, "n"], fractions: Float[np.ndarray, "c"]
) -> Bool[np.ndarray, "n"]:
    """Return True for the first samples of each class, as large a part of it as its fraction."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen[members[: int(fractions[label] * len(members))]] = True
    return chosen
