"""Folders of IDX files, as MNIST is published, as labelled images.

A folder holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same two of `t10k`, each
as it is or with `.gz`. Images in colour have a fourth dimension, and `idx4` in their files' names.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.idx import REMEDY, read_idx
from everlight_data.formats.originals import Original
from everlight_data.sets.image_set import ImageSet
from everlight_data.texts import printable

PARTS = ("train", "t10k")
IMAGES_FILE, LABELS_FILE = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
COLOR_IMAGES_FILE = "{}-images-idx4-ubyte"
FILES = tuple(name.format(part) for part in PARTS for name in (IMAGES_FILE, LABELS_FILE))
"""Names of the four files of grey images, without .gz."""
COLOR_FILES = tuple(
    name.format(part) for part in PARTS for name in (COLOR_IMAGES_FILE, LABELS_FILE)
)
"""Names of the four files of images in colour, without .gz."""
PUBLISHED_AS = "its four .gz files, or these unpacked"
"""Files of a release, for the rows of data sets."""


def is_idx_folder(folder: Path) -> bool:
    """Return True if a folder holds at least one of the files."""
    files = {*FILES, *COLOR_FILES}
    return any(os.path.lexists(folder / f"{file}{end}") for file in files for end in ("", ".gz"))


def load_idx(
    folder: Path,
    name: str | None = None,
    class_names: tuple[str, ...] | None = None,
    originals: Mapping[str, Original] | None = None,
) -> ImageSet:
    """Load the four IDX files of a folder, in their order.

    Args:
      folder: folder of the files; of a file and its `.gz`, the former is read.
      name: name of the set in reports; None is the folder's.
      class_names: names of the labels 0, 1 and so on; None names the training labels by their
        numbers, which may begin at 1 or have gaps.
      originals: hashes of the unpacked files by name; None compares nothing.

    Raises:
      MissingDataError: a file is missing.
      DataError: a file is damaged or too large, images are not square or vary in size, the numbers
        of images and labels differ, a label is out of range, or a hash differs; the message names
        the file.
    """
    train, train_labels, train_path = _read_part(folder, PARTS[0], originals or {})
    test, test_labels, test_path = _read_part(folder, PARTS[1], originals or {})
    if train.shape[1:] != test.shape[1:]:
        sizes = " and ".join("x".join(map(str, part.shape[1:])) for part in (train, test))
        raise DataError(f"{folder}: training and test images have the shapes {sizes}. {REMEDY}")
    values = np.unique(train_labels) if class_names is None else np.arange(len(class_names))
    names = tuple(map(str, values)) if class_names is None else class_names
    return ImageSet(
        name or printable(folder.resolve().name),
        np.concatenate([train, test]),
        _number_labels(train_labels, values, train_path),
        _number_labels(test_labels, values, test_path),
        names,
    )


def _read_part(
    folder: Path, part: str, originals: Mapping[str, Original]
) -> tuple[UInt8[np.ndarray, "n h w c"], UInt8[np.ndarray, "n"], Path]:
    """Return images and labels of a part, and the path of its labels."""
    images_path = _existing(folder, IMAGES_FILE.format(part), COLOR_IMAGES_FILE.format(part))
    labels_path = _existing(folder, LABELS_FILE.format(part))
    dimensions = 4 if images_path.name.startswith(COLOR_IMAGES_FILE.format(part)) else 3
    images = read_idx(images_path, dimensions, originals.get(images_path.name.removesuffix(".gz")))
    labels = read_idx(labels_path, 1, originals.get(labels_path.name.removesuffix(".gz")))
    if dimensions == 3:
        images = images[..., None]
    if images.shape[3] not in (1, 3):
        raise DataError(f"{images_path}: {images.shape[3]} channels. Give images of one or three.")
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path} has {len(labels):,} labels for {len(images):,} images. {REMEDY}"
        )
    if not images.size:
        raise DataError(f"{images_path} holds no image. {REMEDY}")
    if images.shape[1] != images.shape[2]:
        raise DataError(
            f"{images_path}: images of {images.shape[1]}x{images.shape[2]} pixels. Give squares."
        )
    return images, labels, labels_path


def _existing(folder: Path, *files: str) -> Path:
    """Return the path of the first of the files that exists, as it is or with .gz."""
    for file in files:
        for path in (folder / file, folder / f"{file}.gz"):
            if path.exists():
                return path
    raise MissingDataError(
        f"{folder} lacks {files[0]} or {files[0]}.gz. Put it there, beside {', '.join(FILES)}."
    )


def _number_labels(
    labels: UInt8[np.ndarray, "n"], values: Int[np.ndarray, "classes"], path: Path
) -> Int[np.ndarray, "n"]:
    wrong = np.flatnonzero(~np.isin(labels, values))
    if len(wrong):
        raise DataError(
            f"{path}: label {labels[wrong[0]]} of image {wrong[0]} is not one of the "
            f"{len(values)} classes, {values[0]} to {values[-1]}. {REMEDY}"
        )
    return np.searchsorted(values, labels).astype(np.int32)
