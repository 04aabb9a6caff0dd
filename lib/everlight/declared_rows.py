"""Rows that files of packages declare at their end, such as a network's or an estimator's."""

import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from everlight.errors import ArgumentError


def declared_rows(
    packages: Sequence[ModuleType], constant: str, first: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the rows of all files of packages by the rows' field `name`.

    Args:
      packages: packages whose files are imported, in their order.
      constant: name of the tuple of rows; a file without it has none.
      first: names of files in the order of their rows; other files follow by name.

    Raises:
      ValueError: two rows have one name; the message has the files of both.
    """
    rows, files = {}, {}
    for package in packages:
        names = {entry.name for entry in pkgutil.iter_modules(package.__path__)}
        ordered = [name for name in first if name in names] + sorted(names - {*first})
        for name in ordered:
            file = f"{package.__name__}.{name}"
            for row in getattr(importlib.import_module(file), constant, ()):
                if row.name in rows:
                    raise ArgumentError(
                        f"{files[row.name]} and {file} declare {row.name!r}; rename one"
                    )
                rows[row.name], files[row.name] = row, file
    return rows
