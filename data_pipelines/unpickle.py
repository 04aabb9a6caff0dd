"""Pickles from outside, read without letting them run anything.

A pickle names the callables that rebuild its objects. The reader here knows a short list of them,
those of NumPy arrays and plain containers, and refuses every other before it is looked up.
"""

import io
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.lib import format as npy

from data_pipelines.errors import DataError, MissingDataError

Encoding = Literal["ASCII", "latin1", "bytes"]

# Taken from NumPy's own reductions, so that no private module is named.
_rebuild_array = np.empty(1).__reduce__()[0]
_rebuild_scalar = np.float64(0).__reduce__()[0]
_rebuild_from_buffer = np.empty(1).__reduce_ex__(5)[0]


class _ArrayType:
    """Stands for numpy.ndarray, which a pickle may name but not call: it can alias raw memory."""


def _reconstruct(kind: type, shape: tuple[int, ...], code: bytes | str) -> np.ndarray:
    if kind is not _ArrayType:
        raise pickle.UnpicklingError("an array of another type than numpy.ndarray")
    return _rebuild_array(np.ndarray, shape, code)


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2 spells bytes."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable] = {
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    **{
        (f"numpy.{core}.{module}", function): rebuild
        for core in ("core", "_core")
        for module, function, rebuild in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _rebuild_scalar),
            ("numeric", "_frombuffer", _rebuild_from_buffer),
        )
    },
    **{
        (builtins, kind.__name__): kind
        for builtins in ("builtins", "__builtin__")
        for kind in (set, frozenset, bytearray, complex)
    },
}


class _RestrictedUnpickler(pickle.Unpickler):
    def __init__(self, stream: BinaryIO, name: str, encoding: Encoding):
        super().__init__(stream, encoding=encoding)
        self.name = name

    def find_class(self, module: str, function: str) -> Callable:
        try:
            return _ADMITTED[module, function]
        except KeyError:
            raise DataError(
                f"{self.name} asks for {module}.{function}, which is neither a NumPy array nor a "
                "plain container. It was not run; get the file from its original source."
            ) from None


def load_restricted(source: Path | BinaryIO, name: str, encoding: Encoding = "ASCII") -> Any:
    """What a pickle holds, if that is NumPy arrays, scalars and dtypes and plain containers.

    Plain are dict, list, tuple, set, frozenset, str, bytes, bytearray, bool, numbers and None.

    Args:
      source: file, or stream open for reading bytes, at the pickle's start.
      name: how error messages call it.
      encoding: what the 8-bit strings of a Python 2 pickle become: "bytes" keeps them (CIFAR),
        "latin1" decodes them one to one (needed where arrays were pickled by Python 2).

    Raises:
      MissingDataError: no such file.
      DataError: the pickle asks for anything else, is truncated or is no pickle.
    """
    try:
        stream = source.open("rb") if isinstance(source, Path) else nullcontext(source)
    except FileNotFoundError:
        raise MissingDataError(f"{name} does not exist: {source}") from None
    with stream as opened:
        try:
            return _RestrictedUnpickler(opened, name, encoding).load()
        except DataError:
            raise
        # Damaged pickles raise nearly every kind of exception (the pickle module's documentation).
        except Exception as error:
            raise DataError(
                f"{name} cannot be unpickled; it is truncated, damaged or no pickle "
                f"({type(error).__name__}: {error}). Get it again."
            ) from error


def load_npy_restricted(content: bytes, name: str, encoding: Encoding = "ASCII") -> np.ndarray:
    """The array of a `.npy` file; the objects of an object array go through `load_restricted`.

    Args:
      content: the file's bytes.
      name: how error messages call it.
      encoding: as for `load_restricted`.

    Raises:
      DataError: truncated, not of the `.npy` format, or objects that are not admitted.
    """
    stream = io.BytesIO(content)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        shape, _, dtype = readers[npy.read_magic(stream)](stream)
        if not dtype.hasobject:
            return npy.read_array(io.BytesIO(content), allow_pickle=False)
    except (KeyError, ValueError) as error:
        raise DataError(f"{name} is no whole .npy file ({error}). Get it again.") from error
    array = load_restricted(stream, name, encoding)
    if not isinstance(array, np.ndarray) or array.shape != shape:
        raise DataError(f"{name} does not hold the array of shape {shape} that it announces.")
    return array
