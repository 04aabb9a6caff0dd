"""Descriptions in JSON: named differences, and arrays that are read back with theirs."""

import numpy as np
import pytest

from everlight_data.descriptions import (
    json_checksum,
    name_differences,
    read_described,
    save_described,
)
from everlight_data.errors import DataError, MissingDataError

FACTS = {"strategy": "EWC", "sizes": {"epochs": 2}}


def test_differences_are_named_with_dots():
    other = {"strategy": "EWC", "sizes": {"epochs": 3}, "tasks": (1, 2)}
    assert name_differences(FACTS, FACTS) == ""
    expected = "sizes.epochs: 2 there, 3 now; tasks: None there, [1, 2] now"
    assert name_differences(FACTS, other) == expected
    assert json_checksum({"a": 1, "b": 2}) == json_checksum({"b": 2, "a": 1})


def test_described_arrays_are_read_back_by_their_name_alone(tmp_path):
    path = tmp_path / "units" / "EWC-0.npz"
    save_described(path, "EWC-0", FACTS, accuracy=np.arange(3.0))
    facts, arrays = read_described(path, "EWC-0", "Compute it again.")
    assert facts == FACTS
    np.testing.assert_array_equal(arrays["accuracy"], np.arange(3.0))
    with pytest.raises(DataError, match="a copy of EWC-0"):
        read_described(path, "EWC-1", "Compute it again.")
    with pytest.raises(MissingDataError):
        read_described(path.with_name("none.npz"), "none", "Compute it again.")
