"""Settings of runs: the bounds that their types state."""

from dataclasses import dataclass
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
