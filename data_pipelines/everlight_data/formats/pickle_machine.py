"""Stack machine that pickles are programs for, with the instructions for plain data.

It implements the instructions that build numbers, text and plain containers. A name is looked up
in `pickle_values.ADMITTED` or refused. The number of instructions, the bytes copied and
the memory of objects are limited.
"""

import io
import pickletools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from everlight_data.errors import DataError
from everlight_data.formats.pickle_values import (
    ADMITTED,
    OBJECT_BYTES,
    Budget,
    Call,
    Refused,
    Unbuilt,
    array_from_state,
    as_dict,
    as_keys,
    dtype_from_state,
    text_of,
)
from everlight_data.texts import one_line

Encoding = Literal["ASCII", "latin1", "bytes"]

MAX_OBJECTS = 2_000_000
"""Limit on a pickle's instructions and on the objects it holds.

Shared objects count at every occurrence; CIFAR-100's pickles have 400,000 objects.
"""
REFERENCE_BYTES = 100
"""Memory charged for an entry of the memo."""
MAX_INTEGER_BITS = 1_024
"""Limit on the bits of an integer."""


_MARK = object()
"""Marker below a container's first item on the stack."""


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


class _Machine:
    """Stack machine with a memo and the effects of the instructions."""

    def __init__(self, name: str, encoding: Encoding, copied: int, foreign: Foreign | None):
        self.name, self.encoding, self.foreign = name, encoding, foreign
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.budget = Budget(copied)

    def run(self, instructions: Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]]) -> Any:
        for count, (operation, argument, _) in enumerate(instructions):
            if count >= MAX_OBJECTS:
                raise Refused(f"more than {MAX_OBJECTS:,} instructions")
            if operation.name == "STOP":
                return self.pop()
            self.budget.charge_objects(_CHARGES.get(operation.name, 0))
            if operation.name in _PUSHED:
                self.stack.append(self.constant(operation.name, argument))
            elif operation.name in _INSTRUCTIONS:
                _INSTRUCTIONS[operation.name](self, argument)
            else:
                raise Refused(f"the instruction {operation.name}")
        raise Refused("no end")

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused("an instruction without its operand")
        return self.stack.pop()

    def top(self, *kinds: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kinds):
            raise Refused("an instruction for another operand")
        return self.stack[-1]

    def items(self) -> list[Any]:
        """Pop all items above the last mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                popped = self.stack[place + 1 :]
                del self.stack[place:]
                return popped
        raise Refused("a container without its beginning")

    def constant(self, operation: str, argument: Any) -> Any:
        """Return a constant that the pickle itself holds."""
        if operation in _OLD_STRINGS and isinstance(argument, str):
            raw = argument.encode("latin1")
            return raw if self.encoding == "bytes" else raw.decode(self.encoding)
        if isinstance(argument, int) and argument.bit_length() > MAX_INTEGER_BITS:
            raise Refused(f"a number of {argument.bit_length():,} bits")
        return argument

    def resolve(self, module: str, function: str) -> None:
        call = ADMITTED.get((module, function))
        if call is None and self.foreign is not None:
            if (module, function) in self.foreign.values:
                self.stack.append(self.foreign.values[module, function])
                return
            if (module, function) in self.foreign.calls:
                make = self.foreign.calls[module, function]
                self.stack.append(Call(lambda _, *arguments: make(*arguments)))
                return
        if call is None:
            raise DataError(
                f"{self.name} names {one_line(module)}.{one_line(function)}, which is neither a "
                "NumPy array nor a plain container. It was not run; download the file from its "
                "original source."
            )
        self.stack.append(call)

    def stack_global(self) -> None:
        function, module = self.pop(), self.pop()
        self.resolve(text_of(module), text_of(function))

    def remember(self, place: int) -> None:
        if not self.stack or self.stack[-1] is _MARK:
            raise Refused("nothing to remember")
        self.memo[place] = self.stack[-1]
        if isinstance(self.stack[-1], Unbuilt):
            self.stack[-1].places.append(place)

    def recall(self, place: int) -> None:
        if place not in self.memo:
            raise Refused("a reference to nothing")
        self.stack.append(self.memo[place])

    def extend(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    def append(self) -> None:
        item = self.pop()
        self.extend([item])

    def set_items(self, pairs: list[Any]) -> None:
        self.top(dict).update(as_dict(self.budget, pairs))

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value])

    def add_items(self, items: list[Any]) -> None:
        self.top(set).update(as_keys(self.budget, items))

    def make_frozenset(self) -> None:
        self.stack.append(frozenset(as_keys(self.budget, self.items())))

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(items)))

    def reduce(self) -> None:
        arguments, call = self.pop(), self.pop()
        if not isinstance(arguments, tuple) or not isinstance(call, Call):
            raise Refused("a call of something that is not a function")
        self.stack.append(call.make(self.budget, *arguments))

    def refer(self) -> None:
        if self.foreign is None:
            raise Refused("a reference to something outside")
        self.stack.append(self.foreign.reference(self.pop()))

    def build(self) -> None:
        """Set the state of an array or a dtype."""
        state, unbuilt = self.pop(), self.pop()
        if self.foreign is not None and isinstance(unbuilt, dict):
            self.stack.append(unbuilt)
            return
        if not isinstance(unbuilt, Unbuilt) or not isinstance(state, tuple):
            raise Refused("a state for something that has none")
        built = (
            array_from_state(self.budget, *state)
            if unbuilt.is_array
            else dtype_from_state(unbuilt, *state)
        )
        for place in unbuilt.places:
            self.memo[place] = built
        # A copy on the stack may be built again, and would go through all of them each time.
        unbuilt.places.clear()
        self.stack.append(built)


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
_CHARGES = {
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "BYTEARRAY8"), OBJECT_BYTES),
    **dict.fromkeys(("LIST", "DICT", "FROZENSET"), OBJECT_BYTES),
    **dict.fromkeys(("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), OBJECT_BYTES),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID"), OBJECT_BYTES),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), REFERENCE_BYTES),
}
"""Memory charged for what an instruction makes, in bytes."""

_INSTRUCTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "NONE": lambda machine, _: machine.stack.append(None),
    "NEWTRUE": lambda machine, _: machine.stack.append(True),
    "NEWFALSE": lambda machine, _: machine.stack.append(False),
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "POP": lambda machine, _: machine.stack.pop(),
    "POP_MARK": lambda machine, _: machine.items(),
    "DUP": lambda machine, _: machine.stack.append(machine.top(object)),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_TUPLE": lambda machine, _: machine.stack.append(()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_SET": lambda machine, _: machine.stack.append(set()),
    "LIST": lambda machine, _: machine.stack.append(machine.items()),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.items())),
    "DICT": lambda machine, _: machine.stack.append(as_dict(machine.budget, machine.items())),
    "FROZENSET": lambda machine, _: machine.make_frozenset(),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": lambda machine, _: machine.append(),
    "APPENDS": lambda machine, _: machine.extend(machine.items()),
    "SETITEM": lambda machine, _: machine.set_item(),
    "SETITEMS": lambda machine, _: machine.set_items(machine.items()),
    "ADDITEMS": lambda machine, _: machine.add_items(machine.items()),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.remember),
    "MEMOIZE": lambda machine, _: machine.remember(len(machine.memo)),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.recall),
    "GLOBAL": lambda machine, names: machine.resolve(*names.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, _: machine.stack_global(),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.refer(),
}


def run_pickle(
    content: bytes | io.BytesIO, name: str, encoding: Encoding, foreign: Foreign | None
) -> Any:
    """Return the value that a pickle's instructions build; it may still contain itself.

    Args:
      content: a pickle's bytes, or a stream, which is left at the end of the pickle.
      name: name of the pickle in error messages.
      encoding: decoding of the 8-bit strings of a Python 2 pickle.
      foreign: further names that the pickle may use.

    Raises:
      DataError: the pickle names anything else.
      Refused: the pickle has another instruction or exceeds a limit. A damaged pickle raises nearly
        every kind of exception (the pickle module's documentation).
    """
    size = content.getbuffer().nbytes if isinstance(content, io.BytesIO) else len(content)
    return _Machine(name, encoding, 2 * size, foreign).run(pickletools.genops(content))
