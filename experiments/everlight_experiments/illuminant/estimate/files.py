"""The estimates of one photo or pair after the other, with a table of them and of failures."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from everlight_data.color.raw_files.corrections import Row, write_illuminants
from everlight_data.errors import DataError, MissingPackageError
from everlight_data.progress import progress


class FileEstimate(NamedTuple):
    """The estimate of a photo or pair.

    Attributes:
      path: photo or main file.
      result: estimate with its `warnings`.
      row: row of the table of illuminants.
      lines: sentences to print.
    """

    path: Path
    result: Any
    row: Row
    lines: Sequence[str]


def estimate_files(
    kind: str, files: Sequence[Any], estimate: Callable[[Any], FileEstimate], output: Path
) -> list[Any]:
    """Return the results of all photos or pairs, printed and written as a table into a folder.

    Args:
      kind: "photos" or "pairs".
      files: photos, or main and second files.
      estimate: reads, estimates and corrects one of them; a `DataError` is the reason for none.
      output: folder of illuminants.csv.

    Raises:
      DataError: one or more have no estimate; the others are written.
      MissingPackageError: a package is missing, which all files need.
    """
    single, units = len(files) == 1, files
    if not single:
        units = progress(kind, unit=kind.removesuffix("s"), values=files)
    estimates: list[FileEstimate] = []
    failures: list[DataError] = []
    try:
        for unit in units:
            try:
                estimates.append(estimate(unit))
            except MissingPackageError:
                raise
            except DataError as error:
                failures.append(error)
                if not single:
                    tqdm.write(f"NO ESTIMATE: {error}", file=sys.stderr)
                continue
            for line in estimates[-1].lines:
                tqdm.write(line)
            for warning in estimates[-1].result.warnings:
                tqdm.write(f"WARNING: {estimates[-1].path}: {warning}", file=sys.stderr)
    finally:
        # What was estimated before a signal is kept.
        if estimates:
            write_illuminants(output / "illuminants.csv", [one.row for one in estimates])
            print(f"illuminants: {output / 'illuminants.csv'}")
    if failures and single:
        raise failures[0]
    if failures:
        raise DataError(
            f"{len(failures)} of {len(files)} {kind} have no estimate, for the reasons "
            f"above; the first: {failures[0]}"
        )
    return [one.result for one in estimates]
