"""Reader of Tiny-ImageNet (Stanford CS231n) at 32x32: CIFAR-100's number of images, 200 classes.

A folder holds `train_0.npz`, `train_1.npz`, `val.npz` and `classes.json`, made by
`tiny_imagenet_files`. In an npz, the JPEG of sample i is `jpeg_bytes[offsets[i]:offsets[i + 1]]`
(uint8). Its class `label[i]` is an index into `names` (words) and `wnids` (WordNet) of
`classes.json`.
"""

import collections
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from everlight_data.errors import DataError
from everlight_data.formats.arrays import read_npz, take
from everlight_data.formats.files import refusing
from everlight_data.formats.image_headers import jpeg_size
from everlight_data.formats.originals import Original
from everlight_data.formats.tables import read_json
from everlight_data.optional_packages import import_package
from everlight_data.sets.data_set import DataSet, ImageRequest, file_by_file
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Files, Source, find, matching, npz, read_text_of

FOLDER = "tiny_imagenet_32x32"
TRAIN_FILES = ("train_0.npz", "train_1.npz")
TEST_FILE = "val.npz"
CLASSES_FILE = "classes.json"
MAX_PIXELS = 1_000_000
"""Limit on the pixels of a decoded image."""
ZIP = "tiny-imagenet-200.zip"
ORIGINAL = Original(248_100_043, "90528d7ca1a48142e341f4ef8d21d0de")
SIDE = 64
MAX_IMAGE_BYTES = 200_000
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
    """Return the recipe of class names and of 32x32 JPEGs, each pixel the mean of a block.

    In the release's `tiny-imagenet-200/`:

    - `wnids.txt` has one WordNet id per line; `words.txt` an id, a tab and its names.
    - `train/<wnid>/images/<wnid>_<k>.JPEG` are the training images, k from 0 to 499.
    - `val/val_annotations.txt` has a file, a tab and its WordNet id per line.
    - `val/images/val_<k>.JPEG` are the validation images.

    Images have 64x64 pixels; some are grey.
    """
    wnids = sorted(read_text_of(source, "wnids.txt").split())
    base = find(source, "wnids.txt").removesuffix("wnids.txt")
    if len(set(wnids)) != len(wnids) or not 0 < len(wnids) <= 256:
        raise ValueError(f"wnids.txt has {len(wnids)} lines, too many or with duplicates")

    def names() -> bytes:
        words = _unique("words.txt", _pairs(read_text_of(source, "words.txt")))
        return json.dumps({"wnids": wnids, "names": [words[wnid] for wnid in wnids]}).encode()

    by_folder = collections.defaultdict(list)
    for path in matching(source, lambda path: path.endswith(".JPEG")):
        by_folder[path.rpartition("/")[0]].append(path)

    def train(first: int, end: int) -> bytes:
        paths, labels = [], []
        for label, wnid in enumerate(wnids):
            images = sorted(by_folder[f"{base}train/{wnid}/images"], key=_number)
            if len(images) < end:
                raise ValueError(f"{len(images)} images of {wnid}, not {CUTS[-1]} or more")
            paths += images[first:end]
            labels += [label] * (end - first)
        return _packed(source, paths, labels)

    trains = {
        file: lambda cut=cut: train(*CUTS[cut : cut + 2]) for cut, file in enumerate(TRAIN_FILES)
    }
    return {CLASSES_FILE: names, **trains, TEST_FILE: lambda: _test_images(source, base, wnids)}


def _test_images(source: Source, base: str, wnids: Sequence[str]) -> bytes:
    """Return the packed validation images below the folder `base`, sorted by their numbers."""
    file = "val_annotations.txt"
    listed = sorted(
        _unique(file, _pairs(read_text_of(source, file))).items(), key=lambda pair: _number(pair[0])
    )
    # A box follows the WordNet id.
    labels = [wnids.index(rest.split("\t")[0]) for _, rest in listed]
    counts = np.bincount(labels, minlength=len(wnids))
    if counts.min() != counts.max():
        raise ValueError(f"{file} lists from {counts.min()} to {counts.max()} images per class")
    return _packed(source, [f"{base}val/images/{image}" for image, _ in listed], labels)


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the text before and after the first tab of each line."""
    return [
        (first, rest) for first, _, rest in (line.partition("\t") for line in text.splitlines())
    ]


def _unique(file: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the pairs as a table, which lists every key once."""
    table = dict(pairs)
    if len(table) != len(pairs):
        (repeated, _), *_ = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"{file} lists {repeated} twice")
    return table


def _number(path: str) -> int:
    """Return the number k in a file's name."""
    match = re.search(r"_(\d+)\.JPEG$", path)
    if match is None:
        raise ValueError(f"{path} is not named NAME_NUMBER.JPEG")
    return int(match[1])


def _packed(source: Source, paths: Sequence[str], labels: Sequence[int]) -> bytes:
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


def _requested(request: ImageRequest) -> ImageSet:
    # Only the images of the chosen classes are decoded.
    available = len(tiny_imagenet_names())
    # A request for more classes than there are is refused with all of them.
    end = request.first_class + (request.classes or available - request.first_class)
    return load_tiny_imagenet_32(range(min(end, available)))


DATA_SETS = {
    "tiny-imagenet": DataSet(
        "Tiny-ImageNet at 32x32: 250 training and 50 test images per class, 200 classes",
        files=tuple(f"{FOLDER}/{name}" for name in (*TRAIN_FILES, TEST_FILE, CLASSES_FILE)),
        owner="Stanford CS231n (cs231n.stanford.edu), research use",
        source=ZIP,
        size_bytes=56_400_000,
        prepare=file_by_file(tiny_imagenet_files),
        original=ORIGINAL,
        load=_requested,
    )
}
