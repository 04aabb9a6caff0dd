"""Streams beyond disjoint classes: transformed inputs, permuted labels, recurrence, few shots.

A transformed stream stores every image once. Sample i of task t has the index t · count + i, where
count is the number of stored images; `transform_inputs` gathers the image i and applies the
transform of task t inside the compiled program. A replayed sample thus keeps the transform of its
own task. The images have as many indices as tasks (`StoredImages.copies`).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from everlight.base import Setup, TaskSequence
from everlight.checks import (
    FINITE,
    NonNegativeInt,
    NotEmpty,
    PositiveInt,
    UnitInterval,
    check_range,
    checked,
)
from everlight.errors import Argument, ArgumentError
from everlight.scenarios.class_incremental import first_of_each_class, fractions_of_classes
from everlight.scenarios.experiences import experience_sequence

Transform = Callable[[Float[Array, "*shape"], Int[Array, ""]], Float[Array, "*shape"]]
"""Function from an input and the number of its task to the transformed input."""


class Stream(NamedTuple):
    """Inputs and labels of the tasks of a domain-incremental stream."""

    transform: Transform
    label_maps: Int[np.ndarray, "tasks c"] | None = None
    """New label of each class in each task; None keeps the labels."""


@checked
def domain_incremental(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: PositiveInt,
    classes: PositiveInt,
    train_samples: PositiveInt | None = None,
    test_samples: PositiveInt | None = None,
    label_maps: Int[np.ndarray, "tasks c"] | None = None,
    seed: NonNegativeInt = 0,
    valid_fraction: UnitInterval | Float[np.ndarray, "c"] = 0.0,
) -> TaskSequence:
    """Build a sequence whose tasks all have all classes; `transform_inputs` transforms by task.

    Test samples follow the training samples in the data set, which has n + m samples.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`.
      tasks: number of tasks.
      classes: number of outputs of the head.
      train_samples: training samples of each task, redrawn without replacement; None is all.
      test_samples: test samples of each task, redrawn; None is all.
      label_maps: new label of each class in each task (`permuted_labels`); None keeps the labels.
      seed: random seed of the draws.
      valid_fraction: validation fraction of the training samples, the first ones of each class,
        rounded down; one value or one per class, `[c]` (`validation_fractions`).

    Raises:
      ValueError: a label is out of range, `label_maps` has another shape or a label out of range,
        a fraction is outside [0, 1), or more samples are wanted than there are.
    """
    fractions = fractions_of_classes(valid_fraction, classes)
    rng = np.random.default_rng(seed)
    count = len(train_labels) + len(test_labels)
    maps = np.tile(np.arange(classes), (tasks, 1)) if label_maps is None else label_maps
    if maps.shape != (tasks, classes):
        raise ArgumentError(f"label_maps has shape {maps.shape}; give [{tasks}, {classes}]")
    check_range("label_maps", maps, 0, classes - 1)
    _check_labels(train_labels, test_labels, classes)
    validates = first_of_each_class(train_labels, fractions)
    all_labels = np.concatenate([train_labels, test_labels])
    index, labels = {}, {}
    for name, places, limit in (
        ("train", np.flatnonzero(~validates), train_samples),
        ("test", np.arange(len(train_labels), count), test_samples),
        ("valid", np.flatnonzero(validates), None),
    ):
        if limit is not None and limit > len(places):
            raise ArgumentError(
                Argument(f"{name}_samples", limit),
                remedy=(f"give {len(places)} or fewer, or None",),
            )
        drawn = [places[_draw(len(places), limit, rng)] for _ in range(tasks)]
        index[name] = [task * count + rows for task, rows in enumerate(drawn)]
        labels[name] = [maps[task][all_labels[rows]] for task, rows in enumerate(drawn)]
    return experience_sequence(
        train=index["train"],
        train_labels=labels["train"],
        test=index["test"],
        test_labels=labels["test"],
        classes=classes,
        valid=index["valid"],
        valid_labels=labels["valid"],
    )


@checked
def transform_inputs(setup: Setup, count: PositiveInt, transform: Transform) -> Setup:
    """Return the setup whose inputs are transformed by the task of their index.

    Args:
      setup: setup over `count` stored samples.
      count: number of stored samples, test samples included.
      transform: function from an input and its task's number to the input.
    """

    def gather(index: Int[Array, "b"], key: PRNGKeyArray | None) -> Float[Array, "b *shape"]:
        return jax.vmap(transform)(setup.gather(index % count, key), index // count)

    return setup._replace(gather=gather)


@checked
def permuted_pixels(tasks: PositiveInt, pixels: PositiveInt, key: PRNGKeyArray) -> Transform:
    """Return the transform of permuted MNIST (Goodfellow et al. 2014): one permutation per task.

    The first task keeps the order of the pixels. Channels of a pixel stay together.

    Args:
      tasks: number of tasks. A traced task of the function that is not below it is the last one.
      pixels: height times width.
      key: random key of the permutations.

    Raises:
      ValueError: the returned function gets a task that is out of range.
    """
    keys = jax.random.split(key, tasks)
    orders = jax.vmap(lambda key: jax.random.permutation(key, pixels))(keys)
    orders = orders.at[0].set(jnp.arange(pixels))

    def permute(image: Float[Array, "h w c"], task: Int[Array, ""]) -> Float[Array, "h w c"]:
        check_range("task", task, 0, tasks - 1)
        return image.reshape(pixels, -1)[orders[task]].reshape(image.shape)

    return permute


@checked
def rotated(
    degrees: Annotated[Float[np.ndarray, "tasks"] | Float[Array, "tasks"], FINITE, NotEmpty],
) -> Transform:
    """Return the transform of rotated MNIST (Lopez-Paz and Ranzato 2017): one angle per task.

    Images are rotated counter-clockwise about their centre, with bilinear interpolation. What comes
    from outside is 0.

    Args:
      degrees: angle of each task, in degrees. A traced task of the function that is not below
        their number is the last one.

    Raises:
      ValueError: the returned function gets a task that is out of range.
    """
    angles = jnp.deg2rad(jnp.asarray(degrees, jnp.float32))

    def rotate(image: Float[Array, "h w c"], task: Int[Array, ""]) -> Float[Array, "h w c"]:
        check_range("task", task, 0, len(angles) - 1)
        height, width = image.shape[:2]
        cosine, sine = jnp.cos(angles[task]), jnp.sin(angles[task])
        down = (jnp.arange(height) - (height - 1) / 2)[:, None]
        right = (jnp.arange(width) - (width - 1) / 2)[None, :]
        rows = cosine * down + sine * right + (height - 1) / 2
        columns = cosine * right - sine * down + (width - 1) / 2

        def channel(values: Float[Array, "h w"]) -> Float[Array, "h w"]:
            return jax.scipy.ndimage.map_coordinates(values, [rows, columns], order=1)

        return jax.vmap(channel, in_axes=-1, out_axes=-1)(image)

    return rotate


@checked
def permuted_labels(
    tasks: PositiveInt, classes: PositiveInt, seed: NonNegativeInt
) -> Int[np.ndarray, "tasks c"]:
    """Return a random permutation of the labels for each task; the first keeps them.

    Args:
      tasks: number of tasks.
      classes: number of classes.
      seed: random seed of the permutations.
    """
    rng = np.random.default_rng(seed)
    others = [rng.permutation(classes) for _ in range(tasks - 1)]
    return np.stack([np.arange(classes), *others])


@checked
def named_stream(
    name: str,
    tasks: PositiveInt,
    classes: PositiveInt,
    pixels: NonNegativeInt,
    seed: NonNegativeInt,
) -> Stream:
    """Return the transform and the labels of a domain-incremental stream by its name.

    Args:
      name: permuted (pixels), rotated (by angles from 0 up to 180 degrees) or permuted-labels.
      tasks: number of tasks.
      classes: number of classes.
      pixels: height times width; not read for the other streams.
      seed: random seed of the permutations.

    Raises:
      ValueError: there is no such stream.
    """
    degrees = np.linspace(0, 180, tasks, endpoint=False)
    transform = _named_transform(name, tasks, pixels, jax.random.key(seed), degrees)
    permutes = name == "permuted-labels"
    return Stream(transform, permuted_labels(tasks, classes, seed) if permutes else None)


@checked
def draw_transform(
    name: str, tasks: PositiveInt, pixels: NonNegativeInt, key: PRNGKeyArray
) -> Transform:
    """Return a stream's transform with permutations or angles that a random key draws.

    As in Mammoth (aimagelab/mammoth), the angles are uniform in [0, 180) degrees and in no order,
    the first task's included. The first task keeps the order of the pixels; in Mammoth it is
    permuted too.

    Args:
      name: permuted (pixels), rotated, or permuted-labels, which leaves inputs as they are.
      tasks: number of tasks.
      pixels: height times width; not read for the other streams.
      key: random key, which may be traced.

    Raises:
      ValueError: there is no such stream.
    """
    degrees = jax.random.uniform(key, tasks, maxval=180.0)
    return _named_transform(name, tasks, pixels, key, degrees)


@checked
def recurring_classes(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Sequence[Sequence[int]],
    classes: PositiveInt,
    seed: NonNegativeInt = 0,
    valid_fraction: UnitInterval | Float[np.ndarray, "c"] = 0.0,
) -> TaskSequence:
    """Build a sequence in which classes may recur, each time with other samples.

    A class's training samples are divided in random order, as equally as possible, among the tasks
    that have it. A task is tested, and validated, on all test or validation samples of its classes.

    Args:
      train_labels: class of each training sample, `[n]`, in 0..classes-1.
      test_labels: class of each test sample, `[m]`; they follow the training samples.
      tasks: classes of each task, in order.
      classes: number of outputs of the head.
      seed: random seed of the division.
      valid_fraction: validation fraction of the training samples, the first ones of each class,
        rounded down; one value or one per class, `[c]`.

    Raises:
      ValueError: a class is out of range, has fewer training samples than tasks, or no test sample;
        or a task has no class, or a fraction is outside [0, 1).
    """
    if not all(map(len, tasks)):
        raise ArgumentError("tasks holds a task without a class; leave it out")
    fractions = fractions_of_classes(valid_fraction, classes)
    _check_labels(train_labels, test_labels, classes)
    rng = np.random.default_rng(seed)
    validates = first_of_each_class(train_labels, fractions)
    parts: list[list[np.ndarray]] = [[] for _ in tasks]
    for label in sorted({label for task in tasks for label in task}):
        members = np.flatnonzero((train_labels == label) & ~validates)
        places = [number for number, task in enumerate(tasks) if label in task]
        if len(members) < len(places) or label not in test_labels:
            raise ArgumentError(
                f"class {label} is in {len(places)} tasks and has {len(members)} training and "
                f"{np.sum(test_labels == label)} test samples; give one per task and one to test"
            )
        divided = np.array_split(rng.permutation(members), len(places))
        for position, samples in zip(places, divided, strict=True):
            parts[position].append(samples)
    train = [np.concatenate(samples) for samples in parts]
    valid = [np.flatnonzero(np.isin(train_labels, list(task)) & validates) for task in tasks]
    return _tested_by_class(train, train_labels, test_labels, tasks, classes, valid)


@checked
def with_shots(
    sequence: TaskSequence, shots: PositiveInt, seed: NonNegativeInt = 0
) -> TaskSequence:
    """Return a sequence with few training samples of each class after the first task.

    Few-shot class-incremental learning (Tao et al. 2020, CVPR) is this of `class_incremental`; the
    paper has 5 shots. A class with fewer samples keeps them, and one that comes again has other
    shots each time. Validation and test samples stay.

    Args:
      sequence: sequence with one label per sample.
      shots: training samples of each class of a later task.
      seed: random seed of the draw.
    """
    rng, train = np.random.default_rng(seed), sequence.tasks.train
    mask, labels = np.array(train.mask), np.asarray(train.labels[..., 0])
    for chosen, task_labels in zip(mask[1:], labels[1:], strict=True):
        for label in np.unique(task_labels[chosen]):
            members = np.flatnonzero(chosen & (task_labels == label))
            chosen[rng.permutation(members)[shots:]] = False
    train = train._replace(mask=jnp.asarray(mask))
    return sequence._replace(tasks=sequence.tasks._replace(train=train))


@checked
def noisy_labels(
    labels: Int[np.ndarray, "n"], classes: PositiveInt, rate: UnitInterval, seed: NonNegativeInt = 0
) -> Int[np.ndarray, "n"]:
    """Return the labels with symmetric noise: a share of them is one of the other classes.

    Exactly `rate` of the samples, rounded, have a wrong label, drawn uniformly among the others.

    Args:
      labels: class of each sample, `[n]`.
      classes: number of classes.
      rate: share of wrong labels.
      seed: random seed of the draw.

    Raises:
      ValueError: a label is out of range, or a label is to be wrong with one class.
    """
    check_range("labels", labels, 0, classes - 1)
    rng = np.random.default_rng(seed)
    wrong = rng.choice(len(labels), round(rate * len(labels)), replace=False)
    if classes == 1 and len(wrong):
        raise ArgumentError(
            Argument("rate", rate), " with one class", remedy=("give 0, or 2 classes or more",)
        )
    noisy = np.array(labels)
    noisy[wrong] = (noisy[wrong] + rng.integers(1, max(classes, 2), len(wrong))) % classes
    return noisy


def _named_transform(
    name: str, tasks: int, pixels: int, key: PRNGKeyArray, degrees: ArrayLike
) -> Transform:
    if name == "permuted":
        return permuted_pixels(tasks, pixels, key)
    if name == "rotated":
        return rotated(degrees)
    if name == "permuted-labels":
        return lambda image, task: image
    raise ArgumentError(f"{name!r} is not a stream; give permuted, rotated or permuted-labels")


def _check_labels(
    train_labels: Int[np.ndarray, "n"], test_labels: Int[np.ndarray, "m"], classes: int
) -> None:
    # A negative label would mean one of the last classes as an index.
    for name, labels in (("train_labels", train_labels), ("test_labels", test_labels)):
        if not len(labels):
            raise ArgumentError(f"{name} is empty; give one sample or more")
        check_range(name, labels, 0, classes - 1)


def _draw(count: int, limit: int | None, rng: np.random.Generator) -> Int[np.ndarray, "k"]:
    return np.arange(count) if limit is None else rng.permutation(count)[:limit]


def _tested_by_class(
    train: list[Int[np.ndarray, "_"]],
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    tasks: Sequence[Sequence[int]],
    classes: int,
    valid: list[Int[np.ndarray, "_"]] | None = None,
) -> TaskSequence:
    """Return the sequence of these training samples, each task tested on all of its classes."""
    test = [np.flatnonzero(np.isin(test_labels, list(task))) for task in tasks]
    return experience_sequence(
        train,
        [train_labels[rows] for rows in train],
        [len(train_labels) + rows for rows in test],
        [test_labels[rows] for rows in test],
        classes,
        valid,
        None if valid is None else [train_labels[rows] for rows in valid],
    )
