"""Pairs of two cameras' images by name or list, and their groups."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight_data.color.photographs.image_groups import SHOWN, read_group_words
from everlight_data.errors import DataError
from everlight_data.formats.tables import read_columns
from everlight_data.names import check_name, name_first, repeated_names
from everlight_data.texts import one_line

MATCH_REMEDY = "Give a CSV file with the columns main and second: the names of both images."


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
      DataError: an image of the list does not exist, shares its name or occurs twice; without a
        list, an image has no partner. The message names them.
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
        if ambiguous := sorted({*listed} & {*repeated_names(known)}):
            raise DataError(
                f"{path} has {one_line(ambiguous[0])}, the name of several images of the "
                f"{('main', 'second')[place]} camera; give each image its own name"
            )
        if repeated := repeated_names(listed):
            raise DataError(f"{path} has {one_line(repeated[0])} in two pairs; remove one")
    return np.array([[main.index(first), second.index(other)] for first, other in rows], int)


def read_groups(path: Path | None, count: int, block: int) -> Int[np.ndarray, "n"]:
    """Return each pair's group, from 0: a file's words, or blocks of consecutive pairs.

    Raises:
      DataError: the file has another number of words than there are pairs.
    """
    return np.arange(count) // block if path is None else read_group_words(path, count, "pair")
