"""Reader of Tiny-ImageNet (Stanford CS231n) at 32x32: CIFAR-100's number of images, 200 classes.

A folder holds `train_0.npz`, `train_1.npz`, `val.npz` and `classes.json`, made by
`tiny_imagenet_files`. In an npz, the JPEG of sample i is `jpeg_bytes[offsets[i]:offsets[i + 1]]`
(uint8). Its class `label[i]` is an index into `names` (words) and `wnids` (WordNet) of
`classes.json`.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from everlight_data.errors import DataError
from everlight_data.formats.arrays import read_npz, take
from everlight_data.formats.files import refusing
from everlight_data.formats.image_headers import jpeg_size
from everlight_data.formats.tables import read_json
from everlight_data.images.published_forms.tiny_imagenet_release import (
    MAX_IMAGE_BYTES,
    ORIGINAL,
    OWNER,
    SIDE,
    ZIP,
    release_names,
    release_wnids,
    test_paths,
    training_paths,
)
from everlight_data.optional_packages import import_package
from everlight_data.sets.data_set import DataSet, ImageRequest, file_by_file
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Files, Source, npz

FOLDER = "tiny_imagenet_32x32"
TRAIN_FILES = ("train_0.npz", "train_1.npz")
TEST_FILE = "val.npz"
CLASSES_FILE = "classes.json"
MAX_PIXELS = 1_000_000
"""Limit on the pixels of a decoded image."""
CUTS = (0, 110, 250)
"""Bounds of the two training files in each class's sorted images.

The first file has the first 110 images and the second the next 140. This gives CIFAR-100's total
number of images.
"""
QUALITY = 75
_REMEDY = "Prepare it again: `everlight data prepare tiny-imagenet ZIP`."


def load_tiny_imagenet_32(classes: Sequence[int] | None = None) -> ImageSet:
    """Load Tiny-ImageNet at 32x32: 250 training and 50 test images per class, in file order.

    The test images are the release's validation images, since the test labels are not published.

    Args:
      classes: labels of the selected classes; only their images are decoded, and label k of the
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
    parts = [
        _read_part(DATA_SETS["tiny-imagenet"].locate(file), renumbered)
        for file in (*TRAIN_FILES, TEST_FILE)
    ]
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
    return list(tiny_imagenet_wnids().values())


def tiny_imagenet_wnids() -> dict[str, str]:
    """Return a mapping from WordNet id to name, in the labels' order, without reading images.

    Raises:
      MissingDataError: the list of classes is missing.
      DataError: it does not have as many distinct ids as names, all of them text.
    """
    path = DATA_SETS["tiny-imagenet"].locate(CLASSES_FILE)
    remedy = f"It should have lists wnids and names of equal length. {_REMEDY}"
    table = read_json(path, remedy)
    with refusing(path, remedy):
        wnids, names = table["wnids"], table["names"]
        for texts in (wnids, names):
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise TypeError("wnids or names is not a list of text")
        if len(set(wnids)) < len(wnids):
            raise ValueError("a WordNet id stands twice in wnids")
        return dict(zip(wnids, names, strict=True))


def _read_part(path: Path, renumbered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return images and new labels of the samples whose new label is 0 or more."""
    keys = ("jpeg_bytes", "offsets", "label")
    content, offsets, labels = take(read_npz(path, _REMEDY), path, keys, _REMEDY)
    if problem := _contradiction(content, offsets, labels, len(renumbered)):
        raise DataError(f"{path}: {problem}. {_REMEDY}")
    selected = np.flatnonzero(renumbered[labels] >= 0)
    images = np.empty((len(selected), 32, 32, 3), np.uint8)
    # One thread: an image takes 16 microseconds, and handing it to another thread takes longer.
    for image, sample in zip(images, selected, strict=True):
        image[...] = _decode(content[offsets[sample] : offsets[sample + 1]], f"{path}[{sample}]")
    return images, renumbered[labels[selected]]


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
        raise DataError(f"{name} does not end like a JPEG. {_REMEDY}")
    with refusing(name, _REMEDY):
        height, width = jpeg_size(jpeg.tobytes())
        if height * width > MAX_PIXELS:
            raise ValueError(f"{height}x{width} pixels; give the release's images")
        pixels = import_package("imagecodecs").jpeg8_decode(jpeg)
    if pixels.shape != (32, 32, 3):
        raise DataError(f"{name} is an image of {pixels.shape}, not (32, 32, 3). {_REMEDY}")
    return pixels


def tiny_imagenet_files(source: Source) -> Files:
    """Return the recipe of class names and of 32x32 JPEGs, each pixel the mean of a block."""
    wnids = release_wnids(source)
    by_wnid = training_paths(source, wnids)

    def names() -> bytes:
        return json.dumps({"wnids": wnids, "names": release_names(source, wnids)}).encode()

    def train(first: int, end: int) -> bytes:
        paths, labels = [], []
        for label, (wnid, images) in enumerate(by_wnid.items()):
            if len(images) < end:
                raise ValueError(f"{len(images)} images of {wnid}, not {CUTS[-1]} or more")
            paths += images[first:end]
            labels += [label] * (end - first)
        return _pack(source, paths, labels)

    trains = {
        file: lambda cut=cut: train(*CUTS[cut : cut + 2]) for cut, file in enumerate(TRAIN_FILES)
    }
    return {
        CLASSES_FILE: names,
        **trains,
        TEST_FILE: lambda: _pack(source, *test_paths(source, wnids)),
    }


def _pack(source: Source, paths: Sequence[str], labels: Sequence[int]) -> bytes:
    jpegs = [_shrunk(source, path) for path in paths]
    return npz(
        jpeg_bytes=np.frombuffer(b"".join(jpegs), np.uint8),
        offsets=np.cumsum([0, *map(len, jpegs)]),
        label=np.array(labels, np.uint8),
    )


def _shrunk(source: Source, path: str) -> bytes:
    content = source.read(path, MAX_IMAGE_BYTES)
    with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
        if image.size != (SIDE, SIDE):
            raise ValueError(f"{path} has {image.width}x{image.height} pixels")
        small = image.convert("RGB").reduce(2)
    stream = io.BytesIO()
    small.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def _load_request(request: ImageRequest) -> ImageSet:
    if request.classes is None:
        return load_tiny_imagenet_32()
    # Only the images of these classes are decoded.
    return load_tiny_imagenet_32(range(request.first_class + request.classes))


DATA_SETS = {
    "tiny-imagenet": DataSet(
        "Tiny-ImageNet at 32x32: 250 training and 50 test images per class, 200 classes",
        files=tuple(f"{FOLDER}/{name}" for name in (*TRAIN_FILES, TEST_FILE, CLASSES_FILE)),
        owner=OWNER,
        source=ZIP,
        size_bytes=56_400_000,
        prepare=file_by_file(tiny_imagenet_files),
        original=ORIGINAL,
        load=_load_request,
        class_count=lambda _: len(tiny_imagenet_names()),
    )
}
