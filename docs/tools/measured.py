"""Tables of measured numbers, and the manifest that states the source of each table.

`measured.toml` has an entry for every table: command, commit and date, and a checksum of the rows.

    python -m docs.tools.measured     # writes the checksums of the tables as they are now
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from everlight.continual.methods.registry import METHODS

ROOT = Path(__file__).parents[2]
MANIFEST = Path(__file__).with_name("measured.toml")
OTHER_NAMES = {"finetune": "naive", "none": "naive", "sgd": "naive"}
"""Names in this project of methods that papers name otherwise."""
METHOD_CELL = re.compile(r"(?:strategy|method)\b")
"""Beginning of the header of a column of methods, the first or second column of its table."""
STRATEGIES = "everlight.continual.strategies"
ENTRY = re.compile(r"^(?=\[\[table\]\])", re.MULTILINE)
CHECKSUM_DIGITS = 12


class Table(NamedTuple):
    """A table of a page; lines are Markdown."""

    page: str
    """Path below docs/pages, or README.md."""
    heading: str
    header: str
    rule: str
    rows: tuple[str, ...]
    end: int
    """Number of lines of the page up to the last row."""


class Entry(NamedTuple):
    """An entry of the manifest, whose comments describe the fields."""

    page: str
    heading: str
    commit: str
    date: date
    checksum: str
    header: str = ""
    first: str = ""
    command: str = ""
    former: str = ""
    missing: str = ""
    since: str = ""
    rows: Mapping[str, Sequence[str]] = MappingProxyType({})
    seeds: str = ""
    machine: str = ""
    once: str = ""
    note: str = ""

    @property
    def commands(self) -> list[str]:
        """Return the commands of today's version."""
        return self.command.strip().splitlines()

    @property
    def source(self) -> str:
        """Return a sentence for the site: date, commit and command of the table."""
        by = "; ".join(f"`{command}`" for command in self.commands)
        if self.former:
            by = f"`{self.former}`, which later versions do not have"
        commits = f"{self.commit}, oldest rows {self.since}" if self.since else self.commit
        for commit, methods in self.rows.items():
            commits += f", {' and '.join(methods)} {commit}"
        day = f"{self.date:%d %B %Y}".lstrip("0")
        what = (by or self.missing).rstrip(".")
        return f"*Recorded {day}, commit {commits}: {what}. {self.note}".rstrip() + "*"


def entries() -> list[Entry]:
    """Return all entries of the manifest."""
    with MANIFEST.open("rb") as file:
        return [Entry(**table) for table in tomllib.load(file)["table"]]


def pages() -> dict[str, Path]:
    """Return the paths of all Markdown pages by name."""
    docs = ROOT / "docs" / "pages"
    paths = sorted(docs.rglob("*.md"))
    return {"README.md": ROOT / "README.md"} | {str(path.relative_to(docs)): path for path in paths}


def tables_in(page: str, text: str) -> Iterator[Table]:
    """Yield the tables of a page's text, without those in code."""
    heading, fenced, lines = "", False, text.splitlines()
    for number, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if fenced:
            continue
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif re.fullmatch(r"\|[\s:|-]*-[\s:|-]*", line) and number:
            end = next(
                (n for n in range(number, len(lines)) if not lines[n].startswith("|")), len(lines)
            )
            rows = tuple(lines[number + 1 : end])
            yield Table(page, heading, lines[number - 1], line, rows, end)


def all_tables() -> list[Table]:
    """Return the tables of all pages, in their order."""
    return [
        table
        for page, path in pages().items()
        for table in tables_in(page, path.read_text(encoding="utf-8"))
    ]


def names_table(entry: Entry, table: Table) -> bool:
    """Return True if an entry names a table."""
    return (
        (entry.page, entry.heading) == (table.page, table.heading)
        and table.header.removeprefix("| ").startswith(entry.header)
        and entry.first in ("", *(row.split("|")[1].strip() for row in table.rows[:1]))
    )


