"""Descriptions in JSON: of settings and stored arrays, compared by value when they are read."""

import contextlib
import dataclasses
import itertools
import json
import types
import typing
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import numpy as np

from everlight_data.formats.files import refusing
from everlight_data.formats.tables import parse_json
from everlight_data.names import check_name
from everlight_data.writing import make_folder, read_sealed, save_sealed


def as_json(values: dict) -> dict:
    """Return values as they are read back from JSON: tuples become lists, other objects text."""
    return json.loads(json.dumps(values, default=str))


def from_json(kind: Any, value: Any) -> Any:
    """Return a value of a type from what `as_json` made of it.

    What a dataclass's description leaves out has its default.

    Args:
      kind: dataclass, or type of one of its fields: number, text, path, one of several texts, or
        tuple, mapping or dataclass of such, or a union of these, each of which may be None.
      value: as `json.loads` gives it.

    Raises:
      DataError: an option that does not exist.
      TypeError, ValueError: the value is not of that type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return from_json(arguments[0], value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        members = [member for member in arguments if member is not type(None)]
        return _from_union(members, value)
    if dataclasses.is_dataclass(kind):
        return kind(**_fields_from_json(kind, _check_type(dict, value)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {
            key: from_json(arguments[1], part) for key, part in _check_type(dict, value).items()
        }
    if origin is tuple:
        value = _check_type(list, value)
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(from_json(*pair) for pair in zip(kinds, value, strict=True))
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, arguments))}")
        return value
    if kind is Path:
        return Path(_check_type(str, value))
    if kind is float and type(value) is int:
        return float(value)
    return _check_type(kind, value)


def json_checksum(values: dict) -> int:
    """Return the CRC-32 of values of JSON, which does not depend on the order of names."""
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def name_differences(stored: dict, chosen: dict) -> str:
    """Return the differences of two descriptions, for an error message; empty where they agree.

    Values of nested descriptions are named with dots.
    """
    return "; ".join(_differences(stored, as_json(chosen)))


def _differences(stored: dict, chosen: dict, before: str = "") -> Iterator[str]:
    """Yield a text for every value that differs."""
    for name in sorted(set(stored) | set(chosen)):
        old, now = stored.get(name), chosen.get(name)
        if isinstance(old, dict) and isinstance(now, dict):
            yield from _differences(old, now, f"{before}{name}.")
        elif old != now:
            yield f"{before}{name}: stored {old!r}, now {now!r}"


def save_described(path: Path, name: str, fingerprint: dict, **arrays: np.ndarray) -> None:
    """Write arrays with their name and description, completely or not at all.

    Args:
      path: file to write; its folder is created.
      name: name of the arrays, by which a copied file is recognized.
      fingerprint: values of JSON that the arrays were computed from.
      arrays: arrays by name.

    Raises:
      DataError: the file cannot be written.
    """
    make_folder(path.parent)
    described = {"unit": name, "facts": fingerprint}
    save_sealed(path, facts=np.array(json.dumps(described)), **arrays)


def read_described(path: Path, name: str, remedy: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Return fingerprint and arrays of a file that `save_described` wrote.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is not what was written, or is a copy of another file.
    """
    arrays = read_sealed(path, remedy)
    with refusing(path, remedy):
        described = parse_json(arrays.pop("facts").item())
        if described["unit"] != name:
            raise ValueError(f"a copy of {described['unit']}")
        return described["facts"], arrays


def _check_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _from_union(members: Sequence[Any], value: Any) -> Any:
    """Return the value of the first type of a union that it is of; several sets of texts are one.

    Raises:
      TypeError, ValueError: it is of none; the message is that of the last.
    """
    is_text = [typing.get_origin(member) is Literal for member in members]
    texts = [*itertools.chain(*map(typing.get_args, itertools.compress(members, is_text)))]
    others = [member for member, of_texts in zip(members, is_text, strict=True) if not of_texts]
    kinds = [*others, Literal[*texts]] if texts else others
    for kind in kinds[:-1]:
        with contextlib.suppress(TypeError, ValueError):
            return from_json(kind, value)
    return from_json(kinds[-1], value)


def _fields_from_json(kind: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    hints, fields = typing.get_type_hints(kind, include_extras=True), {}
    for name, value in stored.items():
        check_name("option", name, list(hints))
        try:
            fields[name] = from_json(hints[name], value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: {error}") from error
    return fields
