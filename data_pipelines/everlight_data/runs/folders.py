"""Folders of runs: what each holds, for a list of all."""

import datetime
import json
from pathlib import Path
from typing import NamedTuple

from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.formats.tables import read_json
from everlight_data.writing import written_whole

_REMEDY = "Run it again, or delete its folder."
_SUMMARY = "report.json"
"""File beside a run's report with the texts of it that a list of runs shows."""


class ReportTexts(NamedTuple):
    """Texts of a run's report that a list of runs shows."""

    headline: str
    """Heading of the report."""
    first_sentence: str
    """First sentences of the report; empty where it has no summary."""


def write_report_texts(folder: Path, texts: ReportTexts) -> None:
    """Write report.json into a run's folder, for `list_runs`.

    Raises:
      DataError: the file cannot be written.
    """
    with written_whole(folder / _SUMMARY) as unfinished:
        unfinished.write_text(json.dumps(texts._asdict(), indent=2))


class RunEntry(NamedTuple):
    """A run in a list."""

    when: str
    name: str
    preset: str
    headline: str
    """Heading of its report, or the reason why there is none."""
    first_sentence: str
    """First sentences of its report; empty where there is none."""
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
        texts = _read_report_texts(folder) if finished else ReportTexts("not finished", "")
    except DataError as error:
        preset, texts = "?", ReportTexts(str(error), "")
    return RunEntry(when, folder.name, preset, *texts, finished)


def _read_report_texts(folder: Path) -> ReportTexts:
    """Return the texts of a folder's report.json."""
    path = folder / _SUMMARY
    content = read_json(path, _REMEDY)
    with refusing(path, _REMEDY):
        texts = ReportTexts(**content)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("its values are not texts")
    return texts
