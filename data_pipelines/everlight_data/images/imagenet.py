"""ImageNet (ILSVRC 2012): the listing of its files, which `jpeg_store` reads.

The official layout is `imagenet/train/<wnid>/*.JPEG` and, with equal folders,
`imagenet/val/<wnid>/*.JPEG`, whose images are the test images.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from everlight_data.errors import DataError, MissingDataError
from everlight_data.names import name_first
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import select_samples

FOLDER, SPLITS = "imagenet", ("train", "val")
SUFFIX = ".JPEG"


class ImageFiles(NamedTuple):
    """Labelled image files in source order, training samples first and test samples after them.

    The fields are those of `ImageSet`, with files in place of images.
    """

    name: str
    images: Shaped[np.ndarray, "n"]
    """File names relative to `folder`, as NumPy bytes: ImageNet's take 56 MB."""
    train_labels: Int[np.ndarray, "train"]
    test_labels: Int[np.ndarray, "test"]
    class_names: tuple[str, ...]
    folder: Path
    remarks: tuple[str, ...] = ()
    """Sentences on deviations from the complete set."""


def list_imagenet(order: Sequence[str], classes: Collection[str] | None = None) -> ImageFiles:
    """List ImageNet's files in the order of the authors' package `iirc` 1.0.1.

    The splits depend on this order. The package lists files class by class and then, instead of
    sorting them, applies the inverse of the sorting permutation. With classes of unequal size, this
    swaps runs of files within a class. The swaps depend on the other classes' sizes and order. So
    all classes of the order are listed if all are present. Otherwise only the requested ones are,
    and `remarks` states this.

    Args:
      order: WordNet ids of the benchmark's classes (`iirc.metadata.imagenet_listing`).
      classes: requested WordNet ids; None is all of them.

    Raises:
      MissingDataError: `imagenet/train` or `imagenet/val` below EVERLIGHT_DATA is missing, or lacks
        folders of requested classes; the message names and counts them.
      DataError: a requested class is not in the listing, or a folder is empty or holds a file other
        than `.JPEG`; the message names it.
    """
    names = tuple(name for name in order if classes is None or name in set(classes))
    unknown = set(classes or ()) - set(order)
    if unknown:
        raise DataError(
            f"the benchmark lists no class {name_first(sorted(unknown))}; give WordNet ids of "
            f"its {len(order)} classes"
        )
    folder = DATA_SETS["imagenet"].locate()
    present = {split: _class_folders(folder / split, names) for split in SPLITS}
    is_complete = all(set(order) <= folders for folders in present.values())
    listed = order if is_complete else names
    number = np.full(len(listed), -1, np.int32)
    for place, name in enumerate(names):
        number[listed.index(name)] = place
    paths, labels = [], []
    for split in present:
        files, ids = _list_split(folder, split, listed)
        is_used = number[ids] >= 0
        paths.append(files[is_used])
        labels.append(number[ids[is_used]])
    remark = (
        f"{len(names)} classes are listed without the other {len(order) - len(names)}, so some "
        "files are in other splits than with the authors' package, which needs all classes"
    )
    train_labels, test_labels = labels
    return ImageFiles(
        "ImageNet",
        np.concatenate(paths),
        train_labels,
        test_labels,
        names,
        folder,
        remarks=() if is_complete else (remark,),
    )


def leave_out(listed: ImageFiles, places: Sequence[int]) -> ImageFiles:
    """Return the listing without some files, which a remark counts and names."""
    if not len(places):
        return listed
    rest = np.ones(len(listed.images), bool)
    rest[list(places)] = False
    train = len(listed.train_labels)
    named = ", ".join(os.fsdecode(name) for name in listed.images[~rest])
    remark = f"{np.sum(~rest)} of {len(rest):,} files cannot be decoded and are left out: {named}"
    selected = select_samples(listed, rest[:train], rest[train:])
    return selected._replace(remarks=(*listed.remarks, remark))


def _class_folders(folder: Path, names: Sequence[str]) -> set[str]:
    """Return the names in the folder of a split, which has those of the requested classes."""
    remedy = DATA_SETS["imagenet"].remedy
    if not folder.is_dir():
        raise MissingDataError(f"{folder} does not exist. {remedy}")
    folders = {place.name for place in folder.iterdir()}
    missing = [name for name in names if name not in folders]
    if missing:
        raise MissingDataError(
            f"{folder} lacks {name_first(missing)}: {len(names) - len(missing)} of {len(names)} "
            f"folders of classes are present. {remedy}"
        )
    return folders


def _list_split(
    folder: Path, split: str, classes: Sequence[str]
) -> tuple[Shaped[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return the files of a split and their indices in `classes`, in the package's order."""
    files = [_list_class(folder, f"{split}/{name}") for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(names) for names in files])
    names = np.concatenate(files)
    inverse = np.argsort(np.argsort(names))
    return names[inverse], labels[inverse]


def _list_class(folder: Path, place: str) -> Shaped[np.ndarray, "k"]:
    names = sorted(path.name for path in (folder / place).iterdir())
    if not names:
        raise DataError(f"{folder / place} is empty. {DATA_SETS['imagenet'].remedy}")
    strange = [name for name in names if not name.endswith(SUFFIX)]
    if strange:
        raise DataError(f"{folder / place}/{strange[0]} is not a {SUFFIX} file; move it elsewhere")
    return np.array([os.fsencode(f"{place}/{name}") for name in names])


DATA_SETS = {
    "imagenet": DataSet(
        "ImageNet (ILSVRC 2012): <wnid>/*.JPEG in the folders train and val",
        files=tuple(f"{FOLDER}/{split}" for split in SPLITS),
        owner="image-net.org",
        source="tasks 1 and 2, unpacked; val images sorted into class folders by the ground truth",
        size_bytes=144_000_000_000,
    )
}
