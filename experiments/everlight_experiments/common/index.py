"""`everlight report`: one page over all runs below a folder, with links."""

import datetime
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jinja2

from everlight_data.errors import DataError
from everlight_data.files import read_json, read_text, refusing
from everlight_data.writing import written_whole
from everlight_experiments.common.report import CAME_OUT
from everlight_experiments.common.sortable import SORTING, SORTING_STYLE


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
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(_TEMPLATE).render(
        entries=entries,
        sorting=SORTING,
        sorting_style=SORTING_STYLE,
    )
    path = settings.runs / "index.html"
    with written_whole(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8", errors="backslashreplace")
    print(f"{len(entries)} runs: {path}")
    return path


def _entry(folder: Path) -> Entry:
    report = folder / "report.html"
    finished = report.is_file()
    changed = (report if finished else folder / "config.json").stat().st_mtime
    when = datetime.datetime.fromtimestamp(changed, datetime.UTC).strftime("%Y-%m-%d %H:%M")
    try:
        preset = _preset(folder / "config.json")
        headline, came_out = _said(report) if finished else ("not finished", "")
    except DataError as error:
        preset, headline, came_out = "?", str(error), ""
    return Entry(folder.name, preset, when, headline, came_out, finished)


def _preset(config: Path) -> str:
    way_out = "Run it again, or delete its folder."
    content = read_json(config, way_out)
    with refusing(config, way_out):
        return str(content["settings"].get("preset", "–"))


def _said(report: Path) -> tuple[str, str]:
    """The report's own heading and its first sentence, as text."""
    page = read_text(report, "Run it again.")
    heading = re.search(r"<h1>(.*?)</h1>", page, re.DOTALL)
    sentence = re.search(rf'<p class="{CAME_OUT}">(.*?)</p>', page, re.DOTALL)
    return (
        html.unescape(heading[1]) if heading else "no heading",
        html.unescape(sentence[1]) if sentence else "",
    )


_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Runs</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 15px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
         max-width: 1240px; margin: 2.5rem auto 5rem; padding: 0 1.25rem; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
  th, td { padding: .35rem 1.2rem .35rem 0; text-align: left; vertical-align: top;
           border-bottom: 1px solid #8884; }
  td:nth-child(3) { white-space: nowrap; }
  {{ sorting_style | safe }}
</style></head><body>
<h1>Runs</h1>
<div class="scroll"><table><thead>
<tr><th>run</th><th>preset</th><th>when (UTC)</th><th>report</th></tr></thead><tbody>
{% for entry in entries %}<tr><td>{{ entry.name }}</td><td>{{ entry.preset }}</td>
<td>{{ entry.when }}</td><td>
{%- if entry.finished %}<a href="./{{ entry.name | urlencode }}/report.html">
{{- entry.headline }}</a>{% else %}{{ entry.headline }}{% endif %}
{%- if entry.came_out %}<br>{{ entry.came_out }}{% endif %}</td></tr>
{% endfor %}</tbody></table></div>
<script>{{ sorting | safe }}</script>
</body></html>
"""
