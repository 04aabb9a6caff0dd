"""Restricted unpickling: arrays and containers are read, other objects are refused."""

import io
import os
import pickle

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.formats.unpickle import load_npy_restricted, load_restricted


class Calls:
    """Pickles as a call of `function(*arguments)` on loading."""

    def __init__(self, function, *arguments):
        self.reduction = (function, arguments)

    def __reduce__(self):
        return self.reduction


def load(content: bytes, encoding="ASCII"):
    return load_restricted(content, "some.pickle", encoding)


def assert_same(left, right):
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert_same(left.tolist(), right.tolist())
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


CONTENT = {
    "text": "é",
    "bytes": b"\x00\xff",
    "numbers": [1, 2**70, -1.5, True, None, 2j],
    "containers": ({3, 4}, frozenset({5}), (6, [7]), bytearray(b"8")),
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns first": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "axes in another order": np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    "four axes": np.arange(120.0).reshape(2, 3, 4, 5).transpose(2, 0, 3, 1),
    "no rows": np.zeros((0, 3), np.float32),
    "no bytes": b"",
    "names": np.array(["RAW_0", "RAW_1"]),
    "objects": np.array([{"a": 1}, None], dtype=object),
    "big end first": np.arange(3, dtype=">i4"),
    "scalar": np.float64(0.25),
    "dtype": np.dtype("uint8"),
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_plain_containers_come_back(protocol):
    assert_same(load(pickle.dumps(CONTENT, protocol)), CONTENT)


def test_a_python_2_pickle_as_cifar_ships_it():
    """The pickle is written by hand after the protocol, as cPickle of Python 2 wrote CIFAR-100."""
    pixels = bytes(range(12))
    pickled = (
        b"\x80\x02}q\x01(U\x0bfine_labelsq\x02]q\x03(K\x13K\x1deU\x04dataq\x04"
        b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87R"
        b"(K\x01K\x02K\x06\x86cnumpy\ndtype\nq\x07U\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x0c" + pixels + b"tbu."
    )
    expected = np.frombuffer(pixels, np.uint8).reshape(2, 6)
    assert_same(load(pickled, "bytes"), {b"fine_labels": [19, 29], b"data": expected})
    assert_same(load(pickled, "latin1"), {"fine_labels": [19, 29], "data": expected})


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_os_system_is_refused_and_does_not_run(tmp_path, protocol):
    witness = tmp_path / "witness"
    content = pickle.dumps({"data": Calls(os.system, f"touch {witness}")}, protocol)
    with pytest.raises(DataError, match=r"some\.pickle names posix\.system"):
        load(content)
    assert not witness.exists()
    pickle.loads(content)
    assert witness.exists(), "the attack itself does not work, so the refusal proves nothing"


@pytest.mark.parametrize(
    ("attack", "refused"),
    [
        (Calls(eval, "1 + 1"), r"builtins\.eval"),
        (Calls(getattr, "text", "upper"), r"builtins\.getattr"),
        (Calls(np.load, "file.npy", None, True), r"numpy\.load"),
        (Calls(io.StringIO), "StringIO"),
        # This is an array over raw memory.
        (Calls(np.ndarray, (1,), np.dtype(object), b"\x01" * 8), "cannot be unpickled"),
    ],
)
def test_other_globals_are_refused_by_name(attack, refused):
    with pytest.raises(DataError, match=refused):
        load(pickle.dumps(attack, 3))


@pytest.mark.parametrize(
    ("order", "axes", "message"),
    [
        ("C", (1, 0), "an invalid order of axes"),
        ("K", [1, 0], "an invalid order of axes"),
        ("K", (0,), "an invalid order of axes"),
        ("K", (0, True), "an invalid order of axes"),
        ("K", (0, 0), "repeated axis"),
        ("K", (0, 2), "out of bounds"),
    ],
)
def test_an_order_of_axes_that_is_none_is_refused(order, axes, message):
    rebuild = np.zeros((0, 0)).__reduce_ex__(5)[0]
    call = Calls(rebuild, bytes(6), np.dtype("u1"), (2, 3), order, axes)
    with pytest.raises(DataError, match=message):
        load(pickle.dumps(call, 4))


def test_bytes_in_another_codec_are_refused():
    with pytest.raises(DataError, match="utf-16"):
        load(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00utf-16\x86R.")


def test_every_truncation_is_reported():
    content = pickle.dumps(CONTENT["matrix"], 2)
    for length in range(len(content)):
        with pytest.raises(DataError, match=r"some\.pickle"):
            load(content[:length])


def test_a_path_is_read(tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps([1, 2]))
    assert load_restricted(path, "batch") == [1, 2]


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    "array",
    [np.array({"wb": np.ones(3)}), np.array([[1, "a"]], dtype=object), np.eye(3), np.array(["x"])],
)
def test_npy_files_come_back(array):
    assert_same(load_npy_restricted(saved(array), "some.npy"), array)


def test_an_npy_file_with_code_is_refused():
    with pytest.raises(DataError, match=r"some\.npy names builtins\.eval"):
        load_npy_restricted(saved(np.array(Calls(eval, "1"), dtype=object)), "some.npy")


@pytest.mark.parametrize("array", [np.array({"a": 1}), np.eye(3)])
def test_every_truncated_npy_file_is_reported(array):
    content = saved(array)
    for length in range(0, len(content), 3):
        with pytest.raises(DataError, match=r"some\.npy"):
            load_npy_restricted(content[:length], "some.npy")


def test_an_npy_file_that_lies_about_its_shape_is_reported():
    content = saved(np.array([1, None], dtype=object))
    with pytest.raises(DataError, match="as its header says"):
        load_npy_restricted(content.replace(b"(2,)", b"(3,)"), "some.npy")
