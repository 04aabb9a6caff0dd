"""Folders of runs: what each holds, for a list of all."""

import datetime
import html
import re
from pathlib import Path
from typing import NamedTuple

from everlight_data.errors import DataError
from everlight_data.formats.files import read_text, refusing
from everlight_data.formats.tables import read_json

_REMEDY = "Run it again, or delete its folder."


class RunEntry(NamedTuple):
    """A run in a list."""

    when: str
    name: str
    preset: str
    headline: str
    """Heading of its report, or the reason why there is none."""
    first_sentence: str
    """First sentence of its report; empty where there is none."""
    finished: bool


def list_runs(folder: Path) -> list[RunEntry]:
    """Return the runs below a folder, the newest first; damage is stated in the headline."""
    folders = [path.parent for path in folder.glob("*/config.json")]
    return sorted(map(_entry, folders), reverse=True)


def _entry(folder: Path) -> RunEntry:
    report, config = folder / "report.html", folder / "config.json"
    finished = report.is_file()
    changed = (report if finished else config).stat().st_mtime
    when = datetime.datetime.fromtimestamp(changed, datetime.UTC).strftime("%Y-%m-%d %H:%M")
    try:
        content = read_json(config, _REMEDY)
        with refusing(config, _REMEDY):
            preset = str(content["settings"].get("preset", "–"))
        page = read_text(report, _REMEDY) if finished else "<h1>not finished</h1>"
        headline = _text_of("h1", page) or "no heading"
        first_sentence = _text_of('p class="summary"', page)
    except DataError as error:
        preset, headline, first_sentence = "?", str(error), ""
    return RunEntry(when, folder.name, preset, headline, first_sentence, finished)


def _text_of(tag: str, page: str) -> str:
    """Return the text within the first element of a tag; empty where there is none."""
    match = re.search(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
    return html.unescape(match[1]) if match else ""
