"""Reader of MATLAB 5 files, with errors that name the file.

A crafted or damaged file can crash SciPy's reader. This module therefore reads the few kinds of
variables that the data sets hold, after "MAT-File Format" (MathWorks), level 5. They are full real
arrays of numbers, text, and cells of these.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.archives import inflate
from everlight_data.formats.arrays import MAX_DIMENSIONS
from everlight_data.formats.files import read_bytes, refusing

MAX_BYTES = 256_000_000
"""Limit on the size of a file, and of its decompressed content."""
MAX_CELLS = 100_000
"""Limit on the cells of all cell arrays in a variable."""
MAX_DEPTH = 5
"""Limit on the nesting of cells."""

_REMEDY = "Copy it again from the release."
_HEADER = 128
_MATRIX, _PACKED = 14, 15
# Types of stored numbers and characters, by the numbers that the format gives them.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"} | {
    12: "i8",
    13: "u8",
}
_ENCODINGS = {1: "latin1", 2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _TEXT = 1, 4
# Classes of arrays: what MATLAB calls double, single, int8, ...
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4"} | {
    14: "i8",
    15: "u8",
}
_COMPLEX = 0x0800
_HDF5 = b"\x89HDF\r\n\x1a\n"
_VERSIONS_7_3 = (b"\0\2IM", b"\2\0MI")
"""Version and order of bytes in the header of MATLAB 7.3, where 0x0100 stands for level 5."""


class _Element(NamedTuple):
    kind: int
    content: memoryview


class _Variable(NamedTuple):
    """Variable whose content has not been decoded yet."""

    name: str
    kind: int
    flags: int
    shape: tuple[int, ...]
    parts: tuple[_Element, ...]


def read_mat(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Return the named variables of a MATLAB 5 `.mat` file, each as a matrix as in MATLAB.

    Numbers keep their class's type. A matrix of text becomes an array of its rows, and a cell array
    an array of objects.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, or a variable is missing, sparse, complex or of another kind.
    """
    return decode_mat(read_bytes(path, MAX_BYTES, _REMEDY), str(path), names)


def decode_mat(content: bytes, path: str, names: Sequence[str]) -> list[np.ndarray]:
    """Return the named variables from a file's bytes; `path` names the file in messages.

    Raises:
      DataError: as for `read_mat`.
    """
    if content[:8] == _HDF5 or content[124:128] in _VERSIONS_7_3:
        raise DataError(
            f"{path} is a file of MATLAB 7.3 (HDF5), and only level 5 is read; save it in MATLAB "
            "again by save(..., '-v7')."
        )
    with refusing(path, _REMEDY):
        order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
        if order is None:
            raise ValueError("not a MATLAB 5 file, which MATLAB writes by save(..., '-v7')")
        variables = _Reader(order).variables(content[_HEADER:], frozenset(names))
    missing = [name for name in names if name not in variables]
    if missing:
        raise DataError(
            f"{path} has no variable {', '.join(missing)}; check that it is the release's file."
        )
    return [variables[name] for name in names]


