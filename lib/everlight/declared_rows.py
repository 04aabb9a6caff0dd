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
        for file in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{file.name}")
            for row in getattr(module, constant, ()):
                if row.name in rows:
                    both = f"{files[row.name]} and {module.__name__}"
                    raise ArgumentError(f"{both} both declare {row.name!r}; rename one of them")
                rows[row.name], files[row.name] = row, module.__name__
    return rows
