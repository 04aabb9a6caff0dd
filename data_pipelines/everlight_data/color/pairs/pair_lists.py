"""Pairs of two cameras' images by name or list, their groups, and folds of whole groups."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight_data.color.photographs.published_folds import (
    FOLDS,
    draw_scene_folds,
    padded_folds,
    read_whole_folds,
)
from everlight_data.errors import DataError
from everlight_data.formats.files import read_text
from everlight_data.formats.tables import read_columns
from everlight_data.names import check_name, name_first, repeated_names
from everlight_data.texts import one_line

MATCH_REMEDY = "Give a CSV file with the columns main and second: the names of both images."
GROUP_REMEDY = (
    "Give a text file with a word per pair, in the order of the pairs: its scene or session."
)
SHOWN = 8
"""Number of names in a message."""


def match_images(
    main: Sequence[str], second: Sequence[str], path: Path | None
) -> Int[np.ndarray, "n 2"]:
    """Return the places of both images of every pair.

    Args:
      main: names of the main camera's images.
      second: names of the second camera's.
      path: list of pairs; without it names are equal, or end in the same number after the camera's
        name, as in CameraA_0001 and CameraB_0001.

    Raises:
      DataError: an image of the list does not exist or occurs twice; without a list, an image has
        no partner. The message names them.
    """
    if path is not None:
        return _listed_pairs(path, main, second)
    keys = list(main), list(second)
    if not {*main} & {*second}:
        keys = [_number(name) for name in main], [_number(name) for name in second]
    for names, camera in zip(keys, ("main", "second"), strict=True):
        if len({*names}) < len(names):
            raise DataError(
                f"two images of the {camera} camera have one name or number; give --match. "
                f"{MATCH_REMEDY}"
            )
    unpaired = [
        [name for name, key in zip(names, own_keys, strict=True) if key not in partners]
        for names, own_keys, partners in (
            (main, keys[0], {*keys[1]}),
            (second, keys[1], {*keys[0]}),
        )
    ]
    if any(unpaired):
        parts = [
            f"{len(names)} of {len(camera_names)} images of the {camera} camera "
            f"({name_first(names, SHOWN)})"
            for names, camera_names, camera in zip(
                unpaired, (main, second), ("main", "second"), strict=True
            )
            if names
        ]
        raise DataError(
            f"{' and '.join(parts)} have no partner by name; remove them, or give --match. "
            f"{MATCH_REMEDY}"
        )
    return np.array([[row, keys[1].index(key)] for row, key in enumerate(keys[0])])


def _number(name: str) -> str:
    """Return the number that a name ends with; a name without one as it is."""
    match = re.search(r"(?<=\D)\d+$", name)
    return match[0] if match else name


def _listed_pairs(path: Path, main: Sequence[str], second: Sequence[str]) -> Int[np.ndarray, "n 2"]:
    rows = read_columns(path, ("main", "second"), MATCH_REMEDY)
    for place, known in enumerate((main, second)):
        listed = [row[place] for row in rows]
        for name in listed:
            check_name("image", name, known)
        if repeated := repeated_names(listed):
            raise DataError(f"{path} has {one_line(repeated[0])} in two pairs; remove one")
    return np.array([[main.index(first), second.index(other)] for first, other in rows], int)


def read_groups(path: Path | None, count: int, block: int) -> Int[np.ndarray, "n"]:
    """Return each pair's group, from 0: a file's words, or blocks of consecutive pairs.

    Raises:
      DataError: the file has another number of words than there are pairs.
    """
    if path is None:
        return np.arange(count) // block
    words = read_text(path, GROUP_REMEDY).split()
    if len(words) != count:
        raise DataError(f"{path} has {len(words)} words for {count} pairs. {GROUP_REMEDY}")
    return np.unique(words, return_inverse=True)[1]


def group_folds(
    groups: Int[np.ndarray, "n"], assigned: Int[np.ndarray, "n"] | None, seed: int
) -> Int[np.ndarray, "folds k"]:
    """Return the test rows of folds of whole groups; shorter folds repeat rows.

    Args:
      groups: group of each pair.
      assigned: fold of each pair, from 0; None draws the folds.
      seed: random seed of drawn folds.

    Raises:
      DataError: a group is in two folds, a fold is empty, or there are too few groups.
    """
    count = len(np.unique(groups))
    if count < FOLDS:
        raise DataError(f"{count} groups do not suffice for {FOLDS} folds; give more groups")
    if assigned is None:
        return np.stack(draw_scene_folds(np.unique(groups, return_inverse=True)[1], seed, FOLDS))
    for group in np.unique(groups):
        if len({*assigned[groups == group]}) > 1:
            rows = ", ".join(str(row + 1) for row in np.flatnonzero(groups == group)[:SHOWN])
            raise DataError(
                f"--folds puts pairs of one group (number {rows}) into different folds; a group "
                "belongs to one fold"
            )
    folds = [np.flatnonzero(assigned == fold) for fold in range(FOLDS)]
    if not all(map(len, folds)):
        raise DataError(f"a fold of --folds has no usable pair; give {FOLDS} folds with pairs")
    return np.stack(padded_folds(folds))


def read_assigned_folds(path: Path, count: int) -> Int[np.ndarray, "n"]:
    """Return each pair's fold, from 0, in a published split; raises as `read_whole_folds` does."""
    assigned = np.zeros(count, int)
    for fold, rows in enumerate(read_whole_folds(path, count)):
        assigned[rows] = fold
    return assigned
