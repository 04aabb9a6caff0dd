"""Reader of Tiny-ImageNet (Stanford CS231n) at 32x32: CIFAR-100's number of images, 200 classes.

A folder holds `train_0.npz`, `train_1.npz`, `val.npz` and `classes.json`, made by
`tiny_imagenet_release`. In an npz, the JPEG of sample i is `jpeg_bytes[offsets[i]:offsets[i + 1]]`
(uint8). Its class `label[i]` is an index into `names` (words) and `wnids` (WordNet) of
`classes.json`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.arrays import read_npz, take
from everlight_data.formats.files import jpeg_size, read_json, refusing
from everlight_data.images.image_set import ImageSet
from everlight_data.locations import locate
from everlight_data.optional_packages import import_package

SOURCE = "Tiny-ImageNet of Stanford's CS231n, by `everlight data prepare tiny-imagenet ZIP`"
FOLDER = "tiny_imagenet_32x32"
TRAIN_FILES = ("train_0.npz", "train_1.npz")
TEST_FILE = "val.npz"
CLASSES_FILE = "classes.json"
MAX_PIXELS = 1_000_000
"""Limit on the pixels of a decoded image."""
_AGAIN = f"Download it again: {SOURCE}."


def load_tiny_imagenet_32(classes: Sequence[int] | None = None) -> ImageSet:
    """Load Tiny-ImageNet at 32x32: 250 training and 50 test images per class, in file order.

    The test images are the release's validation images, since the test labels are not published.

    Args:
      classes: labels of the wanted classes; only their images are decoded, and label k of the
        result is `classes[k]`. None is all 200.

    Raises:
      MissingDataError: `tiny_imagenet_32x32` below EVERLIGHT_DATA lacks a file.
      MissingPackageError: imagecodecs is not installed.
      DataError: a file is damaged or contradicts itself, or `classes` are not distinct labels.
    """
    names = tiny_imagenet_names()
    chosen = list(range(len(names)) if classes is None else classes)
    if not chosen or len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(len(names))):
        raise DataError(f"classes={chosen} are not distinct labels from 0 to {len(names) - 1}.")
    renumbered = np.full(len(names), -1, np.int32)
    renumbered[chosen] = np.arange(len(chosen))
    parts = [_read_part(_locate(file), renumbered) for file in (*TRAIN_FILES, TEST_FILE)]
    images, labels = zip(*parts, strict=True)
    return ImageSet(
        "Tiny-ImageNet 32x32",
        np.concatenate(images),
        np.concatenate(labels[:-1]),
        labels[-1],
        tuple(names[label] for label in chosen),
    )


def tiny_imagenet_names() -> list[str]:
    """Return the names of all classes in the order of their labels, without reading images."""
    return _read_names(_locate(CLASSES_FILE))


def _locate(file: str) -> Path:
    return locate(f"{FOLDER}/{file}", SOURCE, "56 MB in all")


def _read_names(path: Path) -> list[str]:
    way_out = f"It should be a JSON file with a list of names. {_AGAIN}"
    table = read_json(path, way_out)
    with refusing(path, way_out):
        names = table["names"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("names is not a list of text")
    return names


def _read_part(path: Path, renumbered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return images and new labels of the samples whose new label is 0 or more."""
    keys = ("jpeg_bytes", "offsets", "label")
    content, offsets, labels = take(read_npz(path, _AGAIN), path, keys, _AGAIN)
    if problem := _contradiction(content, offsets, labels, len(renumbered)):
        raise DataError(f"{path}: {problem}. Download it again: {SOURCE}.")
    wanted = np.flatnonzero(renumbered[labels] >= 0)
    images = np.empty((len(wanted), 32, 32, 3), np.uint8)
    # One thread: an image takes 16 microseconds, and handing it to another thread takes longer.
    for image, sample in zip(images, wanted, strict=True):
        image[...] = _decode(content[offsets[sample] : offsets[sample + 1]], f"{path}[{sample}]")
    return images, renumbered[labels[wanted]]


def _contradiction(
    content: np.ndarray, offsets: np.ndarray, labels: np.ndarray, class_count: int
) -> str | None:
    if content.dtype != np.uint8 or {offsets.dtype.kind, labels.dtype.kind} - {"i", "u"}:
        return f"types {content.dtype}, {offsets.dtype}, {labels.dtype} are not bytes and integers"
    if labels.ndim != 1 or offsets.shape != (len(labels) + 1,):
        return f"labels {labels.shape}, offsets {offsets.shape}: not one more offset than labels"
    if offsets[0] != 0 or offsets[-1] != len(content) or (offsets[1:] < offsets[:-1]).any():
        return f"offsets do not increase from 0 to the number of bytes, {len(content)}"
    outside = (labels < 0) | (labels >= class_count)
    if outside.any():
        return f"label {labels[outside][0]} is not one of the {class_count} classes"
    return None


def _decode(jpeg: np.ndarray, name: str) -> np.ndarray:
    # The decoder fills truncated images with grey, so the end is checked here.
    if jpeg[-2:].tobytes() != b"\xff\xd9":
        raise DataError(f"{name} does not end like a JPEG. Download the file again: {SOURCE}.")
    with refusing(name, f"Download the file again: {SOURCE}."):
        height, width = jpeg_size(jpeg.tobytes())
        if height * width > MAX_PIXELS:
            raise ValueError(f"{height}x{width} pixels")
        pixels = import_package("imagecodecs").jpeg8_decode(jpeg)
    if pixels.shape != (32, 32, 3):
        raise DataError(f"{name} is an image of {pixels.shape}, not (32, 32, 3). {_AGAIN}")
    return pixels
