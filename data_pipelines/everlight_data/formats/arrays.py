"""Readers of `.npy` and `.npz` files with numbers or text, without NumPy's own reconstruction.

A header must match the one form that NumPy writes, and its type an entry of a list. Its shape must
match the number of bytes in the file before memory is allocated.
"""

import io
import math
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.archives import Archive, open_inner_archive, opened_archive
from everlight_data.formats.files import MAX_RELEASE_BYTES, opened, read_bytes

MAX_BYTES = 4_000_000_000
"""Default limit on the size of an array file."""
MAX_DIMENSIONS = 32
MAX_HEADER_BYTES = 4_096
"""Limit on a header's bytes; NumPy writes multiples of 64, seldom more than 64."""

_NUMBERS = frozenset(
    {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"}
)
_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_HEADER = re.compile(
    rb"\{'descr': '([^']{1,16})', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n?"
)


class Header(NamedTuple):
    """Description of the array that an `.npy` file announces in its header."""

    dtype: np.dtype | None
    """None stands for Python objects, which only `unpickle` reads."""
    columns_first: bool
    shape: tuple[int, ...]
    length: int
    """Bytes of the header; the array's data begin after them."""


def admitted_dtype(code: str) -> np.dtype:
    """Return the dtype of a code such as "<f4", "|u1" or "<U12": numbers, booleans, text or bytes.

    Raises:
      ValueError: the code names any other type, including objects and structured types.
    """
    order, kind = (code[0], code[1:]) if code[:1] in ("<", ">", "|", "=") else ("=", code)
    if kind not in _NUMBERS and not re.fullmatch(r"[SU]\d{1,7}", kind):
        raise ValueError(f"arrays of type {code!r} are not supported")
    return np.dtype(kind).newbyteorder("=" if order == "|" else order)


def parse_header(content: bytes) -> Header:
    """Parse the header at the start of an `.npy` file's bytes.

    Raises:
      ValueError: there is no such header, or its type is not supported.
    """
    version = tuple(content[6:8])
    if not content.startswith(_MAGIC) or version not in _LENGTH_BYTES:
        raise ValueError("it has no .npy header")
    start = 8 + _LENGTH_BYTES[version]
    length = int.from_bytes(content[8:start], "little")
    match = _HEADER.fullmatch(content[start : start + length])
    if length > MAX_HEADER_BYTES or len(content) < start + length or match is None:
        raise ValueError("its .npy header is not one that NumPy writes")
    code, columns_first, sizes = (part.decode("ascii") for part in match.groups())
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"its array has {len(shape)} dimensions")
    dtype = None if code in ("|O", "O") else admitted_dtype(code)
    return Header(dtype, columns_first == "True", shape, start + length)


def build_array(content: bytes | memoryview, header: Header) -> np.ndarray:
    """Return the array stored after a header, read-only.

    Raises:
      ValueError: the number of bytes does not match the shape, or the array holds objects.
    """
    # A view, as a slice of bytes would be a copy of the whole array.
    rest = memoryview(content)[header.length :]
    return shaped(rest, header.dtype, header.shape, header.columns_first)


def shaped(
    content: bytes | memoryview, dtype: np.dtype | None, shape: tuple[int, ...], columns_first: bool
) -> np.ndarray:
    """Return a read-only array over bytes.

    Raises:
      ValueError: the number of bytes does not match the shape, the array holds objects, or its text
        has an invalid character code or no width.
    """
    if dtype is None:
        raise ValueError("it is an array of Python objects")
    needed = math.prod(shape) * dtype.itemsize
    if len(content) != needed:
        raise ValueError(f"{len(content):,} bytes; {dtype} of shape {shape} needs {needed:,}")
    if not dtype.itemsize and math.prod(shape) > 1:
        # NumPy makes it one character wide, for which the file holds no bytes.
        raise ValueError(f"text without a width of {shape}")
    if not needed:
        return np.zeros(shape, dtype)
    if dtype.kind == "U":
        codes = np.frombuffer(content, np.dtype("u4").newbyteorder(dtype.byteorder))
        if np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))):
            raise ValueError("its text has an invalid character code")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def dtype_and_shape(array: np.ndarray) -> str:
    """Return dtype and shape of an array in words, for messages."""
    return f"dtype {array.dtype} and shape {array.shape}"


def read_npy(path: Path, remedy: str) -> np.ndarray:
    """Read the array of an `.npy` file; the result is read-only.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, too large, or holds anything but numbers and text.
    """
    return decode_npy(read_bytes(path, MAX_BYTES, remedy), str(path), remedy)


def decode_npy(content: bytes, name: str, remedy: str) -> np.ndarray:
    """Decode the array in an `.npy` file's bytes; the result is read-only.

    Raises:
      DataError: the bytes are damaged, or the array holds anything but numbers and text.
    """
    try:
        return build_array(content, parse_header(content))
    except ValueError as error:
        raise DataError(
            f"{name} is not an intact .npy of numbers or text: {error}. {remedy}"
        ) from error


def read_npz(path: Path, remedy: str, limit: int = MAX_BYTES) -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz` file by name; they are read-only.

    Args:
      path: path of the file.
      remedy: sentence that every error message ends with.
      limit: maximum number of bytes of all arrays together.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, too large, or holds anything but numbers and text.
    """
    with opened_archive(path, remedy, limit) as archive:
        return _arrays(archive, limit)


def decode_npz(content: bytes, path: Path, remedy: str) -> dict[str, np.ndarray]:
    """Decode the arrays in the bytes of an `.npz` file by name; they are read-only.

    Raises:
      DataError: the bytes are damaged, or hold too much, or anything but numbers and text.
    """
    with open_inner_archive(io.BytesIO(content), path, remedy) as archive:
        return _arrays(archive, MAX_BYTES)


def _arrays(archive: Archive, limit: int) -> dict[str, np.ndarray]:
    path, remedy = archive.path, archive.remedy
    arrays = {}
    for name, size in archive.files():
        content = archive.read(name, limit)
        limit -= size
        key = name.removesuffix(".npy")
        if key in arrays:
            raise DataError(f"{path} holds {key} and {key}.npy, two arrays {key}. {remedy}")
        arrays[key] = decode_npy(content, f"{path}: {key}", remedy)
    return arrays


def take(arrays: dict[str, np.ndarray], path: Path, names: tuple[str, ...], remedy: str) -> list:
    """Return the named arrays of an `.npz` file, in the order of their names.

    Raises:
      DataError: the file lacks at least one of them; the message lists all that are missing.
    """
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(f"{path} is damaged or not the expected file: it lacks {missing}. {remedy}")
    return [arrays[name] for name in names]


def map_npy(path: Path, remedy: str) -> np.ndarray:
    """Map the array of an `.npy` file into memory, read-only, without reading it.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, or holds anything but numbers and text.
    """
    with opened(path, MAX_RELEASE_BYTES, remedy) as stream:
        try:
            header = parse_header(stream.read(MAX_HEADER_BYTES + 12))
            if header.dtype is None or not math.prod(header.shape) * header.dtype.itemsize:
                raise ValueError("it holds no array of numbers")
            stream.seek(0, 2)
            needed = header.length + math.prod(header.shape) * header.dtype.itemsize
            if stream.tell() != needed:
                raise ValueError(f"it has {stream.tell():,} bytes, not {needed:,}")
            order = "F" if header.columns_first else "C"
            return np.memmap(stream, header.dtype, "r", header.length, header.shape, order)
        except ValueError as error:
            raise DataError(f"{path} is damaged ({error}). {remedy}") from error
