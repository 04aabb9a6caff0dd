"""Streams of a user's own arrays: training and test samples of every task.

A stream is a pair of lists, training tasks and test tasks, whose entries are pairs of images and
labels, one per task. The test list may have a single pair, which then tests all tasks. Images are
uint8, `[n, h, w]` or `[n, h, w, c]` with one or three channels; rows of numbers `[n, f]` are
features. Labels are whole numbers or text; a class may be in several tasks.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from everlight.continual.training.labelled_images import LabelledSplit, split_labelled
from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape
from everlight_data.images.user_files.feature_files import MAX_FEATURE, is_unusable
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ImageSet, LoadedImages
from everlight_data.texts import one_line, printable


class Experiences(NamedTuple):
    """Positions of every task's samples in an image set."""

    train: tuple[Int[np.ndarray, "_"], ...]
    test: tuple[Int[np.ndarray, "_"], ...]
    """Test samples of every task; one array for all tasks."""


class UserStream(NamedTuple):
    """Arrays of a user's stream as an image set, and the tasks in it."""

    loaded: LoadedImages
    experiences: Experiences
    features: Features | None = None
    """Features that replace the images, which then have no pixels."""
    version: str = ""
    """Checksum of the user's file."""


def read_stream(reference: str, stream: Sequence[Any]) -> UserStream:
    """Return the stream that a user's file has.

    Args:
      reference: FILE.py:NAME, for messages; NAME is the stream's name.
      stream: training tasks and test tasks, in the form of this module's docstring.

    Raises:
      DataError: the tasks have another form, or their arrays do not fit together; one line.
    """
    train, test = (
        _tasks_of(f"{reference}: {name} tasks", tasks)
        for name, tasks in zip(("training", "test"), stream, strict=True)
    )
    if len(test) not in (1, len(train)):
        raise DataError(
            f"{reference}: {len(train)} training and {len(test)} test tasks; give a pair per task, "
            "or one test pair for all tasks"
        )
    if train[0][0].ndim == 2 and train[0][0].dtype.kind in "fiu":
        _check_features(reference, [values for values, _ in (*train, *test)])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        split = _joined(reference, train, test)
    notes = "".join(f"; {one_line(warning.message)}" for warning in warned)
    ends = np.cumsum([len(labels) for _, labels in [*train, *test]])
    positions = np.split(np.arange(ends[-1]), ends[:-1])
    experiences = Experiences(tuple(positions[: len(train)]), tuple(positions[len(train) :]))
    name = printable(reference.rpartition(":")[2])
    names = tuple(printable(str(label)) for label in split.class_names)
    numbers = split.train_labels.astype(np.int32), split.test_labels.astype(np.int32)
    if split.images.ndim == 2:
        blank = np.zeros((len(split.images), 0, 0, 3), np.uint8)
        note = f"{split.images.shape[1]:,} features of {name}"
        loaded = LoadedImages(ImageSet(name, blank, *numbers, names), f"{name}: {note}{notes}")
        return UserStream(loaded, experiences, Features(split.images, note, per_column=True))
    images = _check_images(reference, split.images)
    _, height, width, channels = images.shape
    gray = ", grey" if channels == 1 else ""
    note = f"{name}: {len(names)} classes at {height}×{width} pixels{gray}{notes}"
    return UserStream(LoadedImages(ImageSet(name, images, *numbers, names), note), experiences)


def _tasks_of(what: str, tasks: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pairs of arrays of tasks."""
    if not isinstance(tasks, tuple | list) or not tasks:
        state = "empty" if isinstance(tasks, tuple | list) else type(tasks).__name__
        raise DataError(f"{what} are {state}; give a list of (images, labels)")
    pairs = []
    for number, pair in enumerate(tasks):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(
                f"{what}: number {number} is {type(pair).__name__}; give (images, labels)"
            )
        images, labels = (_array(f"{what}: number {number}", values) for values in pair)
        fits = images.ndim and labels.ndim == 1 and len(images) == len(labels)
        if not fits or labels.dtype.kind not in "iuU":
            raise DataError(
                f"{what}: number {number} has images {dtype_and_shape(images)} and labels "
                f"{dtype_and_shape(labels)}; give a whole number or a text per image"
            )
        if not len(labels):
            raise DataError(f"{what}: number {number} has no sample; give one or more")
        if pairs and (images.shape[1:], images.dtype) != (pairs[0][0].shape[1:], pairs[0][0].dtype):
            raise DataError(
                f"{what}: number {number} has {dtype_and_shape(images)}, number 0 "
                f"{dtype_and_shape(pairs[0][0])}; give all tasks one type and shape"
            )
        pairs.append((images, labels))
    return pairs


def _array(what: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    # Rows of unequal lengths.
    except (ValueError, TypeError) as error:
        raise DataError(f"{what} is no array ({one_line(error)}); give arrays") from error


def _joined(
    reference: str,
    train: list[tuple[np.ndarray, np.ndarray]],
    test: list[tuple[np.ndarray, np.ndarray]],
) -> LabelledSplit:
    """Return the samples of all tasks, training samples first, with numbered classes."""
    arrays = [
        np.concatenate(parts) for pairs in (train, test) for parts in zip(*pairs, strict=True)
    ]
    images, labels, *tests = arrays
    # NumPy joins int64 and uint64 as float64, whose classes would have names such as 0.0.
    if any(part.dtype.kind not in "iuU" for part in (labels, tests[1])):
        types = sorted({str(part.dtype) for _, part in (*train, *test)})
        raise DataError(
            f"{reference}: labels have the types {', '.join(types)}, which have no integers in "
            "common; give all tasks one type"
        )
    try:
        return split_labelled(images, labels, tuple(tests), np.random.default_rng(0))
    except ArgumentError as error:
        text = str(error).replace("test[0]", "test images").replace("test[1]", "test labels")
        raise DataError(f"{reference}: {one_line(text)}") from error


def _check_images(
    reference: str, images: Shaped[np.ndarray, "n *shape"]
) -> Shaped[np.ndarray, "n h w c"]:
    """Return images with their channels; they must be squares of uint8."""
    with_channels = images[..., None] if images.ndim == 3 else images
    shape = with_channels.shape[1:]
    if (
        images.dtype != np.uint8
        or len(shape) != 3
        or shape[0] != shape[1]
        or shape[2] not in (1, 3)
    ):
        raise DataError(
            f"{reference}: images have {dtype_and_shape(images)}; give squares of uint8, "
            "[n, h, w], [n, h, w, 1] or [n, h, w, 3], or rows of numbers [n, f]"
        )
    return with_channels


def _check_features(reference: str, tasks: list[Shaped[np.ndarray, "n *shape"]]) -> None:
    for number, values in enumerate(tasks):
        wrong = is_unusable(values)
        if np.any(wrong):
            raise DataError(
                f"{reference}: the features of row {np.argwhere(wrong)[0][0]} of pair {number}, "
                f"training tasks first, are not all numbers of at most {MAX_FEATURE:g}; leave it "
                "out, or scale them"
            )