def checksum(table: Table) -> str:
    """Return a short SHA-256 of the rows, which ignores the widths of cells."""
    rows = "\n".join(" ".join(row.split()) for row in table.rows)
    return hashlib.sha256(rows.encode()).hexdigest()[:CHECKSUM_DIGITS]


def renew_manifest(manifest: str, tables: Iterable[Table]) -> tuple[str, list[Entry]]:
    """Return a manifest's text with the checksums of the present tables, and the changed entries.

    Raises:
      ValueError: an entry that does not name exactly one table.
    """
    known, changed = list(tables), []
    head, *blocks = ENTRY.split(manifest)
    for number, block in enumerate(blocks):
        entry = Entry(**tomllib.loads(block)["table"][0])
        hits = [table for table in known if names_table(entry, table)]
        if len(hits) != 1:
            raise ValueError(f"{len(hits)} tables of {entry.page}, {entry.heading}, {entry.header}")
        now = checksum(hits[0])
        if now != entry.checksum:
            changed.append(entry)
            old, new = (f'checksum = "{digest}"' for digest in (entry.checksum, now))
            blocks[number] = block.replace(old, new)
    return head + "".join(blocks), changed


def add_sources(text: str, page: str) -> str:
    """Return a page's text with a line below every measured table that states its source."""
    lines, known = text.splitlines(), entries()
    for table in reversed(list(tables_in(page, text))):
        lines[table.end : table.end] = [
            line for entry in known if names_table(entry, table) for line in ("", entry.source)
        ]
    return "\n".join(lines) + "\n"


def measured_rows(file: str) -> str:
    """Return the measured rows of the strategies of a file, each below the header of its table."""
    files, parts = _files(), []
    for table in tables():
        rows = [row for row in table.rows if files.get(method_of(table, row)) == file]
        if rows:
            title = table.heading.replace("`", "")
            link = f"[{title}](../{table.page}#{_anchor(title)})"
            parts.append("\n".join([f"{link}:\n", table.header, table.rule, *rows]))
    if not parts:
        return "No table has a row of it.\n"
    return "\n\n".join(parts) + "\n"


def pages_of_methods() -> dict[str, dict[str, str]]:
    """Return, by method, the pages that have measured rows of it, each with a link to the first."""
    links: dict[str, dict[str, str]] = {name: {} for name in METHODS}
    for table in tables():
        link = f"{table.page}#{_anchor(table.heading)}"
        for name in filter(None, (method_of(table, row) for row in table.rows)):
            links[name].setdefault(table.page, link)
    return links


def tables() -> Iterator[Table]:
    """Yield the pages' measured tables whose rows are strategies; README repeats one of them."""
    known = entries()
    for table in all_tables():
        if table.page == "README.md" or _method_column(table) is None:
            continue
        if any(names_table(entry, table) for entry in known):
            yield table


def method_of(table: Table, row: str) -> str | None:
    """Return the name of a row's method, which its cell names, perhaps before a comma."""
    column = _method_column(table)
    if column is None:
        return None
    cell = _cells(row)[column].replace("\\", "")
    known = {name.casefold(): name for name in METHODS} | OTHER_NAMES
    for name in (cell, re.split(r" \(", cell)[0], re.split(r", | \(", cell)[0]):
        if name.casefold() in known:
            return known[name.casefold()]
    return None


def _method_column(table: Table) -> int | None:
    heads = _cells(table.header)[:2]
    return next((place for place, head in enumerate(heads) if METHOD_CELL.match(head)), None)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")[1:-1]]


def _anchor(heading: str) -> str:
    """Return the anchor that Markdown's table of contents gives a heading."""
    words = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def _files() -> dict[str, str]:
    """Return the file of each method's strategy, by name of the method."""
    return {name: method.factory.__module__.rpartition(".")[2] for name, method in METHODS.items()}


def main() -> None:
    """Write the checksums, and print the entries of tables that changed, which need a check."""
    text, changed = renew_manifest(MANIFEST.read_text(encoding="utf-8"), all_tables())
    MANIFEST.write_text(text, encoding="utf-8")
    for entry in changed:
        print(f"{entry.page}, {entry.heading}: are its command, commit and date the new numbers'?")


if __name__ == "__main__":
    main()
