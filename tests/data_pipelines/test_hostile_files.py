"""Files that were made to do harm: refused in one line, in little time and memory, nothing run."""

import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from everlight_data.arrays import decode_npy, map_npy, read_npz
from everlight_data.errors import DataError
from everlight_data.facts.word_vectors import load_word_vectors
from everlight_data.files import (
    inflate,
    jpeg_size,
    one_line,
    opened_archive,
    png_size,
    read_bytes,
    read_csv,
    read_json,
    read_text,
)
from everlight_data.unpickle import load_npy_restricted, load_restricted

# ---- Pickles

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
    "a shape that is no tuple": array(
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


def test_a_place_far_off_in_the_memo_costs_nothing():
    """NumPy's and Python's own reader would ask for 16 GB."""
    assert load_restricted(HEADER + b"K\x05r\xff\xff\xff\x7f.", "odd") == 5


# ---- Array files


def npy(header, content=b""):
    text = header.encode("latin1").ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", bytes(25)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
        npy("{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }", bytes(8)),
        npy("{'descr': '|V8', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 33 + "), }", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "(" * 60 + "), }"),
        npy("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }", b"\xff\xff\xff\x7f"),
        npy("{'descr': '>U1', 'fortran_order': False, 'shape': (1,), }", b"\x00\x00\xd8\x00"),
        npy("-" * 100 + "1"),
        npy("__import__('os').system('true')"),
        b"\x93NUMPY\x03\x00\xff\xff\xff\xff{",
        b"\x93NUMPY",
        b"",
    ],
)
def test_crafted_npy_files_are_refused(content):
    with pytest.raises(DataError, match=r"^some\.npy .*Again\."):
        decode_npy(content, "some.npy", "Again.")
    with pytest.raises(DataError, match=r"^some\.npy"):
        load_npy_restricted(content, "some.npy")


@pytest.mark.parametrize("code", ["<f8", ">i2", "|b1", "<c8", "<U3", "|S2", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
def test_what_numpy_writes_is_read(code, order, shape, tmp_path):
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    content = np.array(numbers.astype(code), order=order)
    np.savez(tmp_path / "some.npz", content=content)
    found = read_npz(tmp_path / "some.npz", "Again.")["content"]
    assert found.dtype == content.dtype
    np.testing.assert_array_equal(found, content)


def test_a_mapped_file_that_is_shorter_than_it_claims_is_refused(tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, np.arange(1000))
    np.testing.assert_array_equal(map_npy(path, "Again."), np.arange(1000))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        DataError, match=r"images\.npy is damaged \(it has 8,127 bytes, not 8,128\)"
    ):
        map_npy(path, "Again.")


# ---- Archives


def zipped(path, *members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_an_npz_with_a_member_that_unpacks_to_gigabytes_is_refused_at_once(tmp_path):
    header = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (400000000,), }")
    path = zipped(tmp_path / "bomb.npz", ("a.npy", header + bytes(400_000_000)))
    assert path.stat().st_size < 500_000
    with pytest.raises(DataError, match=r"bomb\.npz/a\.npy claims 400,000,\d+ bytes, more than"):
        read_npz(path, "Again.", limit=100_000_000)


def patched(path, offset_of, fmt, value):
    """A field of the only member's entry in the central directory, changed."""
    content = bytearray(path.read_bytes())
    start = content.rindex(b"PK\x01\x02")
    struct.pack_into(fmt, content, start + offset_of, value)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("offset", "fmt", "value", "reason"),
    [
        (8, "<H", 1, "is encrypted"),
        (10, "<H", 14, "packed by method 14"),
        (10, "<H", 99, "packed by method 99"),
        (24, "<I", 2**31, "claims 2,147,483,648 bytes"),
        (16, "<I", 1, "Bad CRC"),
        (42, "<I", 2**31, "is damaged"),
    ],
)
def test_members_that_lie_are_refused(tmp_path, offset, fmt, value, reason):
    path = zipped(tmp_path / "some.zip", ("a.txt", b"content"))
    patched(path, offset, fmt, value)
    with pytest.raises(DataError, match=rf"some\.zip.*{reason}.*Again\."):  # noqa: SIM117
        with opened_archive(path, "Again.") as archive:
            archive.read("a.txt", 1 << 40)


def test_a_name_twice_and_a_missing_member_are_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = zipped(tmp_path / "twice.zip", ("a", b"1"), ("a", b"2"))
    with pytest.raises(DataError, match="or duplicate names"), opened_archive(path, "Again."):
        pass
    path = zipped(tmp_path / "one.zip", ("a", b"1"))
    with opened_archive(path, "Again.") as archive:
        assert archive.files() == [("a", 1)]
        with pytest.raises(DataError, match=r"one\.zip does not contain b\. Again\."):
            archive.read("b", 10)
        with pytest.raises(DataError, match="claims 1 bytes, more than"):
            archive.read("a", 0)