class _Reader:
    """Reader of one file; its remaining byte and cell budgets decrease as it reads."""

    def __init__(self, order: str):
        self.order = order
        self.remaining_bytes, self.remaining_cells = MAX_BYTES, MAX_CELLS

    def variables(self, content: bytes, names: frozenset[str]) -> dict[str, np.ndarray]:
        arrays = {}
        for element in self.elements(memoryview(content), packs=True):
            if element.kind == _PACKED:
                unpacked = inflate(bytes(element.content), self.remaining_bytes)
                self.remaining_bytes -= len(unpacked)
                (element,) = self.elements(memoryview(unpacked))
            if element.kind != _MATRIX:
                raise ValueError(f"an element of type {element.kind} where a variable belongs")
            variable = self.variable(element)
            if variable.name in arrays:
                raise ValueError(f"it holds the variable {variable.name} twice")
            if variable.name in names:
                arrays[variable.name] = self.array(variable, 0)
        return arrays

    def elements(self, content: memoryview, packs: bool = False) -> Iterator[_Element]:
        """Yield consecutive elements; all but compressed ones are padded to 8 bytes."""
        place = 0
        while place < len(content):
            tag = self.numbers(content[place : place + 8], "u4")
            if len(tag) != 2:
                raise ValueError("an element has no tag")
            kind, length = int(tag[0]), int(tag[1])
            start = place + 8
            if kind >> 16:
                # A short part lies in its own tag.
                kind, length, start = kind & 0xFFFF, kind >> 16, place + 4
                if length > 4:
                    raise ValueError("a short element is longer than 4 bytes")
            end = start + length
            if end > len(content):
                raise ValueError(
                    f"an element claims {length:,} bytes, but {len(content) - start:,} remain"
                )
            yield _Element(kind, content[start:end])
            place = end if packs and kind == _PACKED else max(end + -end % 8, place + 8)

    def numbers(self, content: memoryview, dtype: str) -> np.ndarray:
        return np.frombuffer(content, np.dtype(dtype).newbyteorder(self.order))

    def variable(self, element: _Element) -> _Variable:
        parts = []
        for part in self.elements(element.content):
            parts.append(part)
            if len(parts) > self.remaining_cells + 4:
                raise ValueError(f"it has more than {MAX_CELLS:,} cells")
        if len(parts) < 3:
            raise ValueError("a variable has no class, shape or name")
        flags = int(self.numbers(parts[0].content, "u4")[0])
        shape = tuple(self.numbers(parts[1].content, "i4").tolist())
        if len(shape) < 2 or len(shape) > MAX_DIMENSIONS or min(shape) < 0:
            raise ValueError(f"a variable has the invalid shape {shape}")
        name = bytes(parts[2].content).decode("ascii")
        return _Variable(name, flags & 0xFF, flags, shape, tuple(parts[3:]))

    def array(self, variable: _Variable, depth: int) -> np.ndarray:
        if variable.kind == _CELL:
            return self.cell_array(variable, depth)
        if variable.flags & _COMPLEX or len(variable.parts) > 1:
            raise ValueError(f"{variable.name} is complex or more than one array")
        if variable.kind == _TEXT:
            return self.text(variable)
        if variable.kind not in _CLASSES:
            raise ValueError(f"{variable.name} is of class {variable.kind}, not a full array")
        values = np.zeros(0)
        for part in variable.parts:
            values = self.numbers(part.content, _STORED[part.kind])
        if len(values) != math.prod(variable.shape):
            raise ValueError(f"{len(values)} numbers for the shape {variable.shape}")
        with np.errstate(invalid="ignore", over="ignore"):
            converted = values.astype(_CLASSES[variable.kind])
        if not np.array_equal(converted, values, equal_nan=values.dtype.kind == "f"):
            raise ValueError(f"{variable.name} has numbers that its class cannot hold")
        return converted.reshape(variable.shape, order="F")

    def text(self, variable: _Variable) -> np.ndarray:
        text = ""
        for part in variable.parts:
            encoding = _ENCODINGS[part.kind]
            suffix = {"<": "-le", ">": "-be"}[self.order] if encoding[-2:] in ("16", "32") else ""
            text = bytes(part.content).decode(encoding + suffix)
        rows, columns = variable.shape[0], math.prod(variable.shape[1:])
        if len(text) != rows * columns:
            raise ValueError(f"{len(text)} characters for the shape {variable.shape}")
        return np.array([text[row::rows] for row in range(rows)], dtype=str)

    def cell_array(self, variable: _Variable, depth: int) -> np.ndarray:
        count = math.prod(variable.shape)
        self.remaining_cells -= count
        if self.remaining_cells < 0 or depth > MAX_DEPTH or count != len(variable.parts):
            raise ValueError(
                f"{len(variable.parts)} cells for the shape {variable.shape}, or nested too deeply"
            )
        cells = np.empty(count, object)
        for place, part in enumerate(variable.parts):
            if part.kind != _MATRIX:
                raise ValueError("a cell holds no array")
            # MATLAB writes an empty cell as an array without any part.
            cells[place] = (
                self.array(self.variable(part), depth + 1) if part.content else np.zeros((0, 0))
            )
        return cells.reshape(variable.shape, order="F")
