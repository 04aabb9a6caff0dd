"""The reader of `.mat` files against SciPy's writer and reader."""

import struct
import zlib

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.io

from everlight_data.errors import DataError
from everlight_data.formats.matlab import read_mat

NUMBERS = st.sampled_from(
    [np.dtype(code) for code in ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mat")


@hypothesis.given(
    NUMBERS.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=2, max_dims=4))),
    st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1),
    st.booleans(),
)
def test_files_of_scipy_are_read_as_scipy_reads_them(folder, numbers, text, packed):
    path = folder / "any.mat"
    cells = np.empty((1, 2), object)
    cells[0, :] = [numbers, text]
    written = {"numbers": numbers, "text": text, "cells": cells, "other": {"a": 1}}
    scipy.io.savemat(path, written, do_compression=packed)
    expected = scipy.io.loadmat(path)
    result, read_text, read_cells = read_mat(path, ["numbers", "text", "cells"])
    assert result.dtype == numbers.dtype
    np.testing.assert_array_equal(result, expected["numbers"])
    np.testing.assert_array_equal(read_text, expected["text"])
    assert read_cells.shape == (1, 2)
    np.testing.assert_array_equal(read_cells[0, 0], numbers)
    assert str(read_cells[0, 1].item()) == text


def test_rows_of_text_and_empty_cells(folder):
    cells = np.empty((2, 1), object)
    cells[:, 0] = [np.array(["ab", "cd"]), np.zeros((0, 0))]
    scipy.io.savemat(folder / "rows.mat", {"cells": cells})
    (result,) = read_mat(folder / "rows.mat", ["cells"])
    assert result[0, 0].tolist() == ["ab", "cd"]
    assert result[1, 0].size == 0


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


NUMBER = element(9, struct.pack("<d", 1.5))


def variable(kind=6, shape=(1, 1), parts=(NUMBER,), flags=0, name=b"x"):
    shape_bytes = struct.pack(f"<{len(shape)}i", *shape)
    head = element(6, struct.pack("<II", kind | flags, 0)) + element(5, shape_bytes)
    return element(14, head + element(1, name) + b"".join(parts))


def nested(depth):
    cell = variable(name=b"")
    for _ in range(depth):
        cell = variable(kind=1, parts=(cell,))
    return cell


def write(folder, content):
    path = folder / "crafted.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + content)
    return path


def test_the_smallest_file_is_read(folder):
    (result,) = read_mat(write(folder, variable()), ["x"])
    np.testing.assert_array_equal(result, [[1.5]])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (variable(shape=(2**31 - 1, 2**31 - 1)), "numbers for the shape"),
        (variable(shape=(-1, 1)), "invalid shape"),
        (variable(shape=(1,) * 40), "invalid shape"),
        (variable(kind=1, shape=(2**31 - 1, 2**20)), "cells for the shape"),
        (variable(kind=5), "class 5"),
        (variable(kind=2), "class 2"),
        (variable(kind=17), "class 17"),
        (variable(flags=0x0800), "complex"),
        (variable(kind=9, parts=(element(9, struct.pack("<d", 300.0)),)), "cannot hold"),
        (variable(kind=9, parts=(element(9, struct.pack("<d", np.nan)),)), "cannot hold"),
        (variable(kind=4, parts=(element(4, b"\x00\xd8"),)), "UnicodeDecodeError"),
        (nested(10), "cells for the shape"),
        (struct.pack("<II", 14, 2**32 - 1), "claims 4,294,967,295 bytes"),
        (struct.pack("<II", 9 | 0xFFFF0000, 0), "a short element"),
        (element(15, zlib.compress(variable())[:-6]), "zlib|truncated"),
        (element(15, b"no zlib"), "error"),
        (element(9, b"12345678"), "type 9"),
        # The last one was returned.
        (variable() * 2, "it holds the variable x twice"),
        (variable() + element(15, zlib.compress(variable(flags=0x0100))), "variable x twice"),
    ],
)
def test_crafted_files_are_refused(folder, content, reason):
    with pytest.raises(DataError, match=rf"crafted\.mat .*({reason}).*Copy it again"):
        read_mat(write(folder, content), ["x"])


def test_decompression_beyond_the_bound_is_refused(folder):
    bomb = element(15, zlib.compress(bytes(300_000_000), 1))
    message = r"crafted\.mat .*truncated or holds more than.*Copy it again"
    with pytest.raises(DataError, match=message):
        read_mat(write(folder, bomb), ["x"])


@pytest.mark.parametrize(
    "content",
    [
        b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM" + b"\0" * 384,
        b"MATLAB 7.3 MAT-file".ljust(124) + b"\2\0MI" + b"\0" * 384,
        b"\x89HDF\r\n\x1a\n" + b"\0" * 504,
    ],
)
def test_files_of_matlab_7_3_are_named(folder, content):
    path = folder / "new.mat"
    path.write_bytes(content + b"\x89HDF\r\n\x1a\n" + b"\0" * 88)
    with pytest.raises(DataError, match=r"new\.mat is a file of MATLAB 7\.3 \(HDF5\).*'-v7'"):
        read_mat(path, ["x"])


def test_other_formats_and_missing_variables_are_named(folder):
    scipy.io.savemat(folder / "four.mat", {"x": np.eye(3)}, format="4")
    with pytest.raises(DataError, match=r"four\.mat .*not a MATLAB 5 file"):
        read_mat(folder / "four.mat", ["x"])
    with pytest.raises(DataError, match="no variable y; check"):
        read_mat(write(folder, variable()), ["x", "y"])
