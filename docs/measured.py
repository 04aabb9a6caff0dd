"""What the site's tables say of a strategy, read from the pages on which they stand."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from everlight.continual.registry import METHODS

ROOT = Path(__file__).parents[1]
PAGES = {
    "costs.md": ROOT / "docs" / "costs.md",
    **{f"results/{path.name}": path for path in sorted((ROOT / "docs" / "results").glob("*.md"))},
    "performance.md": ROOT / "docs" / "performance.md",
    "guide/runner.md": ROOT / "docs" / "guide" / "runner.md",
}
"""Pages of the site with tables of strategies, and their files."""
OTHER_NAMES = {"finetune": "naive"}
"""Of methods, as papers have them."""
STRATEGIES = "everlight.continual.strategies"


class MeasuredTable(NamedTuple):
    """A table whose rows are strategies; lines are Markdown."""

    page: str
    heading: str
    header: str
    rule: str
    rows: tuple[str, ...]


def measured_of(file: str) -> str:
    """Rows of the strategies of a file of `continual.strategies`, each below its table's head."""
    parts = []
    for table in tables():
        rows = [row for row in table.rows if _file_of(row) == file]
        if rows:
            title = table.heading.replace("`", "")
            link = f"[{title}](../{table.page}#{_anchor(title)})"
            parts.append("\n".join([f"{link}:\n", table.header, table.rule, *rows]))
    if not parts:
        return "No table has a row of it.\n"
    return "\n\n".join(parts) + "\n"


def tables() -> Iterator[MeasuredTable]:
    """All tables of strategies, in the order of the pages."""
    for page, path in PAGES.items():
        heading, lines = "", path.read_text(encoding="utf-8").splitlines()
        for place, line in enumerate(lines):
            if line.startswith("#"):
                heading = line.lstrip("# ")
            elif re.match(r"\| (strategy|method) \|", line):
                end = next(
                    (n for n in range(place, len(lines)) if not lines[n].startswith("|")),
                    len(lines),
                )
                rows = tuple(lines[place + 2 : end])
                yield MeasuredTable(page, heading, line, lines[place + 1], rows)


def _anchor(heading: str) -> str:
    """As Markdown's table of contents names it."""
    words = re.sub(r"[^\w\s-]", "", heading).strip().lower()
    return re.sub(r"[-\s]+", "-", words)


def _file_of(row: str) -> str | None:
    """The file of the strategy that a row is of; its first cell may go on after a comma."""
    cell = row.split("|")[1].strip()
    known = {name.casefold(): name for name in METHODS} | OTHER_NAMES
    for name in (cell, re.split(r" \(", cell)[0], re.split(r", | \(", cell)[0]):
        if name.casefold() in known:
            return _files()[known[name.casefold()]]
    return None


def _files() -> dict[str, str]:
    """By method, the file of the strategy that its row of the table of methods makes."""
    return {name: method.factory.__module__.rpartition(".")[2] for name, method in METHODS.items()}
