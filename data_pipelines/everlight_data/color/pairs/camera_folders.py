"""Photographs of one camera with known illuminants: a file of thumbnails, or a folder of photos."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from everlight_data.color.photographs.camera_names import plain_name
from everlight_data.color.photographs.linear_pictures import checked_illuminants
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.color.raw_files.photos import (
    is_picture,
    list_photos,
    read_photo,
    stated_warnings,
)
from everlight_data.color.raw_files.raw import camera_names
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import refusing
from everlight_data.formats.tables import read_columns
from everlight_data.names import repeated_names
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_data.texts import one_line

ILLUMINANTS = "illuminants.csv"
"""File of a folder's illuminants."""
COLUMNS = ("file", "red", "green", "blue")
REMEDY = (
    f"Write the illuminants of a folder's photos into its {ILLUMINANTS}, with the columns "
    f"{', '.join(COLUMNS)}: the raw colour of a grey surface."
)


def camera_set(source: Path) -> ConstancySet:
    """Return one camera's photographs with their illuminants.

    Args:
      source: `.npz` file of thumbnails, all by one camera; or folder of raw files, or of linear PNG
        and TIFF of 16 bits, with a file `ILLUMINANTS`.

    Raises:
      MissingDataError: the file or folder does not exist, or the folder has no photo.
      DataError: a file is damaged, photos and illuminants do not agree, or raw files are by
        different cameras.
    """
    if source.is_dir():
        return _folder_set(source)
    if not source.exists():
        raise MissingDataError(f"{source} does not exist. Give a folder of photos or an .npz file.")
    if source.suffix != ".npz":
        raise DataError(f"{source} is neither a folder of photos nor an .npz file of thumbnails")
    (photographs,) = thumbnail_set(source, source.stem).values()
    return photographs


def _folder_set(folder: Path) -> ConstancySet:
    paths = list_photos([folder])
    names = [path.stem for path in paths]
    if repeated := repeated_names(names):
        raise DataError(
            f"{folder} has several photos named {one_line(repeated[0])}, which differ in the "
            "extension only; leave one of them there"
        )
    _refuse_second_camera(paths)
    table = folder / ILLUMINANTS
    rows = read_columns(table, COLUMNS, REMEDY)
    listed = [name for name, *_ in rows]
    files = [path.name for path in paths]
    _refuse_others(table, listed, files)
    with refusing(table, REMEDY):
        colors = checked_illuminants(np.array([color for _, *color in rows], np.float64))
    order = [listed.index(name) for name in files]
    return ConstancySet(tuple(names), colors[order], partial(_read, paths, set()), file=table)


def _refuse_second_camera(paths: Sequence[Path]) -> None:
    """Refuse raw files that have no name of the camera in common with the first one."""
    named = [(path, camera_names(path)) for path in paths if not is_picture(path)]
    named = [(path, names) for path, names in named if names]
    for path, names in named[1:]:
        first, expected = named[0]
        if not {*map(plain_name, names)} & {*map(plain_name, expected)}:
            raise DataError(
                f"{path} is by {names[0]}, and {first.name} by {expected[0]}; give a folder of one "
                "camera's photos"
            )


def _refuse_others(table: Path, listed: Sequence[str], files: Sequence[str]) -> None:
    """Refuse photos without illuminant, illuminants without photo, and two of one photo."""
    if repeated := repeated_names(listed):
        raise DataError(f"{table} has {one_line(repeated[0])} twice; remove one")
    for names, what in (
        (sorted({*files} - {*listed}), "has no illuminant of"),
        (sorted({*listed} - {*files}), "has illuminants of photos that are not there:"),
    ):
        if names:
            raise DataError(f"{table} {what} {one_line(', '.join(names))}. {REMEDY}")


def _read(paths: Sequence[Path], printed: set[str], index: int) -> Photograph:
    """Read a photo, and print each warning for the first photo of the folder that has it."""
    photo = read_photo(paths[index])
    for warning in stated_warnings(photo):
        if warning not in printed:
            printed.add(warning)
            print(
                f"WARNING: {paths[index]}: {warning} (printed for the first such photo only)",
                file=sys.stderr,
            )
    return Photograph(photo.image, ~photo.saturated & (photo.image.max(axis=-1) > 0))
