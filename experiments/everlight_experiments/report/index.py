"""`everlight report`: one page over all runs below a folder, with links."""

import datetime
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from everlight_data.errors import DataError
from everlight_data.files import read_json, read_text, refusing
from everlight_experiments.report.writer import write_page

WAY_OUT = "Run it again, or delete its folder."


@dataclass(frozen=True)
class ReportsSettings:
    """Write a page that lists all runs with preset, time, result and report."""

    runs: Path = Path("runs")
    """Folder of the run folders, where the page is written."""


class Entry(NamedTuple):
    """A run's row."""

    name: str
    preset: str
    when: str
    headline: str
    """Path of its report, or the reason why there is none."""
    came_out: str
    """Its report's first sentence; empty where there is none."""
    finished: bool


def write_index(settings: ReportsSettings) -> Path:
    """Writes index.html into the folder of runs, newest first.

    Raises:
      DataError: there is no such folder, or no run in it.
    """
    if not settings.runs.is_dir():
        raise DataError(f"--runs {settings.runs}: no such folder; name the one that runs are in")
    folders = [path.parent for path in settings.runs.glob("*/config.json")]
    if not folders:
        raise DataError(f"--runs {settings.runs} holds no run, which would have a config.json")
    entries = sorted(map(_entry, folders), key=lambda entry: (entry.when, entry.name), reverse=True)
    path = settings.runs / "index.html"
    write_page(path, title="Runs", entries=entries)
    print(f"{len(entries)} runs: {path}")
    return path


def _entry(folder: Path) -> Entry:
    report, config = folder / "report.html", folder / "config.json"
    finished = report.is_file()
    changed = (report if finished else config).stat().st_mtime
    when = datetime.datetime.fromtimestamp(changed, datetime.UTC).strftime("%Y-%m-%d %H:%M")
    try:
        content = read_json(config, WAY_OUT)
        with refusing(config, WAY_OUT):
            preset = str(content["settings"].get("preset", "–"))
        headline, came_out = _said(report) if finished else ("not finished", "")
    except DataError as error:
        preset, headline, came_out = "?", str(error), ""
    return Entry(folder.name, preset, when, headline, came_out, finished)


def _said(report: Path) -> tuple[str, str]:
    """The report's own heading and its first sentence, as text."""
    page = read_text(report, WAY_OUT)
    heading = re.search(r"<h1>(.*?)</h1>", page, re.DOTALL)
    sentence = re.search(r'<p class="came-out">(.*?)</p>', page, re.DOTALL)
    return (
        html.unescape(heading[1]) if heading else "no heading",
        html.unescape(sentence[1]) if sentence else "",
    )
