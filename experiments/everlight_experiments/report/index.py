"""`everlight report`: one page over all runs below a folder, with links."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from everlight_data.errors import DataError
from everlight_data.runs.folders import list_runs
from everlight_experiments.report.writer import write_page


@dataclass(frozen=True)
class ReportsOptions:
    """Write a page that lists all runs with preset, time, result and report."""

    runs: Path = Path("runs")
    """Folder of the run folders, where the page is written."""


def write_index(options: ReportsOptions) -> Path:
    """Write index.html into the folder of runs, newest first.

    Raises:
      DataError: there is no such folder, or no run in it.
    """
    if not options.runs.is_dir():
        raise DataError(f"--runs {options.runs}: no such folder; name the one that runs are in")
    entries = list_runs(options.runs)
    if not entries:
        raise DataError(f"--runs {options.runs} holds no run, which would have a config.json")
    path = options.runs / "index.html"
    # A folder's name may hold bytes that are not valid text.
    links = {entry.name: quote(os.fsencode(entry.name)) for entry in entries}
    write_page(path, title="Runs", entries=entries, links=links)
    print(f"{len(entries)} runs: {path}")
    return path
