"""Readers of CSV and JSON files."""

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everlight_data.errors import DataError
from everlight_data.formats.files import MAX_TEXT_BYTES, read_bytes, read_text, refusing
from everlight_data.texts import one_line

MAX_ROWS = 2_000_000
"""Limit on the rows of a CSV; ImageNet has 1.3 million images."""


def read_json(path: Path, remedy: str, limit: int = MAX_TEXT_BYTES) -> Any:
    """Parse a JSON file; raises as `read_text` does, and DataError for invalid JSON."""
    text = read_text(path, remedy, limit)
    with refusing(path, remedy):
        return parse_json(text)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON whose objects have every name once.

    Raises:
      ValueError: the text is not JSON, or an object has a name twice.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; the parser itself would take the last of two equal names."""
    values = dict(pairs)
    if len(values) < len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the name {repeated!a} twice in an object")
    return values


def read_csv(path: Path, remedy: str) -> list[tuple[int, list[str]]]:
    """Return line number and cells of each non-empty CSV row, without spaces before the cells.

    Raises:
      MissingDataError, DataError: as for `read_text`, or there are more than `MAX_ROWS` rows.
    """
    content = io.BytesIO(read_bytes(path, MAX_TEXT_BYTES, remedy))
    lines = csv.reader(io.TextIOWrapper(content, "utf-8-sig", newline=""), skipinitialspace=True)
    with refusing(path, remedy):
        rows = ((lines.line_num, row) for row in lines if row)
        # A row takes some hundred bytes, however few it has in the file.
        table = list(itertools.islice(rows, MAX_ROWS + 1))
    if len(table) > MAX_ROWS:
        raise DataError(f"{path} has more than {MAX_ROWS:,} rows. {remedy}")
    return table


def read_columns(path: Path, columns: Sequence[str], remedy: str) -> list[tuple[str, ...]]:
    """Return the named columns of a CSV file with a header, without spaces around the cells.

    Raises:
      MissingDataError, DataError: as for `read_numbered_columns`.
    """
    return [cells for _, cells in read_numbered_columns(path, columns, remedy)]


def read_numbered_columns(
    path: Path, columns: Sequence[str], remedy: str
) -> list[tuple[int, tuple[str, ...]]]:
    """Return line number and named columns of each row, without spaces around the cells.

    Raises:
      MissingDataError, DataError: as for `read_csv`, or a column is missing or occurs twice, or a
        row has another number of cells than the header.
    """
    (_, header), *lines = read_csv(path, remedy) or [(0, [])]
    absent = [name for name in columns if name not in header]
    if absent:
        raise DataError(
            f"{path} lacks the columns {', '.join(absent)}; it has {one_line(header)}. {remedy}"
        )
    repeated = [name for name in columns if header.count(name) > 1]
    if repeated:
        raise DataError(f"{path} has the column {repeated[0]} twice; remove one. {remedy}")
    for number, line in lines:
        if len(line) != len(header):
            raise DataError(
                f"{path}, line {number} has {len(line)} cells, the header {len(header)}. {remedy}"
            )
    places = [header.index(name) for name in columns]
    return [(number, tuple(line[place].strip() for place in places)) for number, line in lines]
