"""Reader of untrusted pickles that runs none of their code.

A pickle is a program for a small stack machine. The machine here implements the instructions that
build numbers, text and plain containers. It recognizes the callables by which NumPy pickles arrays
but never calls them: it builds the arrays itself, from bytes and a whitelisted type. All other
names are refused before they are looked up. The number of objects, their nesting and the bytes
copied are limited.
"""

import io
import math
import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from everlight_data.arrays import admitted_dtype, array_of, parse_header, shaped
from everlight_data.errors import DataError
from everlight_data.files import one_line, read_bytes

Encoding = Literal["ASCII", "latin1", "bytes"]

MAX_OBJECTS = 2_000_000
"""Limit on a pickle's instructions and on the objects it holds.

Shared objects count at every occurrence; CIFAR-100's pickles have 400,000 objects.
"""
MAX_DEPTH = 50
"""Limit on the nesting of containers."""
MAX_INTEGER_BITS = 1_024
"""Limit on the bits of an integer."""
MAX_BYTES = 1_000_000_000
"""Limit on the size of a pickle."""

_AGAIN = "Download it again."
_SCALARS = (type(None), bool, int, float, complex, str, bytes)


class _Refused(ValueError):
    """Error about content outside arrays and plain containers."""


class _Mark:
    """Marker of a container's first item on the stack."""


class _Unbuilt:
    """Array or dtype whose state has not been read yet."""

    def __init__(self, dtype: np.dtype | None = None, is_object: bool = False):
        self.dtype, self.is_object = dtype, is_object
        self.is_array = dtype is None and not is_object
        self.places: list[int] = []
        """Memo keys that refer to this object."""


class Foreign(NamedTuple):
    """Further names that pickles may use, with substitutes made here."""

    values: Mapping[tuple[str, str], Any]
    """Substitutes for types or constants, by module and name."""
    calls: Mapping[tuple[str, str], Callable[..., Any]]
    """Functions that make an object from a call's arguments, which may be any value read.

    If the object is a dict, any state that the pickle assigns to it is dropped.
    """
    reference: Callable[[Any], Any]
    """Function from a persistent id to the substitute of the referenced object."""


class _Objects:
    """Dtype of Python objects, of which a pickle may hold arrays."""


_OBJECTS = _Objects()


def _admitted_type(code: str) -> np.dtype:
    if code.startswith(("<", ">", "|", "=")):
        raise _Refused(f"an array of type {code!r}")
    return admitted_dtype(code)


def _text(value: Any) -> str:
    """Return text, decoded if Python 2 wrote it as bytes."""
    if isinstance(value, bytes):
        value = value.decode("ascii")
    if not isinstance(value, str):
        raise _Refused("something else where a name belongs")
    return value


