"""The one report writer: a self-contained HTML page of text, tables and embedded pictures."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import jinja2

from everlight_data.writing import written_whole
from everlight_experiments.common.sortable import SORTING, SORTING_STYLE

PAPER = "paper"
CAME_OUT = "came-out"
"""The class of a page's first sentence, by which the page over all runs finds it."""


@dataclass(frozen=True)
class Column:
    """A table's column; `group` names a heading shared with its neighbours.

    Columns of the group PAPER hold the paper's own numbers and are set apart wherever they stand.
    """

    name: str
    group: str = ""
    meaning: str = ""
    """A definition, which stands in the caption where the column is shown."""


@dataclass(frozen=True)
class Table:
    """Rows of ready strings under columns; the first column names the row.

    A report leaves out the others where nothing but – stands in them.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    strong_rows: frozenset[int] = frozenset()
    marks: Mapping[str, str] = field(default_factory=dict)
    """Definitions of words and marks of cells, each in the caption where a cell has it."""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Runs of neighbouring columns with the same group, and their lengths."""
        runs: list[tuple[str, int]] = []
        for column in self.columns:
            if runs and runs[-1][0] == column.group:
                runs[-1] = (column.group, runs[-1][1] + 1)
            else:
                runs.append((column.group, 1))
        return runs


@dataclass(frozen=True)
class Figure:
    """A PNG file and the sentence under it."""

    caption: str
    path: Path

    @property
    def source(self) -> str:
        """The picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode()


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and tables and figures in order."""

    title: str
    paragraphs: Sequence[str] = ()
    items: Sequence[Table | Figure] = field(default_factory=list)


@dataclass(frozen=True)
class FirstScreen:
    """The result before all details: at most three sentences, one figure and one table.

    The sentences are computed from the results, so that they agree with them.
    """

    sentences: tuple[str, ...]
    """The question, the best method with its interval, and the baseline."""
    figure: Figure
    table: Table
    below: tuple[str, ...] = ()
    """Further sentences, each a paragraph under the table."""


def write_report(
    folder: Path,
    title: str,
    summary: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    first: FirstScreen | None = None,
) -> Path:
    """Writes report.html into a run's folder.

    Args:
      folder: the run's folder, whose config.json is shown at the end.
      title: heading of the page.
      summary: the facts every report owes: data used, selection rule, seeds, duration.
      sections: the body.
      first: the result, which stands under the heading.

    Raises:
      ValueError: the summary does not say how what was chosen was chosen.
    """
    if not any("selection rule" in name.lower() for name, _ in summary):
        raise ValueError(f"the report {title!r} states no selection rule")
    sections = [
        replace(section, items=[_told(item) for item in section.items]) for section in sections
    ]
    first = first and replace(first, table=_told(first.table))
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.tests["table"] = lambda item: isinstance(item, Table)
    config = json.dumps(json.loads((folder / "config.json").read_text()), indent=2)
    page = environment.from_string(_TEMPLATE).render(
        title=title,
        first=first,
        summary=summary,
        sections=sections,
        config=config,
        paper=PAPER,
        came_out=CAME_OUT,
        sorting=SORTING,
        sorting_style=SORTING_STYLE,
    )
    path = folder / "report.html"
    with written_whole(path) as unfinished:
        # A folder's name may hold bytes that are no text.
        unfinished.write_text(page, encoding="utf-8", errors="backslashreplace")
    print(f"report: {path}")
    return path


def _told(item: Table | Figure) -> Table | Figure:
    """Return a table without columns of dashes alone, its caption with what defines the rest."""
    if not isinstance(item, Table) or any(len(row) != len(item.columns) for row in item.rows):
        return item
    kept = [
        place
        for place in range(len(item.columns))
        if place == 0 or not item.rows or any(row[place] != "–" for row in item.rows)
    ]
    columns = [item.columns[place] for place in kept]
    rows = [[row[place] for place in kept] for row in item.rows]
    meanings = dict.fromkeys(column.meaning for column in columns if column.meaning)
    marks = [
        meaning
        for mark, meaning in item.marks.items()
        if any(mark in cell for row in rows for cell in row)
    ]
    caption = " ".join(filter(None, (item.caption, *meanings, *marks)))
    return replace(item, caption=caption, columns=columns, rows=rows)


