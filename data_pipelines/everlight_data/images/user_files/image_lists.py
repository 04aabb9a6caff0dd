"""Lists of a user's image files and their labels: from a folder of folders, or a csv."""

import os
import posixpath
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from everlight.data_checks import is_missing
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import leads_outside, refusing
from everlight_data.formats.tables import read_csv
from everlight_data.texts import printable

FORMS = (
    "a folder with one sub-folder per class, a .csv of file and label, an .npz with images and "
    "labels, a folder of IDX files, or tfds:NAME"
)
HEADER = ["file", "label"]


class ListedImages(NamedTuple):
    """Image files, their labels, and the number of files that are not read, by place."""

    paths: Sequence[Path]
    labels: Sequence[str]
    skipped: Counter


def list_folder(folder: Path) -> ListedImages:
    """List the images of a folder with one sub-folder per class.

    Raises:
      MissingDataError: the folder does not exist.
      DataError: the path is not such a folder, or a class's folder is empty or holds a folder.
    """
    remedy = f"For --data give {FORMS}."
    if not os.path.lexists(folder):
        raise MissingDataError(f"{folder} does not exist. {remedy}")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder. {remedy}")
    paths, labels, skipped = [], [], Counter()
    for entry in _list_images(folder, remedy):
        if entry.name.startswith("."):
            skipped["hidden"] += 1
        elif not entry.is_dir():
            skipped["beside the classes' folders"] += 1
        else:
            for path in _list_images(entry, remedy):
                if path.name.startswith("."):
                    skipped["hidden"] += 1
                elif path.is_dir():
                    raise DataError(
                        f"{printable(str(path))} is a folder in a class's folder. Give --data "
                        "the folder whose sub-folders are the classes, with only images in each."
                    )
                else:
                    paths.append(path)
                    labels.append(entry.name)
            if not labels or labels[-1] != entry.name:
                raise DataError(
                    f"{printable(str(entry))} holds no image. Remove it, or put its images there."
                )
    if not paths:
        raise DataError(f"{folder} holds no sub-folder with images. {remedy}")
    return ListedImages(paths, labels, skipped)


def _list_images(folder: Path, remedy: str) -> list[Path]:
    with refusing(printable(str(folder)), remedy):
        return sorted(folder.iterdir())


def list_csv(path: Path) -> ListedImages:
    """List the images of a csv with the header `file,label`.

    Spaces before a cell are no part of it, so names of files must not begin with one.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the csv has another header, a row without file or label, a file that leads out of
        its folder, or one that is named twice.
    """
    remedy = f"Give it the header {','.join(HEADER)} and a row for every image."
    rows = read_csv(path, remedy)
    if not rows or [cell.strip().lower() for cell in rows[0][1]] != HEADER:
        raise DataError(f"{path} does not begin with {','.join(HEADER)}. {remedy}")
    lines: dict[str, int] = {}
    labels = []
    wrong = [line for line, cells in rows[1:] if not _is_row(cells)]
    if wrong:
        which = "the only such row" if len(wrong) == 1 else f"the first of {len(wrong):,} such rows"
        raise DataError(
            f"{path}, line {wrong[0]}, does not have a file and a label, {which}. {remedy} A "
            "label such as NA is a missing value; give a class of that name another one."
        )
    for line, cells in rows[1:]:
        if leads_outside(cells[0]):
            raise DataError(
                f"{path}, line {line}: {cells[0]!a} leads out of the csv's folder. Put the csv "
                "beside or above its images."
            )
        file = posixpath.normpath(cells[0])
        if file in lines:
            raise DataError(
                f"{path}, line {line}, names {cells[0]!a} again, after line {lines[file]}. Name "
                "every image once."
            )
        lines[file] = line
        if len(cells[1].strip().splitlines()) > 1:
            raise DataError(
                f"{path}, line {line}: a label of several lines. Close its quotation mark."
            )
        labels.append(cells[1].strip())
    if not lines:
        raise DataError(f"{path} names no image. {remedy}")
    return ListedImages([path.parent / file for file in lines], labels, Counter())


def _is_row(cells: Sequence[str]) -> bool:
    return len(cells) == 2 and bool(cells[0].strip()) and not is_missing(cells[1])
