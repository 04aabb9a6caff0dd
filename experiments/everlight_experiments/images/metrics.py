"""Named metrics of benchmarks of images with one class each.

A new metric is one function and one row of `EXTRA`.
"""

from collections.abc import Callable, Iterable, Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.continual import TaskSequence
from everlight.metrics import (
    accuracies_in_order,
    anytime_average_accuracy,
    average_minimum_accuracy,
    class_accuracies,
    stability_gap,
    worst_case_accuracy,
)
from everlight.metrics import confusion_counts as count_confusion
from everlight.metrics.accuracy_matrix import accuracy
from everlight_data.names import check_name
from everlight_data.runs.finished_runs import matrix_name
from everlight_experiments.continual.benchmarks.metric import (
    STEPS_WITHIN,
    Metric,
    Metrics,
    once_per_run,
)
from everlight_experiments.continual.benchmarks.run_data import TrainedRun

ACCURACY = "accuracy"
TASK_MASKED = "task-masked accuracy"
MATRIX, PREDICTED, MASKED_MATRIX = "matrix", "predicted", "masked_matrix"
"""Stored arrays: accuracy after each task on each task, class predicted for each test sample, and
the accuracy among the classes of each task alone."""


def has_an_earlier_test(sequence: TaskSequence) -> Bool[np.ndarray, "t"]:
    """Return True for tasks with the test samples of an earlier task, as of recurring classes."""
    index, mask = np.asarray(sequence.test.index), np.asarray(sequence.test.mask)
    members = np.asarray(sequence.test_member) & mask
    sets = [np.sort(index[member]).tobytes() for member in members]
    return np.array([bool(tests) and tests in sets[:place] for place, tests in enumerate(sets)])


@once_per_run
def matrix_of(run: TrainedRun) -> Float[np.ndarray, "t t"]:
    """Return the accuracy after each task on each task; NaN on one with an earlier test set.

    So no class counts twice. Comparisons of a task's accuracies with its first one are not defined
    where its classes are learned again.
    """
    return _unrepeated_scores(run, MATRIX)


@once_per_run
def task_masked_matrix(run: TrainedRun) -> Float[np.ndarray, "t t"]:
    """Return the matrix of accuracies among the classes of the tested task alone.

    Columns with an earlier test set are NaN, as in `matrix_of`.
    """
    return _unrepeated_scores(run, MASKED_MATRIX)


def _unrepeated_scores(run: TrainedRun, name: str) -> Float[np.ndarray, "t t"]:
    return np.where(has_an_earlier_test(run.sequence), np.nan, run.arrays[name])


def mean_so_far(matrix: Float[np.ndarray, "t t"]) -> Float[np.ndarray, "t"]:
    """Return the mean over the test sets so far, after every task; they have equal weight."""
    return np.mean(matrix, axis=1, where=_learned_tests(matrix))


def _learned_tests(matrix: Float[np.ndarray, "t t"]) -> Bool[np.ndarray, "t t"]:
    """Return True for test sets of tasks so far, except columns without a value."""
    return np.tri(len(matrix), dtype=bool) & ~np.isnan(matrix).all(axis=0)


def accuracy_over_all_times(run: TrainedRun) -> Float[Array, ""] | float:
    """Return the accuracy over all times of `run.tasks`; of joint training, after its only task."""
    matrix = matrix_of(run)[: run.tasks, : run.tasks]
    learned = _learned_tests(matrix)
    if not np.any(run.arrays["steps"][: run.tasks - 1]):
        return float(np.mean(matrix[-1], where=learned[-1]))
    if learned[-1].all():
        return accuracy(jnp.asarray(matrix))
    return float(np.mean(matrix, where=learned))


OVER_ALL_TIMES = Metric(
    "accuracy over all times (A)", accuracy_over_all_times, works_on_first_tasks=True
)


def accuracy_by_class(run: TrainedRun) -> Float[np.ndarray, "t c"]:
    """Return the accuracy on every class after every task; NaN before the class was seen."""
    return class_accuracies(confusion_counts(run))


def final_confusion(run: TrainedRun) -> Int[np.ndarray, "c c"]:
    """Return how many test samples of the class of the row are predicted as that of the column."""
    return confusion_counts(run)[-1]


def confusion_counts(run: TrainedRun) -> Int[np.ndarray, "t c c"]:
    """Return true against predicted classes after every task; unseen classes are left out."""
    test, classes = run.sequence.test, run.sequence.class_task.shape[0]
    labels, mask = np.asarray(test.labels[:, 0]), np.asarray(test.mask)
    return count_confusion(run.arrays[PREDICTED], labels, mask, classes)


def _diagnostic(field: str, name: str, meaning: str) -> Metric:
    """Return the metric of a field of `Plasticity`, which the run computed after every task."""
    where = f"{meaning}, on 256 test samples or fewer after every task."
    return Metric(name, lambda run: run.arrays[field], ("time",), where)


DIAGNOSTICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _diagnostic(
            "dormant_share",
            "dormant units",
            "Share of the hidden units with a mean absolute activation of at most a tenth of the "
            "mean over their layer (Sokar et al. 2023)",
        ),
        _diagnostic("dead_share", "dead units", "Share of the hidden units that never respond"),
        _diagnostic(
            "effective_rank",
            "effective rank",
            "Exponential of the entropy of the features' singular values (Roy and Vetterli 2007)",
        ),
        _diagnostic(
            "stable_rank",
            "stable rank",
            "Number of singular values of the features that make up 99% of their sum",
        ),
        _diagnostic("weight_norm", "weight norm", "Euclidean norm of all parameters"),
    )
}
"""Diagnostics of plasticity that `--metrics` names. They read what the program measured."""
EXTRA: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "accuracy by class",
            accuracy_by_class,
            ("time", "class"),
            meaning="Accuracy on the test samples of each class after the last task.",
        ),
        Metric(
            "confusion",
            final_confusion,
            ("class", "class"),
            "Test samples by true class (row) and predicted class (column) after the last task.",
        ),
        Metric(
            TASK_MASKED,
            lambda run: mean_so_far(task_masked_matrix(run)),
            ("time",),
            "Accuracy among the classes of each test sample's task, of the same training: the "
            "literature's Task-IL beside Class-IL.",
        ),
        *DIAGNOSTICS.values(),
    )
}
"""Metrics that `--metrics` names; the axis "class" has an entry per class. They may read the class
predicted for every test sample after every task, `PREDICTED`."""
COMPANIONS = {TASK_MASKED: Metric(matrix_name(TASK_MASKED), task_masked_matrix, ("time", "task"))}
"""Metrics that come with one of `EXTRA`, by its name."""


def read_predictions(names: Iterable[str]) -> bool:
    """Return True if one of the metrics reads predicted classes."""
    return not set(names) <= {*DIAGNOSTICS, TASK_MASKED}


def read_diagnostics(names: Iterable[str]) -> bool:
    """Return True if one of the metrics is a diagnostic of plasticity."""
    return not set(names).isdisjoint(DIAGNOSTICS)


def class_metrics(names: tuple[str, ...], class_names: tuple[str, ...]) -> Metrics:
    """Return accuracy over time and by task, and the metrics that `--metrics` names.

    Raises:
      DataError: there is no such metric.
    """
    others = []
    for name in dict.fromkeys(names):
        check_name("metric --metrics", name, list(EXTRA))
        axes = tuple(class_names if axis == "class" else axis for axis in EXTRA[name].axes)
        others.append(EXTRA[name]._replace(axes=axes))
        if name in COMPANIONS:
            others.append(COMPANIONS[name])
    return Metrics(
        score=Metric(ACCURACY, lambda run: mean_so_far(matrix_of(run)), ("time",)),
        score_by_task=Metric(matrix_name(ACCURACY), matrix_of, ("time", "task")),
        others=tuple(others),
        second_score=TASK_MASKED if TASK_MASKED in names else "",
    )


WITHIN = "within_tasks"
"""Stored array: accuracy on each task at each evaluation within tasks."""
SCORES: Mapping[str, Callable[[Array, Array], Array]] = {
    "anytime average": anytime_average_accuracy,
    "min-ACC": lambda accuracies, task: average_minimum_accuracy(accuracies, task)[-1],
    "WC-ACC": lambda accuracies, task: worst_case_accuracy(accuracies, task)[-1],
    "stability gap": stability_gap,
}


@once_per_run
def accuracy_by_step(run: TrainedRun) -> Float[np.ndarray, "n t"]:
    """Return the accuracy on each task at each evaluation; NaN where none took place."""
    return accuracies_in_order(run.arrays[WITHIN], run.arrays[STEPS_WITHIN], run.arrays[MATRIX])


def scores_within(run: TrainedRun) -> Float[np.ndarray, "scores"]:
    """Return `SCORES`; NaN for joint training, which learns one task alone."""
    accuracies = accuracy_by_step(run)
    # Later tasks of an update have no value at the evaluations before it.
    took_place = np.isfinite(accuracies).any(axis=1)
    task = np.arange(len(accuracies))[took_place] * run.tasks // len(accuracies)
    if len(set(task)) < run.tasks:
        return np.full(len(SCORES), np.nan)
    inputs = jnp.asarray(accuracies[took_place]), jnp.asarray(task)
    return np.array([float(score(*inputs)) for score in SCORES.values()])


BY_STEP = (
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
        "Anytime average: mean over all evaluations of the mean accuracy on the tasks so far. "
        "min-ACC: mean over earlier tasks of their lowest accuracy since they ended. WC-ACC: the "
        "current task's accuracy and min-ACC, weighted by their numbers of tasks (De Lange et al. "
        "2023). Stability gap: mean drop of an earlier task's accuracy within a task that is made "
        "up for by the task's end.",
    ),
)
"""Metrics of benchmarks that are evaluated within tasks."""
