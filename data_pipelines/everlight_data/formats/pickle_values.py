"""Substitutes for the callables that a pickle may name: arrays, dtypes, bytes and sets.

NumPy pickles an array as calls of a few functions. None of them is called: the substitutes in
`ADMITTED` build the array from bytes and a whitelisted type.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlight_data.formats.arrays import MAX_DIMENSIONS, admitted_dtype, shaped
from everlight_data.texts import one_line

KEYS = (type(None), bool, int, float, str, bytes)
SCALARS = (*KEYS, complex)
MAX_NUMERIC_KEYS = 1_000
"""Limit on the numbers that a pickle has as keys; the data sets' pickles have only text."""


OBJECT_BYTES = 400
"""Memory charged for a container, an array or another object, with its measuring."""
SET_ITEM_BYTES = 100
"""Memory charged for an item of a set."""
DIMENSION_BYTES = 30
"""Memory charged for each dimension of an array, which is a view of another."""
MAX_OBJECT_BYTES = 100_000_000
"""Limit on the memory charged for objects, beside twice the pickle's size.

50,000 names as the bytes that Python 3 writes by protocol 2 are charged 55 MB.
"""


class Refused(ValueError):
    """Error about content outside arrays and plain containers."""


class Budget:
    """Bytes and objects that a pickle may still make, and numbers that may still be keys."""

    def __init__(self, copied: int):
        self.copied, self.numeric_keys = copied, MAX_NUMERIC_KEYS
        self.objects = MAX_OBJECT_BYTES + copied

    def charge(self, count: int) -> None:
        """Charge copied bytes or items."""
        self.copied -= count
        if self.copied < 0:
            raise Refused("the same bytes copied over and over")

    def charge_objects(self, count: int) -> None:
        """Charge memory that objects take beside their content: a byte can make an empty set."""
        self.objects -= count
        if self.objects < 0:
            raise Refused("too many containers, arrays or references for its size")

    def charge_keys(self, keys: Any) -> None:
        """Charge the numbers among keys.

        Python's hashes of numbers are known, unlike those of text, so numbers can be chosen to meet
        in a dict, whose time is then quadratic.
        """
        self.numeric_keys -= sum(type(key) in (int, float) for key in keys)
        if self.numeric_keys < 0:
            raise Refused(f"more than {MAX_NUMERIC_KEYS:,} numbers as keys")


class Unbuilt:
    """Array or dtype whose state has not been read yet."""

    def __init__(self, dtype: np.dtype | None = None, is_object: bool = False):
        self.dtype, self.is_object = dtype, is_object
        self.is_array = dtype is None and not is_object
        self.places: list[int] = []
        """Memo keys that refer to this object."""


_OBJECTS = object()
"""Dtype of Python objects, of which a pickle may hold arrays."""


def _admitted_type(code: str) -> np.dtype:
    if code.startswith(("<", ">", "|", "=")):
        raise Refused(f"an array of type {code!r}")
    return admitted_dtype(code)


def text_of(value: Any) -> str:
    """Return text, decoded if Python 2 wrote it as bytes."""
    if isinstance(value, bytes):
        value = value.decode("ascii")
    if not isinstance(value, str):
        raise Refused("something else where a name belongs")
    return value


def array_from_state(
    budget: Budget, version: Any, shape: Any, dtype: Any, columns_first: Any, content: Any
) -> np.ndarray:
    """Return an array from the state that NumPy pickles of it."""
    if version != 1 or not isinstance(columns_first, (bool, int)):
        raise Refused("an array's state of another version")
    if dtype is _OBJECTS:
        if not isinstance(content, list):
            raise Refused("objects that are not a list")
        budget.charge(len(content))
        return _object_array(content, _check_shape(shape), bool(columns_first))
    return _fill_array(budget, dtype, shape, bool(columns_first), content)


def _fill_array(
    budget: Budget, dtype: Any, shape: Any, columns_first: bool, content: Any
) -> np.ndarray:
    """Return an array of numbers or text from its bytes."""
    is_text = isinstance(dtype, np.dtype) and dtype.kind == "U"
    # The characters of text are checked whenever an array is made of them.
    if isinstance(content, (str, bytearray)) or (is_text and isinstance(content, bytes)):
        budget.charge(len(content))
    if isinstance(content, str):
        content = content.encode("latin1")
    if not isinstance(content, (bytes, bytearray)) or not isinstance(dtype, np.dtype):
        raise Refused("an array of something other than bytes")
    sizes = _check_shape(shape)
    budget.charge_objects(DIMENSION_BYTES * len(sizes))
    array = shaped(bytes(content), dtype, sizes, columns_first)
    array.flags.writeable = False
    return array


def dtype_from_state(unbuilt: Unbuilt, version: Any, order: Any, *state: Any) -> np.dtype | object:
    """Return a dtype with its byte order; all other state must be what NumPy writes.

    The dtype of Python objects is a marker, which `array_from_state` knows.
    """
    dtype = np.dtype(object) if unbuilt.is_object else unbuilt.dtype
    known = dtype.__reduce__()[2]
    if version != known[0] or state != known[2:] or text_of(order) not in ("<", ">", "|", "="):
        raise Refused("a type with a state of its own")
    if unbuilt.is_object:
        return _OBJECTS
    return dtype if text_of(order) == "|" else dtype.newbyteorder(text_of(order))