def test_packed_parts_are_bounded():
    import zlib

    packed = zlib.compress(bytes(1000))
    assert inflate(packed, 1000) == bytes(1000)
    with pytest.raises(ValueError, match="more than 999 bytes"):
        inflate(packed, 999)
    with pytest.raises(ValueError, match="is truncated"):
        inflate(packed[:-5], 1000)


# ---- What is not a regular file


@pytest.fixture
def odd(tmp_path):
    """A folder, a pipe, a device, and a file that is too large."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(1 << 42)
    return tmp_path


@pytest.mark.parametrize("name", ["folder", "pipe", "device", "large"])
@pytest.mark.parametrize(
    "read",
    [
        lambda path: read_bytes(path, 1000, "Again."),
        lambda path: read_text(path, "Again."),
        lambda path: read_json(path, "Again."),
        lambda path: read_csv(path, "Again."),
        lambda path: read_npz(path, "Again."),
        lambda path: load_restricted(path, str(path)),
        lambda path: load_word_vectors(path, ["a"]),
    ],
    ids=["bytes", "text", "json", "csv", "npz", "pickle", "words"],
)
def test_only_regular_files_of_a_bearable_size_are_read(odd, name, read):
    with pytest.raises(
        DataError, match=rf"{name} (is not a regular file|cannot be read|has 4,398)"
    ):
        read(odd / name)


# ---- Text


def test_a_name_with_a_zero_in_it_is_refused():
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(Path("a\0b"), 10, "Again.")


def test_a_deep_json_a_large_number_and_another_encoding_are_refused(tmp_path):
    path = tmp_path / "some.json"
    for content in (b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'"\xff"', b"{", b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"some\.json is damaged or another file \(.*Again\."):
            read_json(path, "Again.")
    path.write_bytes(b'\xef\xbb\xbf{"a": [1]}')
    assert read_json(path, "Again.") == {"a": [1]}


def test_a_csv_is_bounded_and_its_lines_counted(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text('a,b\n\n"1\n2",3\n')
    assert read_csv(path, "Again.") == [(1, ["a", "b"]), (4, ["1\n2", "3"])]
    for content in (b"a,b\n\xff\xfe,1\n", b'"' + b"x" * 200_000, b"a\x00b\n\xff"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"some\.csv is damaged or another file"):
            read_csv(path, "Again.")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.bin", b"1000000000 -1\n" + b"a " * 100),
        ("a.bin", b"1000000000 0\n" + b"a " * 100),
        ("a.bin", b"100000 4\na \0\0\0\0"),
        ("a.bin", b"x" * 2_000_000),
        ("a.bin", b""),
        ("a.txt", b"1 999999999\na 1 2\n"),
        ("a.txt", b"1 -3\na 1 2\n"),
        ("a.txt", b"a " + b"1 " * 1_000_000),
        ("a.txt", b"a 1 2\na 1 x\n"),
    ],
)
def test_files_of_word_vectors_that_lie_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} (is damaged|has no vector)"):
        load_word_vectors(tmp_path / name, ["a"])


@pytest.mark.parametrize(
    "vectors",
    [
        np.ones((1, 2, 2)),
        np.ones((1, 2)) * 1j,
        np.zeros((1, 2)),
        np.array([["1", "2"]]),
        np.array([[1, np.nan]]),
    ],
)
def test_arrays_that_are_no_word_vectors_are_refused(tmp_path, vectors):
    path = tmp_path / "a.npz"
    np.savez(path, words=np.array(["a"]), vectors=vectors)
    with pytest.raises(DataError, match=r"a\.npz (is damaged|has no vector)"):
        load_word_vectors(path, ["a"])


# ---- Headers of pictures, and messages


def test_sizes_are_read_from_headers(rng):
    import imagecodecs

    for shape in ((3, 5, 3), (40, 20, 3), (300, 7)):
        pixels = rng.integers(0, 256, shape, np.uint8)
        assert png_size(imagecodecs.png_encode(pixels)) == shape[:2]
        assert jpeg_size(imagecodecs.jpeg8_encode(pixels)) == shape[:2]
    for content in (b"", b"\xff\xd8", b"\xff\xd8\xff\xd9" + bytes(8), b"GIF89a" * 5):
        with pytest.raises(ValueError, match="JPEG"):
            jpeg_size(content)
        with pytest.raises(ValueError, match="not a PNG"):
            png_size(content)


def test_what_a_file_says_makes_no_long_message():
    assert one_line("a\nb\r\n  c") == "a b c"
    assert len(one_line("x" * 10_000)) < 400


def test_foreign_names_are_not_repeated_at_length():
    with pytest.raises(DataError) as caught:
        load_restricted(HEADER + b"cos\n" + b"x" * 100_000 + b"\n.", "crafted")
    assert len(str(caught.value)) < 1_000
