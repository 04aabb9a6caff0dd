"""Reader of files of features: an `.npz` of `features` `[n, f]` and `labels` `[n]`.

Features are numbers; labels are whole numbers or the names of classes. A row belongs to an image.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Shaped

from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape, read_npz, take
from everlight_data.images.user_files.class_names import check_present, check_shape, class_numbers
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ImageSet, every_nth, split_off
from everlight_data.texts import printable

MAX_FEATURE = 1e30
"""Largest magnitude of a feature: differences from the mean stay finite in 32 bits."""
_REMEDY = (
    "Give --features efficientnet-lite0, or an .npz with features [n, f] and labels [n], text or "
    "integers."
)


class FeatureFile(NamedTuple):
    """Arrays of a file of features as stored."""

    path: Path
    values: Shaped[np.ndarray, "n f"]
    labels: np.ndarray
    others: str
    """Names of the arrays that are not read."""


class LabelledFeatures(NamedTuple):
    """Features without images, and a set with their labels and images of no pixels."""

    features: Features
    images: ImageSet
    note: str
    """Description of what was read, for the report."""


def features_of_images(file: str, images: ImageSet) -> Features:
    """Read the features of an image set, in its order.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file cannot be used, or its labels are not those of the images.
    """
    path, values, labels, _ = _read_features(file)
    numbers = np.concatenate([images.train_labels, images.test_labels])
    names, texts = np.array(images.class_names)[numbers], labels.astype(str)
    if labels.dtype.kind == "U" or np.array_equal(texts, names):
        labels, expected = texts, names
    else:
        expected = numbers
    needed = f"the benchmark's {len(expected):,} images, in its order"
    if len(labels) != len(expected):
        raise DataError(f"{path} has {len(labels):,} rows; give a row for each of {needed}.")
    wrong = np.flatnonzero(labels != expected)
    if len(wrong):
        raise DataError(
            f"{path}: row {wrong[0]} is labelled {printable(str(labels[wrong[0]]))!r}, the image "
            f"is {printable(str(expected[wrong[0]]))!r}; give {needed}."
        )
    return _note_features(path, values)


def features_alone(file: str, test_every: int) -> LabelledFeatures:
    """Read features without images.

    Args:
      file: path of the .npz.
      test_every: interval of test rows: every N-th row of a class.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file cannot be used.
    """
    path, values, labels, others = _read_features(file)
    texts = [str(label) for label in labels.tolist()]
    check_present(path, texts)
    class_names, number = class_numbers(path, texts)
    test = every_nth(number, test_every)
    rows = split_off(printable(path.name), values, number, test, class_names)
    images = rows._replace(images=np.zeros((len(number), 0, 0, 3), np.uint8))
    note = (
        f"{printable(path.name)}: {len(number):,} rows of {len(class_names)} classes, of which "
        f"{len(images.test_labels):,} test (of a class one in {test_every})"
        f"{f'; arrays not read: {others}' if others else ''}"
    )
    return LabelledFeatures(_note_features(path, rows.images), images, note)


def is_unusable(values: Shaped[np.ndarray, "n f"]) -> Bool[np.ndarray, "n f"]:
    """Return True at features that are not numbers of at most `MAX_FEATURE`."""
    # The limit itself would be infinite in 16 bits.
    limit = MAX_FEATURE if values.dtype != np.float16 else float(np.finfo(np.float16).max)
    # Written so that NaN is unusable.
    return ~((values <= limit) & (values >= -limit))


def _note_features(path: Path, values: Shaped[np.ndarray, "n f"]) -> Features:
    note = f"{values.shape[1]:,} features of {printable(path.name)}"
    return Features(values, note, per_column=True)


def _read_features(file: str) -> FeatureFile:
    if not file.lower().endswith(".npz"):
        raise DataError(f"--features {file!a}. {_REMEDY}")
    path = Path(file)
    arrays = read_npz(path, _REMEDY)
    values, labels = take(arrays, path, ("features", "labels"), _REMEDY)
    if values.ndim != 2 or values.dtype.kind not in "fiu" or not values.size:
        raise DataError(f"{path}: features have {dtype_and_shape(values)}. {_REMEDY}")
    check_shape(path, labels, "features", values.shape, _REMEDY)
    wrong = is_unusable(values)
    if np.any(wrong):
        raise DataError(
            f"{path}: the features of row {np.argwhere(wrong)[0][0]} are not all numbers of at "
            f"most {MAX_FEATURE:g}. Leave it out, or scale them."
        )
    others = ", ".join(printable(name) for name in arrays if name not in ("features", "labels"))
    return FeatureFile(path, values, labels, others)
