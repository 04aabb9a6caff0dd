"""Arrays of numbers and text from `.npy` and `.npz` files, read without NumPy's own reconstruction.

A header is matched against the one form that NumPy writes, its type against a list, and its shape
against the bytes that are there before any memory is asked for.
"""

import math
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data_pipelines.errors import DataError
from data_pipelines.files import opened, opened_archive, read_bytes

BYTES = 4_000_000_000
"""Of an array file, unless a reader says otherwise."""
DIMENSIONS = 32
HEADER = 4_096
"""Bytes of a header; NumPy's own are a multiple of 64 and seldom more than one."""

_NUMBERS = frozenset(
    {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"}
)
_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_HEADER = re.compile(
    rb"\{'descr': '([^']{1,16})', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n?"
)


class Header(NamedTuple):
    """What an `.npy` file says of the array behind it."""

    dtype: np.dtype | None
    """None: Python objects, which only `unpickle` reads."""
    columns_first: bool
    shape: tuple[int, ...]
    length: int
    """Bytes of the header, after which the array begins."""


def admitted_dtype(code: str) -> np.dtype:
    """The type of a code such as "<f4", "|u1" or "<U12": numbers, truth values, text, bytes.

    Raises:
      ValueError: any other, objects and structured ones included.
    """
    order, kind = (code[0], code[1:]) if code[:1] in ("<", ">", "|", "=") else ("=", code)
    if kind not in _NUMBERS and not re.fullmatch(r"[SU]\d{1,7}", kind):
        raise ValueError(f"an array of type {code!r}")
    return np.dtype(kind).newbyteorder("=" if order == "|" else order)


def parse_header(content: bytes) -> Header:
    """The header at the start of an `.npy` file's bytes.

    Raises:
      ValueError: no such header, or a type that is not admitted.
    """
    version = tuple(content[6:8])
    if not content.startswith(_MAGIC) or version not in _LENGTH_BYTES:
        raise ValueError("no .npy header")
    start = 8 + _LENGTH_BYTES[version]
    length = int.from_bytes(content[8:start], "little")
    match = _HEADER.fullmatch(content[start : start + length])
    if length > HEADER or len(content) < start + length or match is None:
        raise ValueError("an .npy header that NumPy does not write")
    code, columns_first, sizes = (part.decode("ascii") for part in match.groups())
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    if len(shape) > DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions")
    dtype = None if code in ("|O", "O") else admitted_dtype(code)
    return Header(dtype, columns_first == "True", shape, start + length)


def array_of(content: bytes | memoryview, header: Header) -> np.ndarray:
    """The array in the bytes behind a header, read-only.

    Raises:
      ValueError: they are more or fewer than its shape takes, or the array holds objects.
    """
    return shaped(content[header.length :], header.dtype, header.shape, header.columns_first)


def shaped(
    content: bytes | memoryview, dtype: np.dtype | None, shape: tuple[int, ...], columns_first: bool
) -> np.ndarray:
    """An array over bytes, read-only.

    Raises:
      ValueError: they are more or fewer than the shape takes, the array holds objects, or text of
        which a code is no character's.
    """
    if dtype is None:
        raise ValueError("an array of Python objects")
    needed = math.prod(shape) * dtype.itemsize
    if len(content) != needed:
        raise ValueError(f"{len(content):,} bytes for {dtype} of {shape}, which takes {needed:,}")
    if not needed:
        return np.zeros(shape, dtype)
    if dtype.kind == "U":
        codes = np.frombuffer(content, np.dtype("u4").newbyteorder(dtype.byteorder))
        if np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))):
            raise ValueError("text with a code that is no character's")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def read_npy(path: Path, way_out: str, limit: int = BYTES) -> np.ndarray:
    """The array of an `.npy` file, read-only.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is damaged, too large, or holds anything but numbers and text.
    """
    content = read_bytes(path, limit, way_out)
    return decode_npy(content, str(path), way_out)


def decode_npy(content: bytes, name: str, way_out: str) -> np.ndarray:
    """The array in an `.npy` file's bytes, read-only.

    Raises:
      DataError: they are damaged, or the array is of anything but numbers and text.
    """
    try:
        return array_of(content, parse_header(content))
    except ValueError as error:
        raise DataError(f"{name} is no whole .npy of numbers or text ({error}). {way_out}") from (
            error
        )


def read_npz(path: Path, way_out: str, limit: int = BYTES) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file by name, read-only.

    Args:
      path: the file.
      way_out: the sentence that messages end with.
      limit: bytes of all arrays together.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is damaged, too large, or holds anything but numbers and text.
    """
    arrays = {}
    with opened_archive(path, way_out, limit) as archive:
        for name, size in archive.files():
            content = archive.read(name, limit)
            limit -= size
            key = name.removesuffix(".npy")
            arrays[key] = decode_npy(content, f"{path}: {key}", way_out)
    return arrays


def take(arrays: dict[str, np.ndarray], path: Path, names: tuple[str, ...], way_out: str) -> list:
    """Some arrays of an `.npz` file, in the order of their names.

    Raises:
      DataError: the file lacks one; all that it lacks are named.
    """
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(f"{path} is damaged or another file, without {missing}. {way_out}")
    return [arrays[name] for name in names]


def map_npy(path: Path, way_out: str) -> np.ndarray:
    """The array of an `.npy` file, mapped into memory, not read; read-only.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is damaged, or holds anything but numbers and text.
    """
    with opened(path, 1 << 45, way_out) as stream:
        try:
            header = parse_header(stream.read(HEADER + 12))
            if header.dtype is None or not math.prod(header.shape):
                raise ValueError("no array of numbers")
            stream.seek(0, 2)
            needed = header.length + math.prod(header.shape) * header.dtype.itemsize
            if stream.tell() != needed:
                raise ValueError(f"{stream.tell():,} bytes, not {needed:,}")
            order = "F" if header.columns_first else "C"
            return np.memmap(stream, header.dtype, "r", header.length, header.shape, order)
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}). {way_out}") from error
