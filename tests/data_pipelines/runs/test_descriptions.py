"""Descriptions in JSON: settings that are read back, named differences, arrays with theirs."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

from everlight.checks import Between
from everlight_data.errors import DataError, MissingDataError
from everlight_data.runs.descriptions import (
    as_json,
    from_json,
    json_checksum,
    name_differences,
    read_described,
    save_described,
)

FACTS = {"strategy": "EWC", "sizes": {"epochs": 2}}


@dataclasses.dataclass(frozen=True)
class Part:
    steps: int = 7
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Settings:
    parts: Mapping[str, Part] = dataclasses.field(default_factory=lambda: {"mid-scale": Part()})
    channels: tuple[int, ...] = (4, 8)
    most: int | None = None
    pair: tuple[int, int] = (1, 2)
    kind: Literal["hat", "coat"] = "hat"
    shares: tuple[Annotated[float, Between(0, 1)], ...] = (0.5,)
    folder: Path = Path("there")
    augment: bool = True
    size: Literal["small", "big"] | Literal["round"] | None = None
    values: Mapping[str, float | str | bool] = dataclasses.field(default_factory=dict)


def test_settings_are_read_back_from_their_description():
    values = {"rate": 0.5, "over": "all", "flag": True}
    for settings in (
        Settings(),
        Settings({"a": Part(2)}, (), 3, folder=Path("a/b"), kind="coat"),
        Settings(size="round", values=values),
        Settings(size="big"),
    ):
        assert from_json(Settings, as_json(dataclasses.asdict(settings))) == settings
    # JSON does not tell 1 from 1.0; what is left out is the default.
    assert from_json(Part, {"rate": 1}) == Part(rate=1.0)


@pytest.mark.parametrize(
    ("stored", "error", "message"),
    [
        ({"chanels": [1]}, DataError, r"no option 'chanels'; did you mean 'channels'"),
        ({"channels": [1, "2"]}, ValueError, r"channels: '2' is not of type int"),
        ({"channels": 3}, ValueError, r"channels: 3 is not of type list"),
        ({"pair": [1]}, ValueError, r"pair: "),
        ({"kind": "cap"}, ValueError, r"kind: 'cap' is none of 'hat', 'coat'"),
        ({"size": "flat"}, ValueError, r"size: 'flat' is none of 'small', 'big', 'round'"),
        ({"most": 2.5}, ValueError, r"most: 2\.5 is not of type int"),
        ({"augment": 1}, ValueError, r"augment: 1 is not of type bool"),
        ({"parts": {"x": {"steps": None}}}, ValueError, r"parts: steps: None is not of type int"),
    ],
)
def test_descriptions_of_other_types_are_refused(stored, error, message):
    with pytest.raises(error, match=message):
        from_json(Settings, stored)


def test_differences_are_named_with_dots():
    other = {"strategy": "EWC", "sizes": {"epochs": 3}, "tasks": (1, 2)}
    assert name_differences(FACTS, FACTS) == ""
    expected = "sizes.epochs: stored 2, now 3; tasks: stored None, now [1, 2]"
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
