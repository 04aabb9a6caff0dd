"""Files that were made to do harm: refused in one line, in little time and memory, nothing run."""

import os
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.facts.parts.word_vectors import load_word_vectors
from everlight_data.formats.archives import inflate, opened_archive
from everlight_data.formats.arrays import decode_npy, map_npy, read_npz
from everlight_data.formats.files import leads_outside, read_bytes, read_text
from everlight_data.formats.image_headers import jpeg_size, png_size
from everlight_data.formats.tables import read_csv, read_json
from everlight_data.formats.unpickle import load_npy_restricted, load_restricted
from everlight_data.texts import one_line
from tests.data_pipelines.prepared import zipped

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
        npy("{'descr': '|S0', 'fortran_order': False, 'shape': (3000000000,), }"),
        npy("{'descr': '<U0', 'fortran_order': False, 'shape': (1000, 1000000), }"),
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
def test_arrays_of_numpy_are_read(code, order, shape, tmp_path):
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    content = np.array(numbers.astype(code), order=order)
    np.savez(tmp_path / "some.npz", content=content)
    result = read_npz(tmp_path / "some.npz", "Again.")["content"]
    assert result.dtype == content.dtype
    np.testing.assert_array_equal(result, content)


def test_a_mapped_file_that_is_shorter_than_it_claims_is_refused(tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, np.arange(1000))
    np.testing.assert_array_equal(map_npy(path, "Again."), np.arange(1000))
    path.write_bytes(path.read_bytes()[:-1])
    message = r"images\.npy is damaged \(it has 8,127 bytes, not 8,128\)"
    with pytest.raises(DataError, match=message):
        map_npy(path, "Again.")
    path.write_bytes(npy("{'descr': '|S0', 'fortran_order': False, 'shape': (3,), }"))
    with pytest.raises(DataError, match=r"images\.npy is damaged .*no array of numbers"):
        map_npy(path, "Again.")


# ---- Archives


def test_two_members_of_one_array_are_refused(tmp_path):
    """The last one was returned."""
    content = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", bytes(8))
    path = zipped(tmp_path / "some.npz", {"a.npy": content, "a": content})
    with pytest.raises(DataError, match=r"some\.npz holds a and a\.npy, two arrays a\. Again"):
        read_npz(path, "Again.")


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": 0, "a": 1}}]'])
def test_a_name_twice_in_an_object_of_json_is_refused(tmp_path, text):
    """The last value was returned."""
    path = tmp_path / "some.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"some\.json .*it has the name 'a' twice in an object"):
        read_json(path, "Again.")


def test_an_npz_with_a_member_that_unpacks_to_gigabytes_is_refused_at_once(tmp_path):
    header = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (400000000,), }")
    path = zipped(tmp_path / "bomb.npz", {"a.npy": header + bytes(400_000_000)})
    assert path.stat().st_size < 500_000
    with pytest.raises(DataError, match=r"bomb\.npz/a\.npy claims 400,000,\d+ bytes, more than"):
        read_npz(path, "Again.", limit=100_000_000)


def patched(path, offset_of, fmt, value):
    """Change a field of the only member's entry in the central directory."""
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
    path = zipped(tmp_path / "some.zip", {"a.txt": b"content"})
    patched(path, offset, fmt, value)
    with pytest.raises(DataError, match=rf"some\.zip.*{reason}.*Again\."):  # noqa: SIM117
        with opened_archive(path, "Again.") as archive:
            archive.read("a.txt", 1 << 40)


def test_a_name_twice_and_a_missing_member_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"2")
    path = tmp_path / "twice.zip"
    with pytest.raises(DataError, match="or duplicate names"), opened_archive(path, "Again."):
        pass
    path = zipped(tmp_path / "one.zip", {"a": b"1"})
    with opened_archive(path, "Again.") as archive:
        assert archive.files() == [("a", 1)]
        with pytest.raises(DataError, match=r"one\.zip does not contain b\. Again\."):
            archive.read("b", 10)
        with pytest.raises(DataError, match="claims 1 bytes, more than"):
            archive.read("a", 0)


def test_packed_parts_are_bounded():
    packed = zlib.compress(bytes(1000))
    assert inflate(packed, 1000) == bytes(1000)
    with pytest.raises(ValueError, match="more than 999 bytes"):
        inflate(packed, 999)
    with pytest.raises(ValueError, match="is truncated"):
        inflate(packed[:-5], 1000)


# ---- What is not a regular file


