"""Outcomes of two runs of three tasks, with numbers that are checked by hand."""

import numpy as np

from everlight.continual import RunCost, fixed_hyperparameter
from everlight.continual.methods.registry import METHODS
from everlight_data.runs.finished_runs import matrix_name
from everlight_experiments.continual.benchmarks import benchmark
from everlight_experiments.continual.benchmarks.metric import Metric, Metrics
from everlight_experiments.continual.training.outcome import Outcome

TASKS, RUNS = 3, 2
SCORE = "accuracy"
MATRIX = matrix_name(SCORE)
BENCHMARK = benchmark.Benchmark(
    "digits",
    benchmark.Data("digits", (), {}, shared=None, sequence=None),
    benchmark.Setting(
        "class-incremental",
        "order of classes",
        frozenset(),
        Metrics(Metric(SCORE, print), Metric(MATRIX, print)),
    ),
    benchmark.Training("", dict, setup=None, protocol=None, keep=None),
    benchmark.Selection(()),
)
"""A benchmark for reports, of which nothing is trained."""
ACCURACY = np.array(
    [
        [[0.9, 0.1, 0.2], [0.8, 0.6, 0.3], [0.85, 0.5, 0.7]],
        [[0.7, 0.1, 0.0], [0.7, 0.8, 0.1], [0.6, 0.9, 0.5]],
    ]
)
NAIVE = METHODS["naive"]
JOINT = METHODS["joint"]


def outcome(steps, copies=0, stored=(0, 0, 0), operations=100.0, **changes):
    """Return the outcome of two trained runs of three tasks of 20, 20 and 40 samples."""
    over_time = np.array([[0.9, 0.7, 0.6], [0.7, 0.75, 0.8]])
    result = Outcome(
        SCORE,
        {SCORE: over_time, MATRIX: ACCURACY},
        np.full((RUNS, 2), -1),
        np.tile(np.cumsum(steps), (RUNS, 1)),
        np.tile(stored, (RUNS, 1)),
        np.tile([19, 20, 40], (RUNS, 1)),
        np.ones(RUNS),
        RunCost(1_000, copies, 0, 0, 2, operations),
        fixed_hyperparameter(),
    )
    return result._replace(**changes)


def with_metrics(result, **metrics):
    """Return an outcome with other metrics: `over_time`, `matrices`, or any by name."""
    names = {"over_time": SCORE, "matrices": MATRIX}
    changed = {names.get(name, name): values for name, values in metrics.items()}
    return result._replace(metrics={**result.metrics, **changed})


NAIVE_OUTCOME = outcome([40, 40, 80])
"""Four epochs of steps of two samples, the last of the first task of one."""
METHOD_OUTCOME = outcome([1_200, 1_200, 2_400], copies=2, stored=(0, 20, 40), operations=150.0)
"""Steps thirty times naive's, each of 1.5 times the operations."""
