"""Files of releases of photographs with measured illuminants, at any depth of a folder."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight_data.color.photographs.linear_pictures import checked_illuminants
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import read_text, refusing


def only_file(folder: Path, pattern: str, source: str) -> Path:
    """Return the one file at any depth whose name fits a pattern.

    Raises:
      MissingDataError: there is none.
      DataError: there are several.
    """
    paths = files_below(folder, pattern)
    if not paths:
        raise MissingDataError(f"{folder} has no {pattern} below it. Download it from {source}.")
    if len(paths) > 1:
        raise DataError(
            f"{folder} has several files {pattern}, {paths[0]} and {paths[1]}; keep the release's."
        )
    return paths[0]


def files_below(folder: Path, pattern: str) -> list[Path]:
    """Return the files at any depth whose name fits a pattern in lower case, in any case."""
    return sorted(path for path in folder.rglob("*") if fnmatchcase(path.name.lower(), pattern))


def files_by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by their names in lower case without the ending; folders are not looked at.

    Raises:
      DataError: two files have one name.
    """
    files: dict[str, Path] = {}
    for path in sorted(paths):
        first = files.setdefault(path.stem.lower(), path)
        if first != path:
            raise DataError(f"{path} and {first} have one name; remove one of them.")
    return files


def read_illuminants(path: Path, source: str) -> Float[np.ndarray, "n 3"]:
    """Return the illuminants of a text file, one per line, separated by spaces or commas."""
    remedy = f"It should hold R G B on each line. Download it again from {source}."
    text = read_text(path, remedy).replace(",", " ")
    with refusing(path, remedy):
        return checked_illuminants(
            np.array([line.split() for line in text.splitlines() if line], float)
        )
