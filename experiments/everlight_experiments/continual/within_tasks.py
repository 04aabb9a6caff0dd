"""Evaluations every few steps within tasks: what is kept, metrics, a figure."""

from collections.abc import Callable, Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.continual import SequenceResult
from everlight.metrics import (
    anytime_average_accuracy,
    average_minimum_accuracy,
    stability_gap,
    worst_case_accuracy,
)
from everlight.plots import COLORS
from everlight_experiments.continual.benchmark import (
    STEPS_WITHIN,
    Metric,
    Trained,
    once_per_run,
)
from everlight_experiments.continual.metrics import MATRIX
from everlight_experiments.report.cells import deviation
from everlight_experiments.report.plots import highest_curves, new_canvas, save

WITHIN = "within_tasks"
"""Stored array: accuracy on each task at each evaluation within tasks."""
SCORES: Mapping[str, Callable[[Array, Array], Array]] = {
    "anytime average": anytime_average_accuracy,
    "min-ACC": lambda accuracies, task: average_minimum_accuracy(accuracies, task)[-1],
    "WC-ACC": lambda accuracies, task: worst_case_accuracy(accuracies, task)[-1],
    "stability gap": stability_gap,
}


def kept_within(
    result: SequenceResult, accuracies: Callable[[object], Float[Array, "*n t"]]
) -> dict[str, Array]:
    """Return what is stored of evaluations within tasks; nothing where there are none.

    Args:
      result: of a run.
      accuracies: function from the objective's result to the accuracy on each task.
    """
    within = result.within_tasks
    if within is None:
        return {}
    return {WITHIN: accuracies(within.evaluation), STEPS_WITHIN: within.steps}


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


def plot_within_tasks(
    path: Path, values: Mapping[str, Float[np.ndarray, "runs n t"]], measure: str
) -> Path:
    """Draw accuracy over the evaluations within tasks, of the first task and of all so far.

    A task is one unit wide, however many steps it has.

    Args:
      path: of the picture.
      values: accuracies by method.
      measure: label of the vertical axis.
    """
    canvas, axes = new_canvas(2, 5.6, 3.8)
    panels = {"first task": _of_first, "tasks so far, mean": _of_tasks_so_far}
    shown = highest_curves({name: _of_tasks_so_far(array) for name, array in values.items()})
    looks, names = dict(zip(shown, COLORS, strict=False)), {}
    for axis, (title, over_time) in zip(axes, panels.items(), strict=True):
        for name in shown:
            curve, tasks = over_time(values[name]), values[name].shape[-1]
            # Epochs of seeds with fewer samples have fewer evaluations.
            there = np.isfinite(curve).all(axis=0)
            each = there.reshape(tasks, -1)
            places = (np.arange(tasks)[:, None] + _share(each))[each]
            mean, spread = curve[:, there].mean(axis=0), deviation(curve[:, there])
            (names[name],) = axis.plot(places, mean, color=looks[name], lw=1.3)
            axis.fill_between(
                places, mean - spread, mean + spread, color=looks[name], alpha=0.12, lw=0
            )
        axis.set(title=title, xlabel="tasks learned", ylim=(0, None))
        axis.set_xticks(range(next(iter(values.values())).shape[-1] + 1))
    axes[0].set_ylabel(measure)
    canvas.legend(names.values(), names, loc="outside right center", fontsize="small")
    return save(canvas, path)


def _share(there: Bool[np.ndarray, "t k"]) -> Float[np.ndarray, "t k"]:
    """Return the share of a task's evaluations that lie before and at each."""
    return np.cumsum(there, axis=1) / np.maximum(there.sum(axis=1, keepdims=True), 1)


def _of_first(accuracies: Float[np.ndarray, "runs n t"]) -> Float[np.ndarray, "runs n"]:
    return accuracies[..., 0]


def _of_tasks_so_far(accuracies: Float[np.ndarray, "runs n t"]) -> Float[np.ndarray, "runs n"]:
    tasks = accuracies.shape[-1]
    begun = np.tri(tasks, dtype=bool).repeat(accuracies.shape[1] // tasks, axis=0)
    return accuracies.mean(axis=-1, where=begun)
