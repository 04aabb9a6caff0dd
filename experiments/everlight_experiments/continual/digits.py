"""Every strategy on split digits: five tasks of two, told and not told, and online in one pass.

    everlight continual digits

No data needed: the digits ship with scikit-learn. A preset of `continual run`.
"""

import dataclasses
from pathlib import Path

from everlight_experiments.common.settings import Preset
from everlight_experiments.continual.plan import OPTIONS, Option, Seeds, StrategiesRun
from everlight_experiments.continual.run import run_strategies
from everlight_experiments.continual.table import digits


@dataclasses.dataclass(frozen=True)
class DigitsRun(StrategiesRun):
    """Train every strategy on split digits: task-incremental, class-incremental and online."""

    preset: Preset = "demo"
    """Part of the run folder's name only, since the digits have one size."""
    setting: tuple[Option, ...] | None = OPTIONS
    """Settings to run: task-incremental (task identity given at test), class-incremental (not
    given) or online (one pass); None is class-incremental."""
    seeds: Seeds = 10
    """Number of evaluation seeds, counted up from --seed: 0 to N-1 by default. Each has its own
    task order. More can be added later."""


def run_digits(settings: DigitsRun) -> Path:
    """Runs it all; returns the report's path.

    Raises:
      DataError: a method that there is not, or a strategy of one's own that cannot be used.
    """
    return run_strategies(settings, "digits", lambda: digits(settings))
