"""Metrics of an evaluation every few steps, instead of after each task (De Lange et al. 2023).

`accuracies[n, j]` is the accuracy, as a fraction, on the test data of task j at evaluation n, and
`task[n]` the task that is trained at that time. Tasks are evaluated in order, and the last
evaluation of a task is the one after its last step. Entries of tasks that were not begun are not
read and may be NaN. ValueError is raised for task numbers that fall or are no column. The paper is
"Continual evaluation for lifelong learning: identifying the stability gap" (ICLR).

Equal to the paper, and to its code (Mattdl/ContinualEvaluation), at min-ACC, WC-ACC and windowed
forgetting. The authors evaluate after every step, everlight as often as there are rows. The paper
names the stability gap but has no metric of this name; `stability_gap` is a definition of this
library.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import (
    FRACTION,
    Between,
    NotEmpty,
    PositiveInt,
    check_increasing,
    check_range,
    checked,
)
from everlight.errors import ArgumentError
from everlight.extrema import largest_value, smallest_value

Accuracies = Annotated[Float[Array, "n tasks"], FRACTION, NotEmpty]
Tasks = Annotated[Int[Array, "n"], Between(0)]


def _task_age(task: Int[Array, "n"], tasks: int) -> Int[Array, "n j"]:
    """Return the trained task's number minus j, for every evaluation and task j."""
    check_range("task", task, 0, tasks - 1)
    check_increasing("task", task, or_equal=True)
    return task[:, None] - jnp.arange(tasks)


def _check_no_skip(task: Int[Array, "n"]) -> None:
    if isinstance(task, jax.core.Tracer):
        return
    begun = np.asarray(task)
    skipped = np.setdiff1d(np.arange(begun.max()), begun)
    if len(skipped):
        raise ArgumentError(f"task skips {skipped[0]}; give an evaluation within every task begun")


def _is_last_of_task(task: Int[Array, "n"]) -> Bool[Array, "n"]:
    """Return True at the last evaluation of each task."""
    return jnp.append(task[1:] != task[:-1], jnp.array([True]))


@checked
def accuracies_in_order(
    within: Annotated[Float[np.ndarray, "tasks *k tasks"], FRACTION],
    steps: Annotated[Int[np.ndarray, "tasks *k"], Between(0)],
    after: Annotated[Float[np.ndarray, "tasks tasks"], FRACTION],
) -> Float[np.ndarray, "n tasks"]:
    """Return the accuracies at all evaluations in order, `[n, tasks]`; NaN where none took place.

    A task's last row is the evaluation after its end, which may change the network. It replaces the
    last one within the task, unless none took place after the task. A task without an evaluation
    within it was not trained, as before the only task of joint training, and has rows of NaN alone.

    Args:
      within: accuracy at each evaluation within a task on each task, as in `StepEvaluations`.
      steps: optimizer steps before each evaluation; 0 where none took place.
      after: accuracy after each task on each task; rows of NaN where none took place.
    """
    within, steps, after = map(np.asarray, (within, steps, after))
    steps = steps.reshape(len(steps), -1)
    accuracies = within.reshape(*steps.shape, -1).copy()
    for task_accuracies, of_steps, final in zip(accuracies, steps, after, strict=True):
        if of_steps.any() and np.isfinite(final).any():
            task_accuracies[of_steps.argmax()] = np.nan
            task_accuracies[-1] = final
    return accuracies.reshape(-1, accuracies.shape[-1])


@checked
def minimum_accuracies(accuracies: Accuracies, task: Tasks) -> Float[Array, "n tasks"]:
    """Return the lowest accuracy of each task since its training ended; 1 before that.

    Args:
      accuracies: accuracy at each evaluation on each task, `[n, tasks]`; not read, and may be NaN,
        until the task's training has ended.
      task: task that is trained at each evaluation, `[n]`.
    """
    later = _task_age(task, accuracies.shape[1]) > 0
    return jnp.minimum.accumulate(jnp.where(later, accuracies, 1.0), axis=0)


