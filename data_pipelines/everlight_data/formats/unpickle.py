"""Reader of untrusted pickles that runs none of their code.

A pickle is a program for a small stack machine. `pickle_machine` implements the instructions that
build numbers, text and plain containers. The callables by which NumPy pickles arrays are recognized
but never called: `pickle_values` builds the arrays, from bytes and a whitelisted type. All other
names are refused before they are looked up. The number of objects, their memory and nesting, and
the bytes copied are limited.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.arrays import build_array, parse_header
from everlight_data.formats.files import read_bytes
from everlight_data.formats.pickle_machine import MAX_OBJECTS, Encoding, Foreign, run_pickle
from everlight_data.formats.pickle_values import SCALARS, Refused
from everlight_data.texts import one_line

MAX_DEPTH = 50
"""Limit on the nesting of containers."""
MAX_BYTES = 1_000_000_000
"""Limit on the size of a pickle."""

_REMEDY = "Download it again."


class _Extent(NamedTuple):
    """Number of objects in a value, shared ones counted at every occurrence, and nesting depth."""

    count: int
    depth: int


_ONE = _Extent(1, 0)


def _measure(value: Any, depth: int, known: dict[int, _Extent | None]) -> _Extent:
    """Return the extent of a value; refuse one that contains itself or exceeds the limits."""
    if type(value) in SCALARS or isinstance(value, (bytearray, np.dtype, np.generic)):
        return _ONE
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _ONE
    if not isinstance(value, (list, tuple, dict, set, frozenset, np.ndarray)):
        raise Refused("an array, a type or a function that was never made")
    if depth > MAX_DEPTH:
        raise Refused(f"containers in containers deeper than {MAX_DEPTH}")
    if id(value) in known:
        extent = known[id(value)]
        if extent is None:
            raise Refused("a container that holds itself")
    else:
        known[id(value)] = None
        inner = value.values() if isinstance(value, dict) else value
        inner = inner.flat if isinstance(inner, np.ndarray) else inner
        extents = [_measure(element, depth + 1, known) for element in inner]
        keys = len(value) if isinstance(value, dict) else 0
        extent = _Extent(
            1 + keys + sum(nested.count for nested in extents),
            1 + max((nested.depth for nested in extents), default=0),
        )
        known[id(value)] = extent
    if extent.count > MAX_OBJECTS or depth + extent.depth > MAX_DEPTH + 1:
        raise Refused(f"more than {MAX_OBJECTS:,} objects, or deeper than {MAX_DEPTH}")
    return extent


def load_restricted(
    source: Path | bytes | io.BytesIO,
    name: str,
    encoding: Encoding = "ASCII",
    foreign: Foreign | None = None,
) -> Any:
    """Return the content of a pickle of NumPy arrays, scalars and plain containers.

    Plain types are dict, list, tuple, set, frozenset, str, bytes, bytearray, bool, numbers and
    None; keys are scalars. Arrays hold numbers, booleans, text, bytes or plain objects. Arrays
    without objects are read-only.

    Args:
      source: a file, a pickle's bytes, or a stream, which is left at the end of the pickle.
      name: name of the pickle in error messages.
      encoding: decoding of the 8-bit strings of a Python 2 pickle. "bytes" keeps them (CIFAR);
        "latin1" decodes them one to one, as arrays pickled by Python 2 need.
      foreign: further names that the pickle may use.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the pickle names anything else, exceeds a limit, is truncated, or is not a pickle.
    """
    content = read_bytes(source, MAX_BYTES, _REMEDY) if isinstance(source, Path) else source
    try:
        value = run_pickle(content, name, encoding, foreign)
        _measure(value, 0, {})
    except DataError:
        raise
    # Damaged pickles raise nearly every kind of exception (the pickle module's documentation).
    except Exception as error:
        raise DataError(
            f"{name} cannot be unpickled; it is truncated, damaged or not a pickle of plain data "
            f"({type(error).__name__.strip('_')}: {one_line(error)}). {_REMEDY}"
        ) from error
    return value


def load_npy_restricted(content: bytes, name: str) -> np.ndarray:
    """Return the array of a `.npy` file; objects are read by `load_restricted`.

    Args:
      content: the file's bytes.
      name: name of the file in error messages.

    Raises:
      DataError: the content is truncated, not in the `.npy` format, or holds objects that are not
        allowed.
    """
    try:
        header = parse_header(content)
        if header.dtype is not None:
            return build_array(content, header)
    except ValueError as error:
        raise DataError(
            f"{name} is not an intact .npy file ({one_line(error)}). {_REMEDY}"
        ) from error
    array = load_restricted(content[header.length :], name)
    if not isinstance(array, np.ndarray) or array.shape != header.shape:
        raise DataError(
            f"{name} does not hold an array of shape {header.shape} as its header says. {_REMEDY}"
        )
    return array
