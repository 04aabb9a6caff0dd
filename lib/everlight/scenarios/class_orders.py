"""Class-incremental sequences whose order of classes is drawn from a seed."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from everlight.base import TaskSequence
from everlight.checks import NonNegativeInt, PositiveInt, UnitInterval, check_range, checked
from everlight.errors import Argument, ArgumentError
from everlight.scenarios.class_incremental import (
    check_distinct,
    class_incremental,
    fractions_of_classes,
    relabel_within_tasks,
    replace_test_with_validation,
    validation_as_test,
)
from everlight.scenarios.shapes import pad_sequences, pad_training
from everlight.scenarios.streams import recurring_classes
from everlight.scenarios.uneven_streams import (
    largest_uneven_task,
    with_blurry_boundaries,
    with_recurring_classes,
)

Fractions = float | Float[np.ndarray, "c"]
Tasks = PositiveInt | tuple[PositiveInt, ...]


@checked
def divide_classes(order: Sequence[int], tasks: Tasks) -> list[list[int]]:
    """Divide an order of classes into tasks, in order.

    Args:
      order: all classes.
      tasks: number of tasks of as equal sizes as possible, the first ones larger; or the number of
        classes of every task.

    Raises:
      ValueError: the sizes do not sum to the number of classes, or a class comes twice.
    """
    check_distinct("order", order)
    if not isinstance(tasks, tuple):
        return [part.tolist() for part in np.array_split(np.asarray(order), int(tasks))]
    if sum(tasks) != len(order):
        raise ArgumentError(
            Argument("tasks", tasks),
            f" sum to {sum(tasks)}, not to {len(order)} classes",
            remedy=("give sizes that do",),
        )
    return [part.tolist() for part in np.split(np.asarray(order), np.cumsum(tasks)[:-1])]


@checked
def seeded_class_incremental(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Tasks,
    classes: PositiveInt,
    seed: NonNegativeInt,
    valid_fraction: Fractions = 0.0,
) -> TaskSequence:
    """Build a class-incremental sequence with a random order of classes.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`; test samples follow the training samples in the
        data set.
      tasks: number of tasks, or the number of classes of every task, as in `divide_classes`.
      classes: number of outputs of the head.
      seed: random seed of the order.
      valid_fraction: validation fraction of the training samples, one value or one per class,
        `[c]`.

    Raises:
      ValueError: as `class_incremental`; there are more tasks than classes, for example.
    """
    cut = divide_classes(_seeded_order(classes, seed), tasks)
    return class_incremental(train_labels, test_labels, cut, classes, valid_fraction)


@checked
def class_incremental_by_seed(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Tasks,
    classes: PositiveInt,
    natural: bool = False,
    valid_fraction: Fractions = 0.0,
    cycles: PositiveInt = 1,
    within_tasks: bool = False,
    recurring: UnitInterval = 0.0,
    blurry: UnitInterval = 0.0,
) -> Callable[[int, bool], TaskSequence]:
    """Return a function that builds the sequence of a seed; all its sequences have one shape.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`.
      tasks: number of tasks, or the number of classes of every task, as in `divide_classes`.
      classes: number of outputs of the head.
      natural: take the classes in the order of their numbers, whatever the seed.
      valid_fraction: validation fraction, one value or one per class, `[c]`.
      cycles: times that the tasks are gone through; above 1 each time brings other training samples
        of the classes (`recurring_classes`), which the seed divides.
      within_tasks: label samples by the position of their class in its task, which makes the
        sequences domain-incremental (`relabel_within_tasks`); without `cycles`.
      recurring: probability with which an earlier class comes again in a task
        (`with_recurring_classes`).
      blurry: share of each task's samples that other tasks get (`with_blurry_boundaries`), below 1.

    Returns:
      Function from a seed, and whether validation samples replace the test sets
      (`replace_test_with_validation`), to the sequence.

    Raises:
      ValueError: a label is out of range, tasks differ in size or `cycles` is above 1 although
        `within_tasks`, or `recurring` or `blurry` is above 0 although one of both is given; see
        also `class_incremental`.
    """
    check_range("train_labels", train_labels, 0, classes - 1)
    check_range("test_labels", test_labels, 0, classes - 1)
    if within_tasks and cycles > 1:
        raise ArgumentError(f"within_tasks=True and cycles={cycles}; leave one of them out")
    if (within_tasks or cycles > 1) and (recurring or blurry):
        raise ArgumentError(
            f"recurring={recurring} and blurry={blurry} with within_tasks={within_tasks} and "
            f"cycles={cycles}; leave the former or the latter out"
        )

    def order_sequence(order: list[int], seed: int) -> TaskSequence:
        cut = divide_classes(order, tasks)
        if cycles == 1:
            by_class = class_incremental(train_labels, test_labels, cut, classes, valid_fraction)
            return relabel_within_tasks(by_class, cut) if within_tasks else by_class
        return recurring_classes(
            train_labels, test_labels, cut * cycles, classes, seed, valid_fraction
        )

    def seed_sequence(seed: int) -> TaskSequence:
        order = list(range(classes)) if natural else _seeded_order(classes, seed)
        sequence = order_sequence(order, seed)
        if recurring:
            sequence = with_recurring_classes(sequence, recurring, seed)
        return with_blurry_boundaries(sequence, blurry, seed) if blurry else sequence

    counts = np.bincount(train_labels, minlength=classes)
    validation = (fractions_of_classes(valid_fraction, classes) * counts).astype(int)
    orders = [list(range(classes))]
    if not natural:
        # The largest training task need not have the most validation samples.
        orders = [_order_of_largest_task(part, tasks) for part in (counts - validation, validation)]
    largest, most_validation = order_sequence(orders[0], 0), order_sequence(orders[-1], 0)
    if recurring or blurry:
        largest = pad_training(largest, largest_uneven_task(largest, recurring, blurry))
    shapes = [largest]
    if validation.any():
        shapes += [most_validation, validation_as_test(most_validation)]

    def sequence(seed: int, on_validation: bool = False) -> TaskSequence:
        drawn = seed_sequence(seed)
        return pad_sequences(
            [replace_test_with_validation(drawn) if on_validation else drawn, *shapes]
        )[0]

    return sequence


@checked
def validation_fractions(
    train_labels: Int[np.ndarray, "n"], classes: PositiveInt, fraction: UnitInterval
) -> Float[np.ndarray, "c"]:
    """Return the fraction of each class, raised so that every class has a validation sample.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      classes: number of classes; each has at least two training samples.
      fraction: wanted validation fraction of every class.

    Raises:
      ValueError: a label is out of range, or a class has fewer than two training samples.
    """
    check_range("train_labels", train_labels, 0, classes - 1)
    counts = np.bincount(train_labels, minlength=classes)
    if counts.min() < 2:
        raise ArgumentError(
            f"train_labels has {counts.min()} samples of class {np.argmin(counts)}; give two or "
            "more, one to train and one to validate"
        )
    # Slightly more than one sample, whatever rounding makes of one over the number of samples.
    return np.maximum(fraction, (1 + 1e-6) / counts)


def _seeded_order(classes: int, seed: int) -> list[int]:
    """Return the order of classes that a seed draws."""
    return np.random.default_rng(seed).permutation(classes).tolist()


def _order_of_largest_task(counts: Int[np.ndarray, "c"], tasks: Tasks) -> list[int]:
    """Return an order with the largest task that any order can have: its classes are the largest.

    The other classes follow by falling number of samples.
    """
    by_size = np.argsort(-counts, kind="stable")
    sizes = [len(members) for members in divide_classes(range(len(counts)), tasks)]
    place = int(np.argmax(sizes))
    before, most = sum(sizes[:place]), sizes[place]
    return np.insert(by_size[most:], before, by_size[:most]).tolist()
