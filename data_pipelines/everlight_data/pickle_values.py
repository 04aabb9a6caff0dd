"""Substitutes for the callables that a pickle may name: arrays, dtypes, bytes and sets.

NumPy pickles an array as calls of a few functions. None of them is called: the substitutes in
`ADMITTED` build the array from bytes and a whitelisted type.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlight_data.arrays import admitted_dtype, shaped
from everlight_data.files import one_line

Charge = Callable[[int], None]
"""Function that charges copied bytes or items to the pickle's budget."""
KEYS = (type(None), bool, int, float, str, bytes)
SCALARS = (*KEYS, complex)
MAX_KEY_BITS = 60
"""Limit on the bits of an integer key; CPython reduces larger ones to 61 bits."""


class Refused(ValueError):
    """Error about content outside arrays and plain containers."""


class Unbuilt:
    """Array or dtype whose state has not been read yet."""

    def __init__(self, dtype: np.dtype | None = None, is_object: bool = False):
        self.dtype, self.is_object = dtype, is_object
        self.is_array = dtype is None and not is_object
        self.places: list[int] = []
        """Memo keys that refer to this object."""


class _Objects:
    """Dtype of Python objects, of which a pickle may hold arrays."""


_OBJECTS = _Objects()


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
    charge: Charge, version: Any, shape: Any, dtype: Any, columns_first: Any, content: Any
) -> np.ndarray:
    """Return an array from the state that NumPy pickles of it."""
    if version != 1 or not isinstance(columns_first, (bool, int)):
        raise Refused("an array's state of another version")
    if dtype is _OBJECTS:
        if not isinstance(content, list):
            raise Refused("objects that are no list")
        charge(len(content))
        return _object_array(content, _checked_shape(shape), bool(columns_first))
    return _filled(charge, dtype, shape, bool(columns_first), content)


def _filled(
    charge: Charge, dtype: Any, shape: Any, columns_first: bool, content: Any
) -> np.ndarray:
    """Return an array of numbers or text from its bytes."""
    if isinstance(content, (str, bytearray)):
        charge(len(content))
    if isinstance(content, str):
        content = content.encode("latin1")
    if not isinstance(content, (bytes, bytearray)) or not isinstance(dtype, np.dtype):
        raise Refused("an array of something that is no bytes")
    array = shaped(bytes(content), dtype, _checked_shape(shape), columns_first)
    array.flags.writeable = False
    return array


def dtype_from_state(
    unbuilt: Unbuilt, version: Any, order: Any, *state: Any
) -> np.dtype | _Objects:
    """Return a dtype with its byte order; all other state must be what NumPy writes."""
    dtype = np.dtype(object) if unbuilt.is_object else unbuilt.dtype
    known = dtype.__reduce__()[2]
    if version != known[0] or state != known[2:] or text_of(order) not in ("<", ">", "|", "="):
        raise Refused("a type with a state of its own")
    if unbuilt.is_object:
        return _OBJECTS
    return dtype if text_of(order) == "|" else dtype.newbyteorder(text_of(order))


def _checked_shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else ()
    if shape != sizes or not all(type(size) is int and size >= 0 for size in sizes):
        raise Refused("a shape that is none")
    if len(sizes) > 32:
        raise Refused(f"{len(sizes)} dimensions")
    return sizes


def _object_array(content: list[Any], shape: tuple[int, ...], columns_first: bool) -> np.ndarray:
    if math.prod(shape) != len(content):
        raise Refused(f"{len(content)} objects for the shape {shape}")
    array = np.empty(len(content), object)
    for place, value in enumerate(content):
        array[place] = value
    return array.reshape(shape, order="F" if columns_first else "C")


def as_keys(items: Any) -> list[Any]:
    """Return the keys if all are scalars; nested tuples could be hashed repeatedly.

    Integers of more bits and complex numbers can be chosen to have one hash, which makes a dict's
    time quadratic.
    """
    if not isinstance(items, (list, tuple)) or not all(type(item) in KEYS for item in items):
        raise Refused("a key that is no number and no text")
    if any(type(item) is int and item.bit_length() > MAX_KEY_BITS for item in items):
        raise Refused(f"an integer key of more than {MAX_KEY_BITS} bits")
    return list(items)


def as_dict(pairs: list[Any]) -> dict[Any, Any]:
    """Return the dict of alternating keys and values, if all keys are scalars."""
    if len(pairs) % 2:
        raise Refused("a key without a value")
    return dict(zip(as_keys(pairs[::2]), pairs[1::2], strict=True))


@dataclass(frozen=True)
class Call:
    """Substitute for a callable that a pickle may name."""

    make: Callable[..., Any]


def _make_type(charge: Charge, code: Any, *flags: Any) -> Unbuilt:
    if len(flags) > 2 or not all(isinstance(flag, (bool, int)) for flag in flags):
        raise Refused("a type with more than a name")
    code = text_of(code)
    return Unbuilt(is_object=True) if code in ("O", "O8") else Unbuilt(_admitted_type(code))


def _make_array(charge: Charge, kind: Any, shape: Any, code: Any) -> Unbuilt:
    if kind is not _ARRAY_TYPE:
        raise Refused("an array of another type than numpy.ndarray")
    return Unbuilt()


def _make_scalar(charge: Charge, dtype: Any, content: Any) -> np.generic:
    # A scalar is a copy, unlike an array over the same bytes.
    if isinstance(content, bytes):
        charge(len(content))
    return _filled(charge, dtype, (), False, content)[()]


def _make_from_buffer(
    charge: Charge, content: Any, dtype: Any, shape: Any, order: Any
) -> np.ndarray:
    return _filled(charge, dtype, shape, order == "F", content)


def _make_bytes(charge: Charge, text: Any, encoding: Any) -> bytes:
    """Return bytes as protocol 2 encodes them."""
    if encoding != "latin1" or not isinstance(text, str):
        raise Refused(f"bytes encoded as {one_line(encoding)!r}")
    charge(len(text))
    return text.encode("latin1")


def _make_bytearray(charge: Charge, *arguments: Any) -> bytearray:
    match arguments:
        case ():
            return bytearray()
        case (bytes(content),):
            charge(len(content))
            return bytearray(content)
        case (str(text), "latin-1"):
            charge(len(text))
            return bytearray(text, "latin1")
    raise Refused("a bytearray of something else than bytes")


def _make_set(charge: Charge, items: Any = ()) -> set[Any]:
    charge(len(items) if isinstance(items, (list, tuple)) else 0)
    return set(as_keys(items))


def _make_complex(charge: Charge, real: Any, imaginary: Any) -> complex:
    if not all(isinstance(part, float) for part in (real, imaginary)):
        raise Refused("a complex number of something else than two floats")
    return complex(real, imaginary)


def _refuse_call(charge: Charge, *arguments: Any) -> None:
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
            ("frozenset", lambda charge, items=(): frozenset(_make_set(charge, items))),
            ("bytearray", _make_bytearray),
            ("complex", _make_complex),
        )
    },
}
"""Substitutes by module and name, for NumPy 1 and 2 and for Python 2 and 3."""
