"""Recipe that turns Tiny-ImageNet's zip (Stanford CS231n) into `tiny_imagenet`'s files.

In `tiny-imagenet-200/`:

- `wnids.txt` has one WordNet id per line; `words.txt` an id, a tab and its names.
- `train/<wnid>/images/<wnid>_<k>.JPEG` are the training images, k from 0 to 499.
- `val/val_annotations.txt` has a file, a tab and its WordNet id per line.
- `val/images/val_<k>.JPEG` are the validation images.

Images have 64x64 pixels; some are grey.
"""

import collections
import io
import json
import re
from collections.abc import Sequence

import numpy as np
from PIL import Image

from everlight_data.formats.files import MAX_TEXT_BYTES
from everlight_data.images.tiny_imagenet import CLASSES_FILE, TEST_FILE, TRAIN_FILES
from everlight_data.preparing import Files, Original, Source, find, matching, npz

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


def tiny_imagenet(source: Source) -> Files:
    """Return the recipe of class names and of 32x32 JPEGs, each pixel the mean of a block."""
    wnids = sorted(_text(source, "wnids.txt").split())
    base = find(source, "wnids.txt").removesuffix("wnids.txt")
    if len(set(wnids)) != len(wnids) or not 0 < len(wnids) <= 256:
        raise ValueError(f"wnids.txt has {len(wnids)} lines, too many or with duplicates")

    def names() -> bytes:
        words = dict(_pairs(_text(source, "words.txt")))
        return json.dumps({"wnids": wnids, "names": [words[each] for each in wnids]}).encode()

    by_folder = collections.defaultdict(list)
    for path in matching(source, lambda path: path.endswith(".JPEG")):
        by_folder[path.rpartition("/")[0]].append(path)

    def train(first: int, end: int) -> bytes:
        paths, labels = [], []
        for label, wnid in enumerate(wnids):
            found = by_folder[f"{base}train/{wnid}/images"]
            own = sorted(found, key=_number)[first:end]
            if len(own) < end - first:
                raise ValueError(f"{len(found)} images of {wnid}, not {CUTS[-1]} or more")
            paths += own
            labels += [label] * len(own)
        return _packed(source, paths, labels)

    def test() -> bytes:
        pairs = _pairs(_text(source, "val_annotations.txt"))
        # A box follows the WordNet id.
        listed = sorted(pairs, key=lambda pair: _number(pair[0]))
        paths = [f"{base}val/images/{file}" for file, _ in listed]
        return _packed(source, paths, [wnids.index(rest.split("\t")[0]) for _, rest in listed])

    trains = {
        file: lambda cut=cut: train(*CUTS[cut : cut + 2]) for cut, file in enumerate(TRAIN_FILES)
    }
    return {CLASSES_FILE: names, **trains, TEST_FILE: test}


def _text(source: Source, name: str) -> str:
    return source.read(find(source, name), MAX_TEXT_BYTES).decode("utf-8")


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the text before and after the first tab of each line."""
    return [
        (first, rest) for first, _, rest in (line.partition("\t") for line in text.splitlines())
    ]


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
