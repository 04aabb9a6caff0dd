"""Pickles made to do harm: refused in one line, in little time and memory, nothing run."""

import pickle
import struct

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.formats.unpickle import load_restricted

HEADER = b"\x80\x04"


def short(text):
    return b"\x8c" + bytes([len(text)]) + text.encode()


def call(module, function, *arguments):
    """STACK_GLOBAL, a tuple of arguments, REDUCE."""
    return short(module) + short(function) + b"\x93(" + b"".join(arguments) + b"tR"


def dtype(code, state):
    """A type of NumPy's with a state of the attacker's own."""
    made = call("numpy", "dtype", short(code), b"\x89", b"\x88")
    return made + b"(" + b"".join(pickle.dumps(part, 2)[2:-1] for part in state) + b"tb"


def array(dtype_bytes, content, shape=(1,)):
    made = call(
        "numpy.core.multiarray", "_reconstruct", short("numpy") + short("ndarray") + b"\x93"
    )
    made = made[:-2] + b"K\x00\x85C\x01btR"
    shape_bytes = pickle.dumps(tuple(shape), 2)[2:-1]
    return made + b"(K\x01" + shape_bytes + dtype_bytes + b"\x89" + content + b"tb"


EIGHT = b"C\x08" + struct.pack("<q", 2**40)
BYTE = dtype("u1", (3, "|", None, None, None, -1, -1, 0))
ATTACKS = {
    "object field over bytes": array(
        dtype("V8", (3, "|", None, ("a",), {"a": 1}, 8, 1, 27)), EIGHT
    ),
    "object flags cleared": array(dtype("O8", (3, "|", None, None, None, -1, -1, 0)), EIGHT),
    "numbers with object flags": array(dtype("f8", (3, "<", None, None, None, -1, -1, 63)), EIGHT),
    "another item size": array(dtype("f8", (3, "<", None, None, None, 2**40, 8, 0)), EIGHT),
    "negative item size": array(dtype("f8", (3, "<", None, None, None, -5, 8, 0)), EIGHT),
    "subtype": array(dtype("f8", (3, "<", ("f8", (2**40,)), None, None, -1, -1, 0)), EIGHT),
    "version": array(dtype("f8", (9, "<", None, None, None, -1, -1, 0)), EIGHT),
    "void": array(dtype("V8", (3, "|", None, None, None, 8, 1, 0)), EIGHT),
    "time": array(dtype("M8", (3, "<", None, None, None, -1, -1, 0)), EIGHT),
    "text of a gigabyte": array(dtype("U999999999", (3, "<", None, None, None, 4, 4, 8)), EIGHT),
    "text without a width": array(
        dtype("S0", (3, "|", None, None, None, 0, 1, 0)), b"C\x00", (3_000_000_000,)
    ),
    "objects from bytes": array(dtype("O8", (3, "|", None, None, None, -1, -1, 63)), EIGHT),
    "objects as a scalar": call(
        "numpy.core.multiarray",
        "scalar",
        dtype("O8", (3, "|", None, None, None, -1, -1, 63)),
        EIGHT,
    ),
    "objects from a buffer": call(
        "numpy.core.numeric",
        "_frombuffer",
        EIGHT,
        dtype("O8", (3, "|", None, None, None, -1, -1, 63)),
        b"K\x01\x85",
        short("C"),
    ),
    "huge shape": array(dtype("f8", (3, "<", None, None, None, -1, -1, 0)), EIGHT, (2**62, 4)),
    "negative shape": array(dtype("f8", (3, "<", None, None, None, -1, -1, 0)), EIGHT, (-1,)),
    "state of a function": short("numpy") + short("dtype") + b"\x93}\x8c\x01aK\x01sb",
    "a type never built": call("numpy", "dtype", short("f8"), b"\x89", b"\x88"),
    "the array type itself": short("numpy") + short("ndarray") + b"\x93",
    "a shape that is not a tuple": array(
        dtype("f8", (3, "<", None, None, None, -1, -1, 0)), EIGHT
    ).replace(b"K\x01\x85", b"K\x01", 1),
    "billion laughs in lists": b"]"
    + b"".join(bytes([0x71, n]) + b"](" + bytes([0x68, n]) * 10 + b"e" for n in range(30)),
    "billion laughs in tuples": b")"
    + b"".join(bytes([0x71, n]) + b"(" + bytes([0x68, n]) * 10 + b"t" for n in range(30)),
    "billion laughs as a key": b")"
    + b"".join(bytes([0x71, n]) + bytes([0x68, n]) + b"\x86" for n in range(60))
    + b"q\xf0}h\xf0K\x01s",
    "500 lists deep": b"]" * 500 + b"a" * 499,
    "100,000 lists deep": b"]" * 100_000 + b"a" * 99_999,
    "a list in itself": b"]q\x00h\x00a",
    "8 exabytes of text": b"\x8d" + struct.pack("<Q", 2**62),
    "8 exabytes of bytes": b"\x8e" + struct.pack("<Q", 2**62),
    "a bytearray of 8 exabytes": b"\x96" + struct.pack("<Q", 2**62),
    "the same bytes over and over": b"B"
    + struct.pack("<I", 100_000)
    + bytes(100_000)
    + b"q\x00"
    + (call("builtins", "bytearray", b"h\x00") + b"0") * 100,
    "the same buffer over and over": b"\x96"
    + struct.pack("<Q", 100_000)
    + bytes(100_000)
    + b"q\x00"
    + (
        call(
            "numpy.core.numeric",
            "_frombuffer",
            b"h\x00",
            BYTE,
            b"J\xa0\x86\x01\x00\x85",
            short("C"),
        )
        + b"0"
    )
    * 100,
    "a type of objects": dtype("O8", (3, "|", None, None, None, -1, -1, 63)),
    "a number of a million bits": b"\x8b" + struct.pack("<I", 125_000) + b"\x7f" * 125_000,
    "an extension": b"\x82\x01",
    "a persistent object": b"Pabc\n",
    "a new object": short("builtins") + short("set") + b"\x93)\x81",
    "no operand": b"R",
    "a mark alone": b"(",
    "nothing": b"",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_crafted_pickles_are_refused(name):
    content = HEADER + ATTACKS[name] + b"."
    with pytest.raises(DataError, match=r"^crafted ") as caught:
        load_restricted(content, "crafted")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_nothing_of_numpys_is_changed_by_a_state():
    before = np.frombuffer.__doc__
    changed = short("numpy.core.numeric") + short("_frombuffer") + b"\x93}" + short("__doc__")
    with pytest.raises(DataError):
        load_restricted(HEADER + changed + short("changed") + b"sb.", "crafted")
    assert np.frombuffer.__doc__ == before
    assert np.empty(1).__reduce_ex__(5)[0].__doc__ != "changed"


def test_the_machine_itself_reads_such_an_array():
    """The pieces that attacks are made of are those of a pickle that is read."""
    honest = array(dtype("f8", (3, "<", None, None, None, -1, -1, 0)), EIGHT)
    found = load_restricted(HEADER + honest + b".", "honest")
    np.testing.assert_array_equal(found, np.frombuffer(struct.pack("<q", 2**40), "<f8"))
    assert not found.flags.writeable
    np.testing.assert_array_equal(pickle.loads(HEADER + honest + b"."), found)


def test_empty_text_of_numpys_is_read():
    """Its type has no width, which arrays of more than one element may not have."""
    for honest in (np.str_(""), np.bytes_(b""), np.zeros((0, 3), "U0")):
        found = load_restricted(pickle.dumps(honest), "honest")
        np.testing.assert_array_equal(found, honest)


def test_a_place_far_off_in_the_memo_costs_nothing():
    """NumPy's and Python's own reader would ask for 16 GB."""
    assert load_restricted(HEADER + b"K\x05r\xff\xff\xff\x7f.", "odd") == 5


def test_foreign_names_are_not_repeated_at_length():
    with pytest.raises(DataError) as caught:
        load_restricted(HEADER + b"cos\n" + b"x" * 100_000 + b"\n.", "crafted")
    assert len(str(caught.value)) < 1_000
