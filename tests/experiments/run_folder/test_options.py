"""Settings of runs: the bounds that their types state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from everlight.checks import Between, PositiveInt, UnitInterval
from everlight_data.errors import DataError
from everlight_experiments.run_folder.options import Count, Counts, ExperimentOptions


@dataclass(frozen=True)
class Bounded(ExperimentOptions):
    gain: Annotated[float, Between(0, 10)] | None = None
    seeds: Count | None = None
    parts: tuple[Literal["NI", "NC"], ...] = ("NI",)
    shares: tuple[UnitInterval, ...] = ()
    batch: PositiveInt = 1
    rate: float = 0.0
    sizes: Counts = (1,)


@dataclass(frozen=True)
class Size:
    per_fact: Count = 1


@dataclass(frozen=True)
class Divided(ExperimentOptions):
    scales: Mapping[str, Size] = field(default_factory=dict)
    sizes: tuple[Size, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": {"mid_scale": Size(0)}}, "--mid-scale.per-fact 0; give 1 to 1,000,000"),
        ({"sizes": (Size(), Size(2**40))}, "--per-fact 1099511627776; give 1 to 1,000,000"),
    ],
)
def test_bounds_hold_within_mappings_and_tuples(change, message):
    with pytest.raises(DataError, match=message):
        Divided(**change)
    assert Divided(scales={"a": Size(3)}, sizes=(Size(1),), rates={"a": 0.1}).rates == {"a": 0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "--seed -1; give 0 to 2,147,483,647"),
        ({"seed": 10**400}, "; give 0 to 2,147,483,647"),
        ({"seeds": 0}, "--seeds 0; give 1 to 1,000,000"),
        ({"gain": float("nan")}, "--gain nan; give 0 to 10"),
        ({"gain": -1.0}, r"--gain -1\.0; give 0 to 10"),
        ({"shares": (0.5, 2.0)}, r"--shares 2\.0; give 0 to 1"),
        ({"batch": 10**12}, "--batch 1000000000000; give 2,147,483,647 or less"),
        ({"rate": float("inf")}, "-{2}rate inf; give a finite number"),
        ({"parts": ()}, r"--parts \(\) has no name; there are NI, NC"),
        ({"sizes": ()}, r"--sizes \(\) has no number; give one or leave out the option"),
        ({"parts": ("NO",)}, "give a tuple of 'NI' or 'NC'"),
        ({"tag": "a/b"}, "--tag 'a/b' becomes part"),
        ({"tag": "a\nb"}, r"--tag 'a\\nb' becomes part"),
        ({"tag": "\udcff"}, r"--tag '\\udcff' becomes part"),
        ({"runs": Path("a\0b")}, r"--runs 'a\\x00b' is not the name of a folder; leave out NUL"),
    ],
)
def test_settings_out_of_their_bounds_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        Bounded(**change)
    assert Bounded(seed=2**31 - 1, gain=10.0, seeds=1).gain == 10.0
