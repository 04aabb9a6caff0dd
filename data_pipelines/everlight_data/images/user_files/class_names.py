"""Class names and numbers of a user's labels, refused where they are missing or hardly differ."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight.data_checks import as_number, equal_numbers, is_missing
from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape
from everlight_data.texts import printable

MIN_IMAGES = 3
"""Smallest number of images of a class: to train, to select hyper-parameters and to test."""
MIN_CLASSES = 2
"""Smallest number of classes of a set that is learned by itself."""


def class_numbers(
    source: Path, labels: Sequence[str], fewest: int = MIN_IMAGES, classes: int = MIN_CLASSES
) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """Return the classes, in order, and the number of each label's class.

    Classes are sorted as numbers if all names are numbers, and else by their printable names.

    Args:
      source: origin of the labels, for error messages.
      labels: label of each image.
      fewest: smallest number of images of a class.
      classes: smallest number of classes.

    Raises:
      DataError: a label is empty, two labels hardly differ, a class has fewer images than `fewest`,
        or there are fewer classes than `classes`.
    """
    counts = Counter(labels)
    check_distinct(source, list(counts))
    _check_counts(source, counts, fewest, classes)
    numeric = all(as_number(label) is not None for label in counts)
    ordered = sorted(counts, key=as_number if numeric else printable)
    place = {label: number for number, label in enumerate(ordered)}
    return tuple(map(printable, ordered)), np.array([place[x] for x in labels], np.int32)


def check_present(source: Path, labels: Sequence[str]) -> None:
    """Refuse labels that are empty or the text of a missing value, such as nan, NA or None.

    Raises:
      DataError: a label is missing; the message has the number of them and the first row.
    """
    missing = [row for row, label in enumerate(labels) if is_missing(label)]
    if missing:
        first = labels[missing[0]]
        raise DataError(
            f"{source}: row {missing[0]} has {first!a}, an empty label or a missing value, the "
            f"first of {len(missing):,} such rows. Leave these rows out; if it is a class, give it "
            "another name."
        )


def check_shape(
    path: Path, labels: np.ndarray, what: str, shape: tuple[int, ...], remedy: str
) -> None:
    """Refuse an array of labels that does not have a text or an integer per row of another array.

    Raises:
      DataError: the labels have another shape or type.
    """
    if labels.shape != shape[:1] or labels.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: labels have {dtype_and_shape(labels)}, {what} shape {shape}. {remedy}"
        )


def check_distinct(source: Path, labels: Sequence[str]) -> None:
    """Refuse names of classes that are empty or hardly differ, such as Cat and cat.

    Args:
      source: origin of the names, for error messages.
      labels: different names.

    Raises:
      DataError: the message has the first two names that hardly differ.
    """
    alike: dict[str, list[str]] = {}
    for label in labels:
        if not label.strip():
            raise DataError(f"{source}: an empty label. Every image needs a class.")
        alike.setdefault(_comparable(label), []).append(label)
    for twins in alike.values():
        if len(twins) > 1:
            raise DataError(
                f"{source}: the classes {' and '.join(f'{name!a}' for name in twins[:2])} differ "
                "only in case, spaces, invisible characters or the encoding of accents. Give one "
                "class one name."
            )
    twins = equal_numbers(labels)
    if twins:
        raise DataError(
            f"{source}: the classes {' and '.join(f'{name!a}' for name in twins)} are one number. "
            "Write it in one way, or give the classes names that are not numbers."
        )


def _comparable(label: str) -> str:
    """Return what names of one class have in common: no case, spaces or invisible characters.

    Single letters keep their case, since data sets of characters have both.
    """
    visible = "".join(char for char in label if unicodedata.category(char) != "Cf")
    text = " ".join(unicodedata.normalize("NFC", visible).split())
    return printable(text.casefold() if len(text) > 1 else text)


def _check_counts(source: Path, counts: Counter, fewest: int, classes: int) -> None:
    if len(counts) < classes:
        raise DataError(f"{source} holds one class. Give two or more.")
    few = [label for label, count in counts.items() if count < fewest]
    if few:
        raise DataError(
            f"{source}: the class {few[0]!a} has {counts[few[0]]} image"
            f"{'s' * (counts[few[0]] > 1)}"
            f"{f', and {len(few) - 1} more have too few' if len(few) > 1 else ''}; a class needs "
            f"{fewest}, to train, to select hyper-parameters and to test."
        )
