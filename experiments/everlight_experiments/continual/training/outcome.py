"""Results of a method on a benchmark: named metrics over seeds, and what the runs cost."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from everlight.continual import Choice, RunCost
from everlight.metrics import forward_transfer
from everlight_data.runs.finished_runs import matrix_name
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.benchmarks.run_data import TrainedRun
from everlight_experiments.continual.training.runs import has_diverged
from everlight_experiments.report.over_time import (
    learns_at_once,
    mean_matrix,
    mean_over_time,
    predicts_future,
    score_matrices,
)

USAGE = "diverged_at", "steps", "stored_samples", "samples", "seconds"
"""Arrays of an outcome's own fields."""
RESERVED = frozenset({*USAGE, *RunCost._fields, *Choice._fields})
"""Names of numbers in results beside the metrics."""


class Outcome(NamedTuple):
    """A method in a column; the first axis of every array is over seeds."""

    score: str
    """Name of the metric that is the score over time."""
    metrics: Mapping[str, np.ndarray]
    """Metrics by name; NaN where a run diverged."""
    diverged_at: Int[np.ndarray, "seeds 2"]
    """Task and epoch; -1 and -1 for a run that did not diverge."""
    steps: Int[np.ndarray, "seeds t"]
    """Steps from the beginning to the end of each task."""
    stored_samples: Int[np.ndarray, "seeds t"]
    """Samples of earlier tasks that are stored while a task is learned."""
    samples: Int[np.ndarray, "seeds t"]
    """Training samples of each task."""
    seconds: Float[np.ndarray, "seeds"]
    """Seconds of training and evaluation, mostly without compilation; NaN if not known."""
    cost: RunCost
    choice: Choice
    arguments: Mapping[str, Any] = {}
    """Arguments of the strategy, among them the selected hyper-parameter."""
    replayed: int = 0
    """Samples from memory that every step learns in addition to the task's."""
    learning_rate: str = "–"
    """Learning rate of the optimizer's steps, in words."""
    boundaries: bool = True
    """True if task boundaries were given, so that a class counts as seen from the first step of its
    task. Without them it does from the step of its first sample."""

    def with_score(self, score: str) -> "Outcome":
        """Return the outcome with another score, which has a metric over time and one by task."""
        return self._replace(score=score)

    @property
    def over_time(self) -> Float[np.ndarray, "seeds t"]:
        """Score on all tasks so far, after every task.

        Before joint training's only one it is that of the network before training, or NaN.
        """
        return self.metrics[self.score]

    @property
    def matrices(self) -> Float[np.ndarray, "seeds t t"]:
        """Score after task i on task j."""
        return self.metrics[matrix_name(self.score)]

    @property
    def final(self) -> Float[np.ndarray, "seeds"]:
        """Score on all tasks after the last one."""
        return self.over_time[:, -1]

    @property
    def diverged(self) -> Bool[np.ndarray, "seeds"]:
        """True for diverged runs."""
        return self.diverged_at[:, 0] >= 0

    @property
    def median_seconds(self) -> float:
        """Median over runs; NaN where it is known for none."""
        known = self.seconds[~np.isnan(self.seconds)]
        return float(np.median(known)) if len(known) else np.nan

    @property
    def learns_at_once(self) -> bool:
        """True if nothing is learned before the last task, so that nothing is forgotten."""
        return learns_at_once(self.steps)

    @property
    def mean_over_time(self) -> Float[np.ndarray, "seeds"]:
        """Mean score over time; NaN where there is one time alone."""
        return mean_over_time(self.over_time, self.steps)

    @property
    def predicts_future(self) -> bool:
        """True if classes of tasks not learned yet can be predicted."""
        return predicts_future(self.matrices)

    def matrix_scores(self, metric: Callable) -> Float[np.ndarray, "seeds"]:
        """Return a metric of each seed's matrix; NaN where it is undefined or the run diverged."""
        if metric is not forward_transfer:
            return score_matrices(metric, self.matrices, self.steps, self.diverged)
        values = np.asarray(jax.vmap(metric)(jnp.asarray(self.matrices)))
        undefined = self.learns_at_once or not self.predicts_future
        return np.where(self.diverged | undefined, np.nan, values)

    @property
    def mean_matrix(self) -> Float[np.ndarray, "t t"]:
        """Mean matrix over seeds; NaN where the method cannot have a value."""
        return mean_matrix(self.matrices, self.steps)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All measured values by plain names."""
        return (
            dict(self.metrics)
            | {name: getattr(self, name) for name in USAGE}
            | self.cost._asdict()
            | self.choice._asdict()
        )


Outcomes = Mapping[str, Mapping[str, Outcome]]
"""Outcomes by column (setting, or prefix and setting) and method."""


def compute_metrics(metrics: Sequence[Metric], runs: Sequence[TrainedRun]) -> dict[str, np.ndarray]:
    """Return metrics of all runs by name, `[runs, *axes]`; NaN for runs that diverged."""
    by_run = [
        [
            np.full(metric.shape(run), np.nan) if diverged else np.asarray(metric.compute(run))
            for metric in metrics
        ]
        for run in runs
        for diverged in [has_diverged(run.arrays)]
    ]
    return {
        m.name: np.stack(values)
        for m, values in zip(metrics, zip(*by_run, strict=True), strict=True)
    }


def arrays_of(outcomes: Outcomes) -> dict[str, np.ndarray]:
    """Return all values as `column/method/name`."""
    return {
        f"{column}/{name}/{field}": value
        for column, by_name in outcomes.items()
        for name, outcome in by_name.items()
        for field, value in outcome.arrays.items()
    }
