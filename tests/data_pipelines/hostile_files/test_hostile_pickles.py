"""Pickles made to do harm: refused in one line, in little time and memory, nothing run."""

import pickle
import struct

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.formats.unpickle import load_restricted
from tests.data_pipelines.hostile_files.pickle_codes import (
    BYTE,
    FLOAT,
    HEADER,
    OBJECT,
    array,
    built,
    call,
    dtype,
    short,
)
from tests.refusals import refused

EIGHT = b"C\x08" + struct.pack("<q", 2**40)
HUNDRED_THOUSAND = struct.pack("<I", 100_000) + bytes(100_000) + b"q\x00"
BUFFER = b"\x96" + struct.pack("<Q", 100_000) + bytes(100_000) + b"q\x00"
VIEW = (b"h\x00", BYTE, b"J\xa0\x86\x01\x00\x85", short("C"))
ATTACKS = {
    "object field over bytes": array(
        dtype("V8", (3, "|", None, ("a",), {"a": 1}, 8, 1, 27)), EIGHT
    ),
    "object flags cleared": array(built("O8", "|"), EIGHT),
    "numbers with object flags": array(built("f8", flags=63), EIGHT),
    "another item size": array(built("f8", size=2**40, alignment=8), EIGHT),
    "negative item size": array(built("f8", size=-5, alignment=8), EIGHT),
    "subtype": array(built("f8", subtype=("f8", (2**40,))), EIGHT),
    "version": array(built("f8", version=9), EIGHT),
    "void": array(built("V8", "|", 8, 1), EIGHT),
    "time": array(built("M8"), EIGHT),
    "text of a gigabyte": array(built("U999999999", "<", 4, 4, 8), EIGHT),
    "text without a width": array(built("S0", "|", 0, 1), b"C\x00", (3_000_000_000,)),
    "objects from bytes": array(OBJECT, EIGHT),
    "objects as a scalar": call("numpy.core.multiarray", "scalar", OBJECT, EIGHT),
    "objects from a buffer": call(
        "numpy.core.numeric", "_frombuffer", EIGHT, OBJECT, b"K\x01\x85", short("C")
    ),
    "huge shape": array(FLOAT, EIGHT, (2**62, 4)),
    "negative shape": array(FLOAT, EIGHT, (-1,)),
    "state of a function": short("numpy") + short("dtype") + b"\x93}\x8c\x01aK\x01sb",
    "a type never built": call("numpy", "dtype", short("f8"), b"\x89", b"\x88"),
    "the array type itself": short("numpy") + short("ndarray") + b"\x93",
    "a shape that is not a tuple": array(FLOAT, EIGHT).replace(b"K\x01\x85", b"K\x01", 1),
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
    + HUNDRED_THOUSAND
    + (call("builtins", "bytearray", b"h\x00") + b"0") * 100,
    "the same buffer over and over": BUFFER
    + (call("numpy.core.numeric", "_frombuffer", *VIEW) + b"0") * 100,
    "a type of objects": OBJECT,
    "a number of a million bits": b"\x8b" + struct.pack("<I", 125_000) + b"\x7f" * 125_000,
    "an extension": b"\x82\x01",
    "a persistent object": b"Pabc\n",
    "a new object": short("builtins") + short("set") + b"\x93)\x81",
    "a long name": b"cos\n" + b"x" * 100_000 + b"\n",
    "no operand": b"R",
    "a mark alone": b"(",
    "nothing": b"",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_crafted_pickles_are_refused(name):
    content = HEADER + ATTACKS[name] + b"."
    line = refused(r"^crafted ", lambda: load_restricted(content, "crafted"), DataError)
    assert len(line) < 700


def test_a_state_changes_no_object_of_numpy():
    before = np.frombuffer.__doc__
    changed = short("numpy.core.numeric") + short("_frombuffer") + b"\x93}" + short("__doc__")
    with pytest.raises(DataError):
        load_restricted(HEADER + changed + short("changed") + b"sb.", "crafted")
    assert np.frombuffer.__doc__ == before
    assert np.empty(1).__reduce_ex__(5)[0].__doc__ != "changed"


def test_the_machine_itself_reads_such_an_array():
    """The pieces that attacks are made of are those of a pickle that is read."""
    valid = array(FLOAT, EIGHT)
    result = load_restricted(HEADER + valid + b".", "valid")
    np.testing.assert_array_equal(result, np.frombuffer(struct.pack("<q", 2**40), "<f8"))
    assert not result.flags.writeable
    np.testing.assert_array_equal(pickle.loads(HEADER + valid + b"."), result)


def test_empty_text_of_numpys_is_read():
    """Its type has no width, which arrays of more than one element may not have."""
    for valid in (np.str_(""), np.bytes_(b""), np.zeros((0, 3), "U0")):
        result = load_restricted(pickle.dumps(valid), "valid")
        np.testing.assert_array_equal(result, valid)


def test_a_place_far_off_in_the_memo_costs_nothing():
    """NumPy's and Python's own reader would ask for 16 GB."""
    assert load_restricted(HEADER + b"K\x05r\xff\xff\xff\x7f.", "odd") == 5
