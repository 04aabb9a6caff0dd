"""Groups of images, such as scenes and sessions, and folds of whole groups."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight_data.color.photographs.published_folds import (
    FOLDS,
    padded_folds,
    read_whole_folds,
)
from everlight_data.errors import DataError
from everlight_data.formats.files import read_text
from everlight_data.formats.tables import read_columns
from everlight_data.names import name_first, repeated_names
from everlight_data.texts import one_line

COLUMNS = ("camera", "image", "group")
"""Columns of a list of groups."""
LIST_REMEDY = (
    f"Give a CSV file with the columns {', '.join(COLUMNS)} for images of several cameras, or a "
    "text file with a word per image for one camera."
)
SHOWN = 8
"""Number of names in a message."""


def read_group_words(path: Path, count: int, member: str) -> Int[np.ndarray, "n"]:
    """Return the group of each pair or image, from 0, by the words of a text file.

    Args:
      path: text file with a word per member, in the members' order.
      count: number of members.
      member: what a member is, "pair" or "image".

    Raises:
      DataError: the file has another number of words.
    """
    remedy = (
        f"Give a text file with a word per {member}, in the order of the {member}s: its scene or "
        "session."
    )
    words = read_text(path, remedy).split()
    if len(words) != count:
        raise DataError(f"{path} has {len(words)} words for {count} {member}s. {remedy}")
    return np.unique(words, return_inverse=True)[1]


def read_image_groups(
    path: Path, names: Mapping[str, Sequence[str]]
) -> dict[str, Int[np.ndarray, "n"]]:
    """Return each image's group by camera; images of several cameras may share one.

    Args:
      path: CSV file with the columns `COLUMNS`, in which other cameras do not count; or, for one
        camera, text with a word per image in the images' order.
      names: names of each camera's images.

    Raises:
      DataError: an image has no group, an empty one or two, the file has another number of words,
        or two images of a camera have one name.
    """
    if path.suffix.lower() != ".csv":
        if len(names) > 1:
            raise DataError(f"{path} is no list of {len(names)} cameras' images. {LIST_REMEDY}")
        return {
            camera: read_group_words(path, len(images), "image") for camera, images in names.items()
        }
    listed: dict[tuple[str, str], str] = {}
    for camera, image, group in read_columns(path, COLUMNS, LIST_REMEDY):
        if camera in names and not group.strip():
            raise DataError(
                f"{path} has an empty group for {one_line(image)} of {one_line(camera)}"
            )
        if listed.setdefault((camera, image), group) != group:
            raise DataError(f"{path} puts {one_line(image)} of {one_line(camera)} into two groups")
    for camera, images in names.items():
        if repeated := repeated_names(images):
            raise DataError(f"{camera} has two images {one_line(repeated[0])}; rename one")
        if camera not in (known := sorted({by for by, _ in listed})):
            raise DataError(
                f"{path} has no images by {camera}, but by {name_first(known, SHOWN)}. "
                f"{LIST_REMEDY}"
            )
        if missing := [image for image in images if (camera, image) not in listed]:
            raise DataError(
                f"{path} has no group of {len(missing)} images by {camera}: "
                f"{name_first(missing, SHOWN)}. {LIST_REMEDY}"
            )
    words = [listed[camera, image] for camera, images in names.items() for image in images]
    numbers = np.unique(words, return_inverse=True)[1]
    ends = np.cumsum([len(images) for images in names.values()])[:-1]
    return dict(zip(names, np.split(numbers, ends), strict=True))


def group_folds(
    groups: Int[np.ndarray, "n"],
    assigned: Int[np.ndarray, "n"] | None,
    seed: int,
    names: Sequence[str],
) -> Int[np.ndarray, "folds k"]:
    """Return the test rows of folds of whole groups; shorter folds repeat rows.

    Drawn folds are filled from the largest group on, each into the fold with the fewest members.

    Args:
      groups: group of each pair or image.
      assigned: fold of each, from 0; None draws the folds.
      seed: random seed of drawn folds.
      names: name of each, for messages.

    Raises:
      DataError: a group is in two folds, a fold is empty or has more than half of the members, or
        there are too few groups.
    """
    count = len(np.unique(groups))
    if count < FOLDS:
        raise DataError(
            f"{FOLDS} folds of whole groups need {FOLDS} groups or more, and there "
            f"{'is' if count == 1 else 'are'} only {count}; give smaller groups"
        )
    if assigned is None:
        assigned = _balanced_folds(groups, seed)
    for group in np.unique(groups):
        if len({*assigned[groups == group]}) > 1:
            members = [names[row] for row in np.flatnonzero(groups == group)]
            raise DataError(
                f"--folds puts members of one group ({name_first(members, SHOWN)}) into "
                "different folds; a group belongs to one fold"
            )
    folds = [np.flatnonzero(assigned == fold) for fold in range(FOLDS)]
    if not all(map(len, folds)):
        raise DataError(f"a fold of --folds has no usable member; give {FOLDS} folds with some")
    largest = max(map(len, folds))
    if 2 * largest > len(groups):
        group = np.argmax(np.bincount(groups))
        members = [names[row] for row in np.flatnonzero(groups == group)]
        raise DataError(
            f"a fold of whole groups has {largest} of {len(groups)} members, and the rest is too "
            f"small to train and to select; the largest group has {len(members)} "
            f"({name_first(members, SHOWN)}): give smaller groups"
        )
    return np.stack(padded_folds(folds))


def _balanced_folds(groups: Int[np.ndarray, "n"], seed: int) -> Int[np.ndarray, "n"]:
    """Draw each member's fold; groups of one size are dealt in turn."""
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(sizes))
    filled, folds = np.zeros(FOLDS, int), np.zeros(len(sizes), int)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        folds[group] = np.argmin(filled)
        filled[folds[group]] += sizes[group]
    return folds[numbers]


def read_assigned_folds(path: Path, count: int) -> Int[np.ndarray, "n"]:
    """Return each member's fold, from 0, in a published split; raises as `read_whole_folds`."""
    assigned = np.zeros(count, int)
    for fold, rows in enumerate(read_whole_folds(path, count)):
        assigned[rows] = fold
    return assigned
