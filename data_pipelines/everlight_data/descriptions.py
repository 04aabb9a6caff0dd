"""Descriptions in JSON: of stored arrays, compared by value when these are read again."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from everlight_data.files import refusing
from everlight_data.writing import make_folder, read_sealed, save_sealed


def as_json(values: dict) -> dict:
    """Return values as they are read back from JSON: tuples become lists, other objects text."""
    return json.loads(json.dumps(values, default=str))


def json_checksum(values: dict) -> int:
    """Return the CRC-32 of values of JSON, whatever the order of their names."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def name_differences(stored: dict, chosen: dict) -> str:
    """Return the differences of two descriptions, for an error message; empty where they agree.

    Values of nested descriptions are named with dots.
    """
    return "; ".join(_differences(stored, as_json(chosen)))


def _differences(stored: dict, chosen: dict, before: str = "") -> Iterator[str]:
    """Yield a text for every value that differs."""
    for name in sorted(set(stored) | set(chosen)):
        there, now = stored.get(name), chosen.get(name)
        if isinstance(there, dict) and isinstance(now, dict):
            yield from _differences(there, now, f"{before}{name}.")
        elif there != now:
            yield f"{before}{name}: {there!r} there, {now!r} now"


def save_described(path: Path, name: str, facts: dict, **arrays: np.ndarray) -> None:
    """Write arrays with their name and description, whole or not at all.

    Args:
      path: file to write; its folder is created.
      name: name of the arrays, by which a copied file is recognized.
      facts: values of JSON that the arrays were computed from.

    Raises:
      DataError: the file cannot be written.
    """
    make_folder(path.parent)
    described = {"unit": name, "facts": facts}
    save_sealed(path, facts=np.array(json.dumps(described)), **arrays)


def read_described(path: Path, name: str, way_out: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Return description and arrays of a file that `save_described` wrote.

    Raises:
      MissingDataError: the file does not exist.
      DataError: it is not what was written, or is a copy of another file.
    """
    arrays = read_sealed(path, way_out)
    with refusing(path, way_out):
        described = json.loads(arrays.pop("facts").item())
        if described["unit"] != name:
            raise ValueError(f"a copy of {described['unit']}")
        return described["facts"], arrays
