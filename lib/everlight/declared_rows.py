"""Rows that files of packages declare at their end, such as a network's or an estimator's."""

import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from everlight.errors import ArgumentError


def declared_rows(packages: Sequence[ModuleType], constant: str) -> dict[str, Any]:
    """Return the rows of all files of packages by the rows' field `name`.

    Args:
      packages: packages whose files are imported, in their order and then by name.
      constant: name of the tuple of rows; a file without it has none.

    Raises:
      ValueError: two rows have one name; the message has the files of both.
    """
    rows, files = {}, {}
    for package in packages:
        for entry in pkgutil.iter_modules(package.__path__):
            file = f"{package.__name__}.{entry.name}"
            for row in getattr(importlib.import_module(file), constant, ()):
                if row.name in rows:
                    raise ArgumentError(f"{files[row.name]} and {file} both declare {row.name!r}")
                rows[row.name], files[row.name] = row, file
    return rows
