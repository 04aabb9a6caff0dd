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

    when: str
    name: str
    preset: str
    headline: str
    """Heading of its report, or the reason why there is none."""
    first_sentence: str
    """Of its report; empty where there is none."""
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
    entries = sorted(map(_entry, folders), reverse=True)
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
        page = read_text(report, WAY_OUT) if finished else "<h1>not finished</h1>"
        headline = _text_of("h1", page) or "no heading"
        first_sentence = _text_of('p class="came-out"', page)
    except DataError as error:
        preset, headline, first_sentence = "?", str(error), ""
    return Entry(when, folder.name, preset, headline, first_sentence, finished)


def _text_of(tag: str, page: str) -> str:
    """Return the text within the first element of a tag; empty where there is none."""
    found = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
    return html.unescape(found[1]) if found else ""
