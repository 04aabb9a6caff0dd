"""Settings of runs: the bounds that their types state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from everlight.checks import Between
from everlight_data.errors import DataError
from everlight_experiments.run_folder.settings import Count, RunSettings


@dataclass(frozen=True)
class Bounded(RunSettings):
    gain: Annotated[float, Between(0, 10)] | None = None
    seeds: Count | None = None
    parts: tuple[Literal["NI", "NC"], ...] = ("NI",)


@dataclass(frozen=True)
class Size:
    per_fact: Count = 1


@dataclass(frozen=True)
class Divided(RunSettings):
    scales: Mapping[str, Size] = field(default_factory=dict)
    sizes: tuple[Size, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": {"mid_scale": Size(0)}}, "--mid-scale.per-fact 0; give 1 or more"),
        ({"sizes": (Size(), Size(2**40))}, "--per-fact 1099511627776; give 1,000,000 or less"),
    ],
)
def test_bounds_hold_within_mappings_and_tuples(change, message):
    with pytest.raises(DataError, match=message):
        Divided(**change)
    assert Divided(scales={"a": Size(3)}, sizes=(Size(1),), rates={"a": 0.1}).rates == {"a": 0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "--seed -1; give 0 or more"),
        ({"seed": 2**31}, r"--seed 2147483648; give 2,147,483,647 or less"),
        ({"seeds": 0}, "--seeds 0; give 1 or more"),
        ({"gain": float("nan")}, "--gain nan; give 0 or more"),
        ({"gain": float("inf")}, "--gain inf; give 10 or less"),
        ({"gain": -1.0}, r"--gain -1\.0; give 0 or more"),
        ({"parts": ()}, "--parts without a name; there are NI, NC"),
    ],
)
def test_settings_out_of_their_bounds_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        Bounded(**change)
    assert Bounded(seed=2**31 - 1, gain=10.0, seeds=1).gain == 10.0
