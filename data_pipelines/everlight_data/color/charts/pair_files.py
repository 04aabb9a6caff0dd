"""Raw files of pairs: FOLDER holds `main/` and `second/` with one file per pair in each.

The names of a pair differ only in the extension.
"""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from everlight.illuminant.pair_inputs import VIEWS
from everlight_data.color.raw_files.raw import MAX_BYTES
from everlight_data.errors import DataError
from everlight_data.formats.files import read_bytes
from everlight_data.texts import one_line

MIN_PAIRS = 6
"""Minimum number of pairs, and of scenes, of a calibration."""


class PairFiles(NamedTuple):
    """One scene's raw files with the checksums that identify their measurements."""

    name: str
    main: Path
    second: Path
    checksums: Mapping[str, int]


def find_pairs(folder: Path) -> list[PairFiles]:
    """Return the raw files of `main` and `second`, paired by name.

    Raises:
      DataError: a folder is missing, a file has no partner, a name occurs twice, or there are too
        few pairs.
    """
    files = {}
    for view in VIEWS:
        if not (folder / view).is_dir():
            raise DataError(
                f"{folder / view} is not a folder; put the {view} camera's raw files there"
            )
        paths = [path for path in (folder / view).iterdir() if path.is_file()]
        paths.sort(key=lambda path: path.stem)
        paths = [path for path in paths if not path.name.startswith(".")]
        files[view] = {path.stem: path for path in paths}
        if len(files[view]) < len(paths):
            raise DataError(
                f"{folder / view} has two files whose names differ only in the extension; "
                "leave one of them there"
            )
    unpaired = sorted(files["main"].keys() ^ files["second"].keys())
    if unpaired:
        raise DataError(
            f"{folder}: {one_line(', '.join(unpaired))} in only one of main and second; the files "
            "of a pair have the same name in both"
        )
    if (count := len(files["main"])) < MIN_PAIRS:
        raise DataError(
            f"{folder} has {count} pair{'s' * (count != 1)}; {MIN_PAIRS} under different "
            "illuminants are the minimum, and thirty are better"
        )
    return [
        PairFiles(name, *paths, dict(zip(VIEWS, map(_checksum, paths), strict=True)))
        for name, paths in ((name, [files[view][name] for view in VIEWS]) for name in files["main"])
    ]


def _checksum(path: Path) -> int:
    return zlib.crc32(read_bytes(path, MAX_BYTES, ""))