@checked
def average_minimum_accuracy(accuracies: Accuracies, task: Tasks) -> Float[Array, "n"]:
    """Return min-ACC at each evaluation, `[n]`; NaN during the first task.

    It is the mean over earlier tasks of the lowest accuracy in the evaluations after that of their
    last step: a lower bound of what the network could do at any time since.

    Args:
      accuracies: accuracy at each evaluation on each task, `[n, tasks]`.
      task: task that is trained at each evaluation, `[n]`.
    """
    earlier = _task_age(task, accuracies.shape[1]) > 0
    return jnp.mean(minimum_accuracies(accuracies, task), axis=1, where=earlier)


@checked
def worst_case_accuracy(accuracies: Accuracies, task: Tasks) -> Float[Array, "n"]:
    """Return WC-ACC at each evaluation, `[n]`.

    With k tasks begun it is 1 / k of the current task's accuracy and (1 − 1 / k) of min-ACC.

    Args:
      accuracies: accuracy at each evaluation on each task, `[n, tasks]`.
      task: task that is trained at each evaluation, `[n]`.
    """
    current = jnp.take_along_axis(accuracies, task[:, None], axis=1)[:, 0]
    share = 1 / (task + 1)
    lowest = jnp.where(task > 0, average_minimum_accuracy(accuracies, task), 0.0)
    return share * current + (1 - share) * lowest


@checked
def anytime_average_accuracy(accuracies: Accuracies, task: Tasks) -> Float[Array, ""]:
    """Return AAA: the mean over all evaluations of the mean accuracy on the tasks begun, `[]`.

    Caccia et al. 2022 (ICLR, "New insights ...") report it for online streams. The area under the
    curve of Koh et al. 2022 (ICLR) is the same mean if all test sets have the same size.

    Args:
      accuracies: accuracy at each evaluation on each task, `[n, tasks]`.
      task: task that is trained at each evaluation, `[n]`.
    """
    begun = _task_age(task, accuracies.shape[1]) >= 0
    return jnp.mean(jnp.mean(accuracies, axis=1, where=begun))


@checked
def stability_gap(accuracies: Accuracies, task: Tasks) -> Float[Array, ""]:
    """Return the mean transient drop of earlier tasks' accuracy within a task, `[]`.

    For each task that was begun and each earlier task, the drop is measured from the lower of the
    accuracies before and after the task to the lowest one during it, at least 0. A permanent loss
    is forgetting and not part of the gap. NaN with one task, and where traced numbers skip a task.
    While the last task is trained, its latest evaluation counts as the one after it.

    Args:
      accuracies: accuracy at each evaluation on each task, `[n, tasks]`.
      task: task that is trained at each evaluation, `[n]`.

    Raises:
      ValueError: a task before the last one has no evaluation, or as the module says.
    """
    tasks = accuracies.shape[1]
    during = _task_age(task, tasks).T == 0
    _check_no_skip(task)
    lowest = smallest_value(jnp.where(during[..., None], accuracies, jnp.inf), axis=1)
    ends = during & _is_last_of_task(task)
    after = jnp.sum(jnp.where(ends[..., None], accuracies, 0.0), axis=1)
    begun = jnp.any(during, axis=1)[:, None]
    after = jnp.where(begun, after, jnp.nan)
    before = jnp.concatenate([after[:1], after[:-1]])
    gap = jnp.maximum(jnp.minimum(before, after) - lowest, 0.0)
    return jnp.mean(gap, where=begun & jnp.tri(tasks, k=-1, dtype=bool))


@checked
def windowed_forgetting(
    accuracies: Accuracies, task: Tasks, window: PositiveInt
) -> Float[Array, ""]:
    """Return WF: the mean over tasks begun of the largest drop within a window, `[]`.

    A drop is the accuracy at an evaluation minus that at a later one of the window, at least 0. The
    paper has windows of 10 and of 100 evaluations.

    Args:
      accuracies: accuracy at each evaluation on each task, `[n, tasks]`.
      task: task that is trained at each evaluation, `[n]`.
      window: number of evaluations of a window, its first one included.
    """
    begun = _task_age(task, accuracies.shape[1]) >= 0
    drops = [jnp.zeros(accuracies.shape[1])]
    for apart in range(1, min(window, accuracies.shape[0])):
        drop = accuracies[:-apart] - accuracies[apart:]
        drops.append(largest_value(jnp.where(begun[:-apart], drop, 0.0), axis=0))
    return jnp.mean(largest_value(jnp.stack(drops), axis=0), where=begun[-1])
