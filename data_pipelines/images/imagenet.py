"""ImageNet (ILSVRC 2012) as a listing of its files; `jpeg_store` reads them.

The official layout: `imagenet/train/<wnid>/*.JPEG` and, sorted into the same folders,
`imagenet/val/<wnid>/*.JPEG`, whose images are the test images.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.images.iirc_metadata import OfficialName, imagenet_listing
from data_pipelines.locations import locate

SOURCE = "image-net.org (ILSVRC 2012, tasks 1 and 2; val sorted into folders by its ground truth)"
SUFFIX = ".JPEG"
MAX_NAMED = 5
"""At most so many of what is wrong are named in a message."""


class ImageFiles(NamedTuple):
    """Labelled image files in source order, training samples first and test samples after them.

    Fields are those of `ImageSet`, files standing for images.
    """

    name: str
    images: Shaped[np.ndarray, "n"]
    """Names relative to `folder`, as NumPy bytes: ImageNet's are 56 MB."""
    train_labels: Int[np.ndarray, "train"]
    test_labels: Int[np.ndarray, "test"]
    class_names: tuple[str, ...]
    folder: Path
    remarks: tuple[str, ...] = ()
    """Sentences on what is not as in the whole set."""


def list_imagenet(
    classes: Collection[str] | None = None, benchmark: OfficialName = "iirc_imagenet_full"
) -> ImageFiles:
    """ImageNet's files in the order of the authors' package `iirc` 1.0.1, on which splits depend.

    That package lists the files of a benchmark's classes one class after the other, and then,
    meaning to sort them, applies the inverse of the sorting permutation. Where classes are of
    unequal size this swaps runs of files within a class, by what other classes hold and in which
    order they were listed. So all classes of the benchmark's listing, 998 or 1,000, are listed
    where all are there; otherwise the wanted ones alone, and `remarks` says so.

    Args:
      classes: the WordNet ids wanted; None is all of the listing.
      benchmark: whose listing is followed.

    Raises:
      MissingDataError: `imagenet/train` or `imagenet/val` below EVERLIGHT_DATA is missing, or
        lacks folders of wanted classes; named, with the number of those present.
      DataError: a class is wanted that the listing has not, a folder is empty or holds something
        that is no `.JPEG`; named.
    """
    order = imagenet_listing(benchmark)
    wanted = order if classes is None else tuple(name for name in order if name in set(classes))
    unknown = set(classes or ()) - set(order)
    if unknown:
        raise DataError(
            f"{benchmark} lists no class {', '.join(sorted(unknown)[:MAX_NAMED])}; give WordNet ids of "
            f"its {len(order)} classes"
        )
    folder = locate("imagenet", SOURCE, "144 GB")
    present = {split: _present(folder / split, wanted) for split in ("train", "val")}
    whole = all(set(order) <= there for there in present.values())
    listed = order if whole else wanted
    parts = [_list_split(folder, split, listed) for split in present]
    number = np.full(len(listed), -1)
    for place, name in enumerate(wanted):
        number[listed.index(name)] = place
    kept = [number[labels] >= 0 for _, labels in parts]
    names, labels = zip(
        *((files[mask], number[own[mask]]) for (files, own), mask in zip(parts, kept, strict=True)),
        strict=True,
    )
    remark = (
        f"{len(wanted)} classes are listed without the other {len(order) - len(wanted)}, so some "
        "files are in other splits than those of the authors' package, which needs all"
    )
    return ImageFiles(
        "ImageNet",
        np.concatenate(names),
        *(own.astype(np.int32) for own in labels),
        wanted,
        folder,
        () if whole else (remark,),
    )


def leave_out(listed: ImageFiles, places: Sequence[int]) -> ImageFiles:
    """The listing without some files, which a remark counts and names."""
    if not len(places):
        return listed
    kept = np.ones(len(listed.images), bool)
    kept[list(places)] = False
    train = len(listed.train_labels)
    named = ", ".join(os.fsdecode(name) for name in listed.images[~kept])
    remark = f"{np.sum(~kept)} of {len(kept):,} files cannot be decoded and are left out: {named}"
    return listed._replace(
        images=listed.images[kept],
        train_labels=listed.train_labels[kept[:train]],
        test_labels=listed.test_labels[kept[train:]],
        remarks=(*listed.remarks, remark),
    )


def _present(folder: Path, wanted: Sequence[str]) -> set[str]:
    if not folder.is_dir():
        raise MissingDataError(f"{folder} does not exist; get ImageNet from {SOURCE}")
    there = {place.name for place in folder.iterdir()}
    missing = [name for name in wanted if name not in there]
    if missing:
        named = ", ".join(missing[:MAX_NAMED]) + (", ..." if missing[MAX_NAMED:] else "")
        raise MissingDataError(
            f"{folder} lacks {named}: {len(wanted) - len(missing)} of {len(wanted)} folders of "
            f"classes are there; get the others from {SOURCE}"
        )
    return there


def _list_split(
    folder: Path, split: str, classes: Sequence[str]
) -> tuple[Shaped[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Files of a split and their places in `classes`, in the package's order."""
    files = [_list_class(folder, f"{split}/{name}") for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(names) for names in files])
    names = np.concatenate(files)
    inverse = np.argsort(np.argsort(names))
    return names[inverse], labels[inverse]


def _list_class(folder: Path, place: str) -> Shaped[np.ndarray, "k"]:
    names = sorted(path.name for path in (folder / place).iterdir())
    if not names:
        raise DataError(f"{folder / place} is empty; get its images from {SOURCE}")
    strange = [name for name in names if not name.endswith(SUFFIX)]
    if strange:
        raise DataError(f"{folder / place}/{strange[0]} is no {SUFFIX}; move it elsewhere")
    return np.array([os.fsencode(f"{place}/{name}") for name in names])
