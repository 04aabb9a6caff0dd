"""The release of Tiny-ImageNet (Stanford CS231n), `tiny-imagenet-200.zip` or its folder.

- `wnids.txt` has one WordNet id per line; `words.txt` an id, a tab and its names.
- `train/<wnid>/images/<wnid>_<k>.JPEG` are the training images, k from 0 to 499.
- `val/val_annotations.txt` has a file, a tab and its WordNet id per line.
- `val/images/val_<k>.JPEG` are the validation images.

Images have 64x64 pixels; some are grey. The labels of the test images are not published, so the
validation images are the test images.
"""

import collections
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from everlight_data.formats.originals import Original
from everlight_data.sets.preparing import Source, find, matching, read_member_text

OWNER = "Stanford CS231n (cs231n.stanford.edu), research use"
ZIP = "tiny-imagenet-200.zip"
ORIGINAL = Original(248_100_043, "90528d7ca1a48142e341f4ef8d21d0de")
SIDE = 64
MAX_IMAGE_BYTES = 200_000
_ANNOTATIONS = "val_annotations.txt"


class LabelledPaths(NamedTuple):
    """Paths of images in a source, with their labels."""

    paths: Sequence[str]
    labels: Sequence[int]


def release_wnids(source: Source) -> list[str]:
    """Return the sorted WordNet ids of the classes; a label is an index into them.

    Raises:
      ValueError: an id stands twice, or there are none or more than 256.
    """
    wnids = sorted(read_member_text(source, "wnids.txt").split())
    if len(set(wnids)) != len(wnids) or not 0 < len(wnids) <= 256:
        raise ValueError(f"wnids.txt has {len(wnids)} lines, too many or with duplicates")
    return wnids


def release_names(source: Source, wnids: Sequence[str]) -> list[str]:
    """Return the names of the classes in the order of their ids."""
    words = _unique("words.txt", _pairs(read_member_text(source, "words.txt")))
    return [words[wnid] for wnid in wnids]


def training_paths(source: Source, wnids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return the paths of each id's training images, sorted by their numbers."""
    base = _base(source)
    by_folder = collections.defaultdict(list)
    for path in matching(source, lambda path: path.endswith(".JPEG")):
        by_folder[path.rpartition("/")[0]].append(path)
    return {wnid: sorted(by_folder[f"{base}train/{wnid}/images"], key=_number) for wnid in wnids}


def test_paths(source: Source, wnids: Sequence[str]) -> LabelledPaths:
    """Return the validation images, sorted by their numbers.

    Raises:
      ValueError: an image is listed twice, or the classes have unequal numbers of images.
    """
    base = _base(source)
    listed = sorted(
        _unique(_ANNOTATIONS, _pairs(read_member_text(source, _ANNOTATIONS))).items(),
        key=lambda pair: _number(pair[0]),
    )
    # A box follows the WordNet id.
    labels = [wnids.index(rest.split("\t")[0]) for _, rest in listed]
    counts = np.bincount(labels, minlength=len(wnids))
    if counts.min() != counts.max():
        raise ValueError(
            f"{_ANNOTATIONS} lists from {counts.min()} to {counts.max()} images per class"
        )
    return LabelledPaths([f"{base}val/images/{image}" for image, _ in listed], labels)


def _base(source: Source) -> str:
    """Return the path of the release's folder in the source, with a slash or empty."""
    return find(source, "wnids.txt").removesuffix("wnids.txt")


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