class _Machine:
    """Stack machine with a memo and the effects of the instructions."""

    def __init__(self, name: str, encoding: Encoding, copied: int, foreign: Foreign | None):
        self.name, self.encoding, self.foreign = name, encoding, foreign
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.left = copied

    def run(self, instructions: Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]) -> Any:
        for count, (operation, argument, _) in enumerate(instructions):
            if count >= MAX_OBJECTS:
                raise _Refused(f"more than {MAX_OBJECTS:,} instructions")
            if operation.name == "STOP":
                return self.pop()
            if operation.name in _PUSHED:
                self.stack.append(self.constant(operation.name, argument))
            elif operation.name in _INSTRUCTIONS:
                _INSTRUCTIONS[operation.name](self, argument)
            else:
                raise _Refused(f"the instruction {operation.name}")
        raise _Refused("no end")

    def pop(self) -> Any:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise _Refused("an instruction without its operand")
        return self.stack.pop()

    def top(self, *kinds: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kinds):
            raise _Refused("an instruction for another operand")
        return self.stack[-1]

    def items(self) -> list[Any]:
        """Pop all items above the last mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[place], _Mark):
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise _Refused("a container without its beginning")

    def copy(self, count: int) -> None:
        """Charge copied bytes or items to the budget."""
        self.left -= count
        if self.left < 0:
            raise _Refused("the same bytes copied over and over")

    def constant(self, operation: str, argument: Any) -> Any:
        """Return a constant that the pickle itself holds."""
        if operation in _OLD_STRINGS and isinstance(argument, str):
            raw = argument.encode("latin1")
            return raw if self.encoding == "bytes" else raw.decode(self.encoding)
        if isinstance(argument, int) and argument.bit_length() > MAX_INTEGER_BITS:
            raise _Refused(f"a number of {argument.bit_length():,} bits")
        return argument

    def resolve(self, module: str, function: str) -> None:
        name = _ADMITTED.get((module, function))
        if name is None and self.foreign is not None:
            if (module, function) in self.foreign.values:
                self.stack.append(self.foreign.values[module, function])
                return
            if (module, function) in self.foreign.calls:
                make = self.foreign.calls[module, function]
                self.stack.append(_Call(lambda _, *arguments: make(*arguments)))
                return
        if name is None:
            raise DataError(
                f"{self.name} names {one_line(module)}.{one_line(function)}, which is neither a "
                "NumPy array nor a plain container. It was not run; download the file from its "
                "original source."
            )
        self.stack.append(_CALLS[name])

    def stack_global(self) -> None:
        function, module = self.pop(), self.pop()
        self.resolve(_text(module), _text(function))

    def remember(self, place: int) -> None:
        if not self.stack or isinstance(self.stack[-1], _Mark):
            raise _Refused("nothing to remember")
        self.memo[place] = self.stack[-1]
        if isinstance(self.stack[-1], _Unbuilt):
            self.stack[-1].places.append(place)

    def recall(self, place: int) -> None:
        if place not in self.memo:
            raise _Refused("a reference to nothing")
        self.stack.append(self.memo[place])

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def append(self) -> None:
        item = self.pop()
        self.extend([item])

    def set_items(self, pairs: list[Any]) -> None:
        self.top(dict).update(_as_dict(pairs))

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def add_items(self, items: list[Any]) -> None:
        self.top(set).update(_as_keys(items))

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def reduce(self) -> None:
        arguments, call = self.pop(), self.pop()
        if not isinstance(arguments, tuple) or not isinstance(call, _Call):
            raise _Refused("a call of something that is no function")
        self.stack.append(call.make(self, *arguments))

    def refer(self) -> None:
        if self.foreign is None:
            raise _Refused("a reference to something outside")
        self.stack.append(self.foreign.reference(self.pop()))

    def build(self) -> None:
        """Set the state of an array or a dtype."""
        state, unbuilt = self.pop(), self.pop()
        if self.foreign is not None and isinstance(unbuilt, dict):
            self.stack.append(unbuilt)
            return
        if not isinstance(unbuilt, _Unbuilt) or not isinstance(state, tuple):
            raise _Refused("a state for something that has none")
        built = self.array(*state) if unbuilt.is_array else _with_order(unbuilt, *state)
        for place in unbuilt.places:
            self.memo[place] = built
        self.stack.append(built)

    def array(
        self, version: Any, shape: Any, dtype: Any, columns_first: Any, content: Any
    ) -> np.ndarray:
        if version != 1 or not isinstance(columns_first, (bool, int)):
            raise _Refused("an array's state of another version")
        if dtype is _OBJECTS:
            if not isinstance(content, list):
                raise _Refused("objects that are no list")
            self.copy(len(content))
            return _object_array(content, _checked_shape(shape), bool(columns_first))
        return self.filled(dtype, shape, bool(columns_first), content)

    def filled(self, dtype: Any, shape: Any, columns_first: bool, content: Any) -> np.ndarray:
        """Return an array of numbers or text from its bytes."""
        if isinstance(content, (str, bytearray)):
            self.copy(len(content))
        if isinstance(content, str):
            content = content.encode("latin1")
        if not isinstance(content, (bytes, bytearray)) or not isinstance(dtype, np.dtype):
            raise _Refused("an array of something that is no bytes")
        array = shaped(bytes(content), dtype, _checked_shape(shape), columns_first)
        array.flags.writeable = False
        return array


def _with_order(unbuilt: _Unbuilt, version: Any, order: Any, *state: Any) -> np.dtype | _Objects:
    """Return a dtype with its byte order; all other state must be what NumPy writes."""
    dtype = np.dtype(object) if unbuilt.is_object else unbuilt.dtype
    known = dtype.__reduce__()[2]
    if version != known[0] or state != known[2:] or _text(order) not in ("<", ">", "|", "="):
        raise _Refused("a type with a state of its own")
    if unbuilt.is_object:
        return _OBJECTS
    return dtype if _text(order) == "|" else dtype.newbyteorder(_text(order))


def _checked_shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else ()
    if shape != sizes or not all(type(size) is int and size >= 0 for size in sizes):
        raise _Refused("a shape that is none")
    if len(sizes) > 32:
        raise _Refused(f"{len(sizes)} dimensions")
    return sizes


def _object_array(content: list[Any], shape: tuple[int, ...], columns_first: bool) -> np.ndarray:
    if math.prod(shape) != len(content):
        raise _Refused(f"{len(content)} objects for the shape {shape}")
    array = np.empty(len(content), object)
    for place, value in enumerate(content):
        array[place] = value
    return array.reshape(shape, order="F" if columns_first else "C")


def _as_keys(items: Any) -> list[Any]:
    """Return the keys if all are scalars; nested tuples could be hashed repeatedly."""
    if not isinstance(items, (list, tuple)) or not all(type(item) in _SCALARS for item in items):
        raise _Refused("a key that is no number and no text")
    return list(items)


def _as_dict(pairs: list[Any]) -> dict[Any, Any]:
    if len(pairs) % 2:
        raise _Refused("a key without a value")
    return dict(zip(_as_keys(pairs[::2]), pairs[1::2], strict=True))


@dataclass(frozen=True)
class _Call:
    """Substitute for a callable that a pickle may name."""

    make: Callable[..., Any]


def _make_type(machine: _Machine, code: Any, *flags: Any) -> _Unbuilt:
    if len(flags) > 2 or not all(isinstance(flag, (bool, int)) for flag in flags):
        raise _Refused("a type with more than a name")
    code = _text(code)
    return _Unbuilt(is_object=True) if code in ("O", "O8") else _Unbuilt(_admitted_type(code))


def _make_array(machine: _Machine, kind: Any, shape: Any, code: Any) -> _Unbuilt:
    if kind is not _CALLS["array type"]:
        raise _Refused("an array of another type than numpy.ndarray")
    return _Unbuilt()


def _make_scalar(machine: _Machine, dtype: Any, content: Any) -> np.generic:
    return machine.filled(dtype, (), False, content)[()]


def _make_from_buffer(
    machine: _Machine, content: Any, dtype: Any, shape: Any, order: Any
) -> np.ndarray:
    return machine.filled(dtype, shape, order == "F", content)


def _make_bytes(machine: _Machine, text: Any, encoding: Any) -> bytes:
    """Return bytes as protocol 2 encodes them."""
    if encoding != "latin1" or not isinstance(text, str):
        raise _Refused(f"bytes encoded as {one_line(encoding)!r}")
    machine.copy(len(text))
    return text.encode("latin1")


def _make_bytearray(machine: _Machine, *arguments: Any) -> bytearray:
    match arguments:
        case ():
            return bytearray()
        case (bytes(content),):
            machine.copy(len(content))
            return bytearray(content)
        case (str(text), "latin-1"):
            machine.copy(len(text))
            return bytearray(text, "latin1")
    raise _Refused("a bytearray of something else than bytes")


def _make_set(machine: _Machine, items: Any = ()) -> set[Any]:
    machine.copy(len(items) if isinstance(items, (list, tuple)) else 0)
    return set(_as_keys(items))


def _make_complex(machine: _Machine, real: Any, imaginary: Any) -> complex:
    if not all(isinstance(part, float) for part in (real, imaginary)):
        raise _Refused("a complex number of something else than two floats")
    return complex(real, imaginary)


def _refuse_call(machine: _Machine, *arguments: Any) -> None:
    # numpy.ndarray itself can alias raw memory.
    raise _Refused("a call of numpy.ndarray")


_CALLS: dict[str, _Call] = {
    "array type": _Call(_refuse_call),
    "dtype": _Call(_make_type),
    "_reconstruct": _Call(_make_array),
    "scalar": _Call(_make_scalar),
    "_frombuffer": _Call(_make_from_buffer),
    "encode": _Call(_make_bytes),
    "bytearray": _Call(_make_bytearray),
    "set": _Call(_make_set),
    "frozenset": _Call(lambda machine, items=(): frozenset(_make_set(machine, items))),
    "complex": _Call(_make_complex),
}
_ADMITTED: dict[tuple[str, str], str] = {
    ("numpy", "ndarray"): "array type",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    **{
        (f"numpy.{core}.{module}", function): function
        for core in ("core", "_core")
        for module, function in (
            ("multiarray", "_reconstruct"),
            ("multiarray", "scalar"),
            ("numeric", "_frombuffer"),
        )
    },
    **{
        (builtins, kind): kind
        for builtins in ("builtins", "__builtin__")
        for kind in ("set", "frozenset", "bytearray", "complex")
    },
}

_OLD_STRINGS = frozenset({"STRING", "BINSTRING", "SHORT_BINSTRING"})
_NUMBERS = frozenset({"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"})
_PUSHED = (
    _OLD_STRINGS
    | _NUMBERS
    | frozenset(
        {"FLOAT", "BINFLOAT", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"}
        | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
    )
)

_INSTRUCTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "MARK": lambda machine, _: machine.stack.append(_Mark()),
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.items(),
    "DUP": lambda machine, _: machine.stack.append(machine.top(object)),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_SET": lambda machine, _: machine.stack.append(set()),
    "LIST": lambda machine, _: machine.stack.append(machine.items()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.items())),
    "DICT": lambda machine, _: machine.stack.append(_as_dict(machine.items())),
    "FROZENSET": lambda machine, _: machine.stack.append(frozenset(_as_keys(machine.items()))),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": lambda machine, _: machine.append(),
    "APPENDS": lambda machine, _: machine.extend(machine.items()),
    "SETITEM": lambda machine, _: machine.set_item(),
    "SETITEMS": lambda machine, _: machine.set_items(machine.items()),
    "ADDITEMS": lambda machine, _: machine.add_items(machine.items()),
    "PUT": lambda machine, place: machine.remember(place),
    "BINPUT": lambda machine, place: machine.remember(place),
    "LONG_BINPUT": lambda machine, place: machine.remember(place),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    "GET": lambda machine, place: machine.recall(place),
    "BINGET": lambda machine, place: machine.recall(place),
    "LONG_BINGET": lambda machine, place: machine.recall(place),
    "GLOBAL": lambda machine, names: machine.resolve(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.stack_global(),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.refer(),
}


class _Extent(NamedTuple):
    """Number of objects in a value, shared ones counted at every occurrence, and nesting depth."""

    count: int
    depth: int


def _measure(value: Any, depth: int, known: dict[int, _Extent | None]) -> _Extent:
    """Return the extent of a value; refuse one that contains itself or exceeds the limits."""
    if type(value) in _SCALARS or isinstance(value, (bytearray, np.dtype, np.generic)):
        return _Extent(1, 0)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _Extent(1, 0)
    if not isinstance(value, (list, tuple, dict, set, frozenset, np.ndarray)):
        raise _Refused("an array, a type or a function that was never made")
    if depth > MAX_DEPTH:
        raise _Refused(f"containers in containers deeper than {MAX_DEPTH}")
    if id(value) in known:
        extent = known[id(value)]
        if extent is None:
            raise _Refused("a container that holds itself")
    else:
        known[id(value)] = None
        inner = value.values() if isinstance(value, dict) else value
        inner = inner.flat if isinstance(inner, np.ndarray) else inner
        extents = [_measure(each, depth + 1, known) for each in inner]
        keys = len(value) if isinstance(value, dict) else 0
        extent = _Extent(
            1 + keys + sum(each.count for each in extents),
            1 + max((each.depth for each in extents), default=0),
        )
        known[id(value)] = extent
    if extent.count > MAX_OBJECTS or depth + extent.depth > MAX_DEPTH + 1:
        raise _Refused(f"more than {MAX_OBJECTS:,} objects, or deeper than {MAX_DEPTH}")
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
    content = read_bytes(source, MAX_BYTES, _AGAIN) if isinstance(source, Path) else source
    try:
        size = content.getbuffer().nbytes if isinstance(content, io.BytesIO) else len(content)
        machine = _Machine(name, encoding, 2 * size, foreign)
        value = machine.run(pickletools.genops(content))
        _measure(value, 0, {})
    except DataError:
        raise
    # Damaged pickles raise nearly every kind of exception (the pickle module's documentation).
    except Exception as error:
        raise DataError(
            f"{name} cannot be unpickled; it is truncated, damaged or not a pickle of plain data "
            f"({type(error).__name__.strip('_')}: {one_line(error)}). {_AGAIN}"
        ) from error
    return value


def load_npy_restricted(content: bytes, name: str, encoding: Encoding = "ASCII") -> np.ndarray:
    """Return the array of a `.npy` file; objects are read by `load_restricted`.

    Args:
      content: the file's bytes.
      name: name of the file in error messages.
      encoding: string decoding as for `load_restricted`.

    Raises:
      DataError: the content is truncated, not in the `.npy` format, or holds objects that are not
        allowed.
    """
    try:
        header = parse_header(content)
        if header.dtype is not None:
            return array_of(content, header)
    except ValueError as error:
        raise DataError(
            f"{name} is not an intact .npy file ({one_line(error)}). {_AGAIN}"
        ) from error
    array = load_restricted(content[header.length :], name, encoding)
    if not isinstance(array, np.ndarray) or array.shape != header.shape:
        raise DataError(
            f"{name} does not hold an array of shape {header.shape} as its header says. {_AGAIN}"
        )
    return array
