"""Named metrics of finished runs, as functions with the axes of their values."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.run_data import TrainedRun

STEPS_WITHIN = "within_tasks_steps"
"""Stored array: optimizer steps before each evaluation within tasks; 0 where none took place."""
once_per_run = lru_cache(maxsize=1)
"""Decorator of a function of `TrainedRun` whose value is computed once, for all metrics that read
it."""
ROUNDING = 1e-6
"""Distance from 0 and 1 up to which a score's rounding errors are allowed."""
Axis = Literal["time", "task", "class", "evaluation"] | int | tuple[str, ...]
"""One entry per finished task, one per task or class, one per evaluation within tasks, a number of
entries, or one per name."""


class Metric(NamedTuple):
    """A named quantity of a run: a function, and the axes of its values.

    `results.npz` holds it as `column/method/name`, with a leading axis over seeds.
    """

    name: str
    compute: Callable[[TrainedRun], Any]
    """Function that returns an array with these axes; a diverged run has NaN without a call."""
    axes: tuple[Axis, ...] = ()
    meaning: str = ""
    """Definition in one sentence, for the report, which draws matrices of shares in [0, 1]."""
    works_on_first_tasks: bool = False
    """True if it is also defined for a run of fewer tasks, its first ones."""

    def shape(self, run: TrainedRun) -> tuple[int, ...]:
        """Return the shape of a run's values."""
        sizes = {"time": run.tasks, "task": run.tasks}
        if STEPS_WITHIN in run.arrays:
            sizes["evaluation"] = run.arrays[STEPS_WITHIN].size
        return tuple(
            len(axis) if isinstance(axis, tuple) else sizes.get(axis, axis) for axis in self.axes
        )


class Metrics(NamedTuple):
    """Metrics of every run in a setting."""

    score: Metric
    """Score over time, on all classes so far. Scores are shares in [0, 1], or NaN."""
    score_by_task: Metric
    """Score after the task of the row on the task of the column. Its name is `matrix_name` of the
    score's, as "recall by task" of "recall"."""
    others: tuple[Metric, ...] = ()
    second_score: str = ""
    """Name of one of `others` that tables show beside the score. It has a value after every task,
    and another metric, `matrix_name` of it, has its matrix."""

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the score and of the second one where there is one."""
        return self.score.name, *filter(None, (self.second_score,))

    @property
    def all(self) -> tuple[Metric, ...]:
        """All metrics, the score first."""
        return self.score, self.score_by_task, *self.others

    def refuse_other_than_shares(self, values: Mapping[str, np.ndarray]) -> None:
        """Refuse scores, and matrices that the report draws, outside [0, 1].

        Args:
          values: values of all metrics by name.

        Raises:
          DataError: the message has the name and the first such value.
        """
        drawn = (m.name for m in self.others if m.meaning and m.axes == ("time", "task"))
        for name in (*self.scores, self.score_by_task.name):
            refuse_other_than_shares(name, values[name])
        for name in drawn:
            remedy = "give shares in [0, 1], or a metric without a meaning, which no report draws"
            refuse_other_than_shares(name, values[name], "metric", remedy)


def refuse_other_than_shares(
    name: str, values: Any, kind: str = "score", remedy: str = "give shares in [0, 1]"
) -> None:
    """Refuse a metric with a value outside [0, 1], as reports show scores; NaN is allowed.

    Raises:
      DataError: the message has the kind, the name, the first such value and the remedy.
    """
    values = np.ravel(np.asarray(values, float))
    outside = values[np.abs(values - 0.5) > 0.5 + ROUNDING]
    if len(outside):
        raise DataError(f"the {kind} {name!a} has {outside[0]:g}; {remedy}")