_TEMPLATE = """{% macro shown(item) %}
{% if item is table %}
<div class="scroll"><table><caption>{{ item.caption }}</caption><thead>
{% if item.groups | length > 1 %}<tr class="groups">
{% for name, span in item.groups %}<th colspan="{{ span }}"
{% if name == paper %}class="paper"{% endif %}>{{ name }}</th>{% endfor %}</tr>{% endif %}
<tr>{% for column in item.columns %}<th{% if column.group == paper %} class="paper"{% endif %}>
{{- column.name }}</th>{% endfor %}</tr></thead><tbody>
{% for row in item.rows %}<tr{% if loop.index0 in item.strong_rows %} class="strong"{% endif %}>
{% for cell in row %}<td{% if item.columns[loop.index0].group == paper %} class="paper"{% endif %}>
{{- cell }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% else %}
<figure><img src="{{ item.source }}" alt="{{ item.caption }}">
<figcaption>{{ item.caption }}</figcaption></figure>
{% endif %}
{%- endmacro -%}
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  :root { --ink: #1d2530; --soft: #5d6875; --line: #d9dee4; --paper: #8a5a00; --tint: #fdf7ea; }
  body { font: 15px/1.55 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; color: var(--ink);
         max-width: 1240px; margin: 2.5rem auto 5rem; padding: 0 1.25rem; }
  h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 1.2rem; }
  h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
  p { max-width: 46rem; }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: 0; }
  dt { color: var(--soft); } dd { margin: 0; }
  .scroll { overflow-x: auto; margin: 1.2rem 0 .3rem; }
  table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
  caption, figcaption { text-align: left; color: var(--soft); font-size: .86rem;
                        padding: 0 0 .5rem; max-width: min(60rem, calc(100vw - 2.5rem)); }
  th, td { padding: .2rem .45rem; text-align: right; border-bottom: 1px solid var(--line);
           white-space: nowrap; }
  th:first-child, td:first-child { text-align: left; }
  thead th { border-bottom: 1px solid var(--ink); font-weight: 600; vertical-align: bottom; }
  thead tr.groups th { border-bottom: 1px solid var(--line); text-align: center;
                       color: var(--soft); font-weight: 500; }
  .paper { color: var(--paper); background: var(--tint); }
  tr.strong td { font-weight: 600; }
  figure { margin: 1.4rem 0; } figure img { max-width: 100%; height: auto; }
  figcaption { padding-top: .4rem; }
  .{{ came_out }} { font-size: 1.1rem; max-width: 60rem; }
  .first { display: flex; flex-wrap: wrap; gap: 0 2rem; margin-bottom: 1.6rem; }
  .first > * { flex: 1 1 30rem; min-width: 0; }
  .first th { white-space: normal; } .first caption { max-width: min(34rem, 100vw - 2.5rem); }
  pre { font-size: .8rem; background: #f5f6f8; padding: 1rem; overflow-x: auto; }
  {{ sorting_style | safe }}
</style></head><body>
<h1>{{ title }}</h1>
{% if first %}<p class="{{ came_out }}">{{ first.sentences | join(" ") }}</p>
<div class="first">{{ shown(first.figure) }}{{ shown(first.table) }}</div>
{% for paragraph in first.below %}<p>{{ paragraph }}</p>{% endfor %}{% endif %}
<dl>{% for name, value in summary %}<dt>{{ name }}</dt><dd>{{ value }}</dd>{% endfor %}</dl>
{% for section in sections %}
<h2>{{ section.title }}</h2>
{% for paragraph in section.paragraphs %}<p>{{ paragraph }}</p>{% endfor %}
{% for item in section.items %}
{{ shown(item) }}
{% endfor %}
{% endfor %}
<h2>Settings and versions</h2>
<pre>{{ config }}</pre>
<script>{{ sorting | safe }}</script>
</body></html>
"""
