"""Evaluations every few steps within tasks: metrics and curves."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.metrics import (
    anytime_average_accuracy,
    average_minimum_accuracy,
    stability_gap,
    worst_case_accuracy,
)
from everlight_experiments.continual.benchmark import (
    STEPS_WITHIN,
    Metric,
    Trained,
    once_per_run,
)
from everlight_experiments.continual.metrics import MATRIX

WITHIN = "within_tasks"
"""Stored array: accuracy on each task at each evaluation within tasks."""
SCORES: Mapping[str, Callable[[Array, Array], Array]] = {
    "anytime average": anytime_average_accuracy,
    "min-ACC": lambda accuracies, task: average_minimum_accuracy(accuracies, task)[-1],
    "WC-ACC": lambda accuracies, task: worst_case_accuracy(accuracies, task)[-1],
    "stability gap": stability_gap,
}


@once_per_run
def accuracy_by_step(run: Trained) -> Float[np.ndarray, "n t"]:
    """Return the accuracy on each task at each evaluation; NaN where none took place.

    A task's last row is the evaluation after its end, which may change the network.
    """
    steps, matrix = run.arrays[STEPS_WITHIN], run.arrays[MATRIX]
    steps = steps.reshape(len(steps), -1)
    found = run.arrays[WITHIN].reshape(*steps.shape, -1).copy()
    for of_task, of_steps, after in zip(found, steps, matrix, strict=True):
        if of_steps.any():
            of_task[of_steps.argmax()] = np.nan
            of_task[-1] = after
    return found.reshape(-1, found.shape[-1])


def scores_within(run: Trained) -> Float[np.ndarray, "scores"]:
    """Return `SCORES`; NaN for joint training, which learns one task alone."""
    accuracies = accuracy_by_step(run)
    took_place = np.isfinite(accuracies).all(axis=1)
    task = np.arange(len(accuracies))[took_place] * run.tasks // len(accuracies)
    if len(set(task)) < run.tasks:
        return np.full(len(SCORES), np.nan)
    given = jnp.asarray(accuracies[took_place]), jnp.asarray(task)
    return np.array([float(score(*given)) for score in SCORES.values()])


METRICS = (
    Metric(
        "accuracy by step",
        accuracy_by_step,
        ("evaluation", "task"),
        meaning="Accuracy on the first task, and mean over the tasks so far, at every evaluation "
        "within the tasks.",
    ),
    Metric(
        "continual evaluation",
        scores_within,
        (tuple(SCORES),),
        None,
        "Anytime average: mean over all evaluations of the mean accuracy on the tasks so far. "
        "min-ACC: mean over earlier tasks of their lowest accuracy since they ended. WC-ACC: the "
        "current task's accuracy and min-ACC, weighted by their numbers of tasks (De Lange et al. "
        "2023). Stability gap: mean drop of an earlier task's accuracy within a task that is made "
        "up for by the task's end.",
    ),
)
"""Metrics of benchmarks that are evaluated within tasks."""


def curves_within(
    values: Mapping[str, Float[np.ndarray, "runs n t"]],
) -> dict[str, dict[str, Float[np.ndarray, "runs k"]]]:
    """Return accuracy over the evaluations, of the first task and of all so far, by method.

    Evaluations that not all seeds have are left out. Joint training has its last one alone.
    """
    found: dict[str, dict[str, np.ndarray]] = {"first task": {}, "tasks so far, mean": {}}
    for name, accuracies in values.items():
        places, tasks = accuracies.shape[1:]
        begun = np.tri(tasks, dtype=bool).repeat(places // tasks, axis=0)
        means = accuracies.mean(axis=2, where=begun)
        for title, curve in zip(found, (accuracies[..., 0], means), strict=True):
            there = np.isfinite(curve).all(axis=0)
            found[title][name] = curve[:, there] if there[0] else curve[:, -1:]
    return found