@pytest.fixture
def odd(tmp_path):
    """Create a folder, a pipe, a device, and a file that is too large."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(1 << 42)
    return tmp_path


@pytest.mark.parametrize("name", ["folder", "pipe", "device", "large"])
@pytest.mark.parametrize(
    ("read", "more"),
    [
        *((read_bytes, (1000, "Again.")), (read_text, ("Again.",)), (read_json, ("Again.",))),
        *(
            (read_csv, ("Again.",)),
            (read_npz, ("Again.",)),
            (lambda path: load_restricted(path, str(path)), ()),
        ),
        (load_word_vectors, (["a"],)),
    ],
)
def test_only_regular_files_of_a_bearable_size_are_read(odd, name, read, more):
    reason = "is not a regular file|cannot be read|has 4,398"
    with pytest.raises(DataError, match=f"{name} ({reason})"):
        read(odd / name, *more)


# ---- Text


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("a/../a/x.png", False),
        ("a/b/../../x.png", False),
        ("./..x.png", False),
        ("a\\..\\x.png", False),
        ("..", True),
        ("a/../../a/x.png", True),
        ("a\\..\\..\\x.png", True),
        ("/a/x.png", True),
        ("//a/x.png", True),
        ("a\0b", True),
    ],
)
def test_names_that_stay_below_their_folder_may_go_up(name, outside):
    assert leads_outside(name) == outside


def test_a_name_with_a_zero_in_it_is_refused():
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(Path("a\0b"), 10, "Again.")


def test_a_deep_json_a_large_number_and_another_encoding_are_refused(tmp_path):
    path = tmp_path / "some.json"
    for content in (b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'"\xff"', b"{", b""):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=r"some\.json is damaged or not the expected file \(.*Again\."
        ):
            read_json(path, "Again.")
    path.write_bytes(b'\xef\xbb\xbf{"a": [1]}')
    assert read_json(path, "Again.") == {"a": [1]}


def test_rows_of_a_csv_are_bounded(tmp_path, monkeypatch):
    """10 million rows in 110 MB took 3.2 GB."""
    monkeypatch.setattr("everlight_data.formats.tables.MAX_ROWS", 1_000)
    path = tmp_path / "some.csv"
    path.write_text("a,b\n" * 1_000 + "\n" * 1_000)
    assert len(read_csv(path, "Again.")) == 1_000
    path.write_text("a,b\n" * 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"some\.csv has more than 1,000 rows\. Again\."):
            read_csv(path, "Again.")
        assert tracemalloc.get_traced_memory()[1] < 1.5 * path.stat().st_size
    finally:
        tracemalloc.stop()


def test_a_csv_is_bounded_and_its_lines_counted(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text('a,b\n\n"1\n2",3\n')
    assert read_csv(path, "Again.") == [(1, ["a", "b"]), (4, ["1\n2", "3"])]
    for content in (b"a,b\n\xff\xfe,1\n", b'"' + b"x" * 200_000, b"a\x00b\n\xff"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"some\.csv is damaged or not the expected file"):
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
    "vectors", [[[[1, 1], [1, 1]]], [[1j, 1j]], [[0.0, 0]], [["1", "2"]], [[1, np.nan]]], ids=str
)
def test_arrays_that_are_no_word_vectors_are_refused(tmp_path, vectors):
    path = tmp_path / "a.npz"
    np.savez(path, words=np.array(["a"]), vectors=vectors)
    with pytest.raises(DataError, match=r"a\.npz (is damaged|has no vector)"):
        load_word_vectors(path, ["a"])


# ---- Headers of pictures, and messages


def test_sizes_are_read_from_headers(rng):
    for shape in ((3, 5, 3), (40, 20, 3), (300, 7)):
        pixels = rng.integers(0, 256, shape, np.uint8)
        assert png_size(imagecodecs.png_encode(pixels)) == shape[:2]
        assert jpeg_size(imagecodecs.jpeg8_encode(pixels)) == shape[:2]
    for content in (b"", b"\xff\xd8", b"\xff\xd8\xff\xd9" + bytes(8), b"GIF89a" * 5):
        with pytest.raises(ValueError, match="JPEG"):
            jpeg_size(content)
        with pytest.raises(ValueError, match="not a PNG"):
            png_size(content)


def test_texts_of_a_file_make_no_long_message():
    assert one_line("a\nb\r\n  c") == "a b c"
    assert len(one_line("x" * 10_000)) < 400


def test_a_member_without_a_name_is_refused(tmp_path):
    """Python's own `ZipInfo.is_dir` fails on it; found by mutated files."""
    path = zipped(tmp_path / "some.npz", {"x": b"content"})
    # The name's only letter goes, in the local header and in the directory.
    content = path.read_bytes()
    info = zipfile.ZipFile(path).infolist()[0]
    assert content.count(b"x") >= 2
    directory = content.rindex(b"PK\x01\x02")
    end = content.rindex(b"PK\x05\x06")
    changed = bytearray(content)
    changed[info.header_offset + 26 : info.header_offset + 28] = b"\0\0"
    changed[directory + 28 : directory + 30] = b"\0\0"
    del changed[directory + 46 : directory + 47]
    end -= 1
    changed[end + 12 : end + 16] = (end - directory).to_bytes(4, "little")
    path.write_bytes(changed)
    assert zipfile.ZipFile(path).infolist()[0].filename == ""
    with pytest.raises(DataError, match=r"some\.npz"):
        read_npz(path, "Again.")