def _check_shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else ()
    if shape != sizes or not all(type(size) is int and size >= 0 for size in sizes):
        raise Refused("an invalid shape")
    if len(sizes) > MAX_DIMENSIONS:
        raise Refused(f"{len(sizes)} dimensions")
    return sizes


def _object_array(content: list[Any], shape: tuple[int, ...], columns_first: bool) -> np.ndarray:
    if math.prod(shape) != len(content):
        raise Refused(f"{len(content)} objects for the shape {shape}")
    array = np.empty(len(content), object)
    for place, value in enumerate(content):
        array[place] = value
    return array.reshape(shape, order="F" if columns_first else "C")


def as_keys(budget: Budget, items: Any) -> list[Any]:
    """Return the keys if all are scalars; nested tuples could be hashed repeatedly."""
    if not isinstance(items, (list, tuple)) or not all(type(item) in KEYS for item in items):
        raise Refused("a key that is neither a number nor text")
    budget.charge_keys(items)
    return list(items)


def as_dict(budget: Budget, pairs: list[Any]) -> dict[Any, Any]:
    """Return the dict of alternating keys and values, if all keys are scalars."""
    if len(pairs) % 2:
        raise Refused("a key without a value")
    return dict(zip(as_keys(budget, pairs[::2]), pairs[1::2], strict=True))


@dataclass(frozen=True)
class Call:
    """Substitute for a callable that a pickle may name."""

    make: Callable[..., Any]


def _make_type(budget: Budget, code: Any, *flags: Any) -> Unbuilt:
    if len(flags) > 2 or not all(isinstance(flag, (bool, int)) for flag in flags):
        raise Refused("a type with more than a name; save the arrays as .npy")
    code = text_of(code)
    return Unbuilt(is_object=True) if code in ("O", "O8") else Unbuilt(_admitted_type(code))


def _make_array(budget: Budget, kind: Any, shape: Any, code: Any) -> Unbuilt:
    if kind is not _ARRAY_TYPE:
        raise Refused("an array of another type than numpy.ndarray")
    return Unbuilt()


def _make_scalar(budget: Budget, dtype: Any, content: Any) -> np.generic:
    # A scalar is a copy, unlike an array over the same bytes.
    if isinstance(content, bytes):
        budget.charge(len(content))
    return _fill_array(budget, dtype, (), False, content)[()]


def _make_from_buffer(
    budget: Budget, content: Any, dtype: Any, shape: Any, order: Any, axes: Any = None
) -> np.ndarray:
    """Return an array as protocol 5 has it; NumPy 2.4 writes transposed ones with their axes."""
    array = _fill_array(budget, dtype, shape, order == "F", content)
    if axes is None:
        return array
    is_named = order == "K" and isinstance(axes, tuple) and len(axes) == array.ndim
    if not is_named or not all(type(axis) is int for axis in axes):
        raise Refused("an invalid order of axes")
    return array.transpose(axes)


def _make_bytes(budget: Budget, text: Any, encoding: Any) -> bytes:
    """Return bytes as protocol 2 encodes them."""
    if encoding != "latin1" or not isinstance(text, str):
        raise Refused(f"bytes encoded as {one_line(encoding)!r}")
    budget.charge(len(text))
    return text.encode("latin1")


def _make_bytearray(budget: Budget, *arguments: Any) -> bytearray:
    match arguments:
        case ():
            return bytearray()
        case (bytes(content),):
            budget.charge(len(content))
            return bytearray(content)
        case (str(text), "latin-1"):
            budget.charge(len(text))
            return bytearray(text, "latin1")
    raise Refused("a bytearray of something else than bytes")


def _make_set(budget: Budget, items: Any = ()) -> set[Any]:
    count = len(items) if isinstance(items, (list, tuple)) else 0
    budget.charge(count)
    # One list in the memo can make a set again and again.
    budget.charge_objects(SET_ITEM_BYTES * count)
    return set(as_keys(budget, items))


def _make_complex(budget: Budget, real: Any, imaginary: Any) -> complex:
    if not all(isinstance(part, float) for part in (real, imaginary)):
        raise Refused("a complex number of something else than two floats")
    return complex(real, imaginary)


def _refuse_call(budget: Budget, *arguments: Any) -> None:
    # numpy.ndarray itself can alias raw memory.
    raise Refused("a call of numpy.ndarray")


_ARRAY_TYPE = Call(_refuse_call)
ADMITTED: dict[tuple[str, str], Call] = {
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy", "dtype"): Call(_make_type),
    ("_codecs", "encode"): Call(_make_bytes),
    **{
        (f"numpy.{core}.{module}", function): Call(make)
        for core in ("core", "_core")
        for module, function, make in (
            ("multiarray", "_reconstruct", _make_array),
            ("multiarray", "scalar", _make_scalar),
            ("numeric", "_frombuffer", _make_from_buffer),
        )
    },
    **{
        (builtins, kind): Call(make)
        for builtins in ("builtins", "__builtin__")
        for kind, make in (
            ("set", _make_set),
            # Protocols 0 to 2 have empty bytes as this call, also those of an empty array.
            ("bytes", lambda budget: b""),
            ("frozenset", lambda budget, items=(): frozenset(_make_set(budget, items))),
            ("bytearray", _make_bytearray),
            ("complex", _make_complex),
        )
    },
}
"""Substitutes by module and name, for NumPy 1 and 2 and for Python 2 and 3."""
