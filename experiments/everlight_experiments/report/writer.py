"""The one report writer: a self-contained HTML page of text, tables and embedded pictures."""

import base64
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from everlight_data.formats.tables import read_json
from everlight_data.runs.configs import RESTORE
from everlight_data.runs.folders import ReportTexts, write_report_texts
from everlight_data.writing import FOLDER_GONE, written_whole

PUBLISHED_GROUP = "paper"
"""Group of a table's columns that hold the paper's own numbers."""


@dataclass(frozen=True)
class Column:
    """A table's column; `group` names a heading shared with its neighbours.

    Columns of `PUBLISHED_GROUP` hold the paper's own numbers and are set apart everywhere.
    """

    name: str
    group: str = ""
    meaning: str = ""
    """A definition, which stands in the caption where the column is shown."""


@dataclass(frozen=True)
class Table:
    """Rows of ready strings under columns; the first column names the row.

    A report leaves out other columns that hold only –.
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
        runs = itertools.groupby(column.group for column in self.columns)
        return [(name, len(list(run))) for name, run in runs]

    @property
    def shown(self) -> "Table":
        """Return the table without columns that hold only –; its caption defines the others."""
        if any(len(row) != len(self.columns) for row in self.rows):
            return self
        places = [
            place
            for place in range(len(self.columns))
            if place == 0 or not self.rows or any(row[place] != "–" for row in self.rows)
        ]
        columns = [self.columns[place] for place in places]
        rows = [[row[place] for place in places] for row in self.rows]
        meanings = dict.fromkeys(column.meaning for column in columns)
        marks = [
            meaning
            for mark, meaning in self.marks.items()
            if any(mark in cell for row in rows for cell in row)
        ]
        caption = " ".join(filter(None, (self.caption, *meanings, *marks)))
        return replace(self, caption=caption, columns=columns, rows=rows)


@dataclass(frozen=True)
class Figure:
    """A PNG file and the sentence under it."""

    caption: str
    path: Path

    @property
    def source(self) -> str:
        """Return the picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode()


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, and tables and figures in order."""

    title: str
    paragraphs: Sequence[str] = ()
    items: Sequence[Table | Figure] = field(default_factory=list)


@dataclass(frozen=True)
class Summary:
    """The result before all details: at most three sentences, one figure and one table.

    The sentences are computed from the results, so that they agree with them.
    """

    sentences: tuple[str, ...]
    """The question, the best method with its interval, and the baseline."""
    figure: Figure
    table: Table
    below: tuple[str, ...] = ()
    """Further sentences, each a paragraph under the table."""


class Report(NamedTuple):
    """Content of a report."""

    summary_rows: Sequence[tuple[str, str]]
    """Names and values of the rows about data, seeds and selection."""
    sections: Sequence[Section] = ()
    summary: Summary | None = None
    """Opening of the report."""


def write_report(folder: Path, title: str, report: Report) -> Path:
    """Write report.html and report.json into a run's folder; config.json is shown at the end.

    Raises:
      ValueError: no summary row states how values were selected.
    """
    if not any("selection rule" in name.lower() for name, _ in report.summary_rows):
        raise ValueError(f"the report {title!r} states no selection rule")
    path, config = folder / "report.html", folder / "config.json"
    remedy = RESTORE if config.exists() else FOLDER_GONE
    write_page(
        path,
        title=title,
        report=report,
        config=json.dumps(read_json(config, remedy), indent=2),
        paper=PUBLISHED_GROUP,
    )
    sentences = report.summary.sentences if report.summary else ()
    write_report_texts(folder, ReportTexts(title, " ".join(sentences)))
    print(f"report: {path}")
    return path


def file_name(name: str) -> str:
    """Return a name as it stands in the name of a file, with _ in place of other characters."""
    return re.sub(r"[^\w.,+-]+", "_", name)


def file_names(names: Sequence[str]) -> dict[str, str]:
    """Return each name as it stands in the name of a file, numbered where two would be equal.

    Such are "nearest mean" and a method of a user's that is named "nearest_mean".
    """
    files = {name: file_name(name) for name in names}
    if len(set(files.values())) < len(files):
        files = {name: f"{number:02d}_{file}" for number, (name, file) in enumerate(files.items())}
    return files


def write_page(path: Path, **values: Any) -> None:
    """Write a page, whole or not at all, from the template of its name in `pages/`.

    The template shows the values, `title` among them; all text in them is escaped. Sentences show
    options and text between backticks as code.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("everlight_experiments.report", "pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["sentence"] = _sentence
    page = environment.get_template(path.name).render(values)
    with written_whole(path) as unfinished:
        # A folder's name may hold bytes that are not valid text.
        unfinished.write_text(page, encoding="utf-8", errors="backslashreplace")


CODE = re.compile(r"`([^`]+)`|(?<![\w-])(--[a-z][a-z-]*[a-z])")
"""Text between backticks, and options."""


def _sentence(text: str) -> Markup:
    """Return a sentence as HTML, escaped, with options and text between backticks as code."""
    return Markup(CODE.sub(r"<code>\1\2</code>", str(escape(text))))
