"""Named metrics of benchmarks of images with one class each.

A new metric is one function and one row of `EXTRA`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from everlight.continual import Objective, Predictions, TaskSequence
from everlight_experiments.common.settings import check_name
from everlight_experiments.continual.benchmark import Metric, Trained
from everlight_experiments.continual.outcome import BY_TASK

ACCURACY = "accuracy"
MATRIX, PREDICTED = "matrix", "predicted"
"""Stored arrays: accuracy after each task on each task; class predicted for each test sample."""


def mean_so_far(matrix: Float[np.ndarray, "t t"]) -> Float[np.ndarray, "t"]:
    """Return the mean over the tasks so far, after every task; tasks have equal weight."""
    return np.mean(matrix, axis=1, where=np.tri(len(matrix), dtype=bool))


ALWAYS = (
    Metric(ACCURACY, lambda run: mean_so_far(run.arrays[MATRIX]), ("time",)),
    Metric(BY_TASK.format(ACCURACY), lambda run: run.arrays[MATRIX], ("time", "task")),
)


def accuracy_by_class(run: Trained) -> Float[np.ndarray, "t c"]:
    """Return the accuracy on every class after every task; NaN before the class was seen."""
    counts = confusion_counts(run).astype(float)
    total = counts.sum(axis=2)
    with np.errstate(invalid="ignore"):
        return np.diagonal(counts, axis1=1, axis2=2) / np.where(total > 0, total, np.nan)


def final_confusion(run: Trained) -> Int[np.ndarray, "c c"]:
    """Return how many test samples of the class of the row are predicted as that of the column."""
    return confusion_counts(run)[-1]


def confusion_counts(run: Trained) -> Int[np.ndarray, "t c c"]:
    """Return true against predicted classes of the test samples after every task.

    Samples of classes not seen yet are left out.
    """
    predicted = run.arrays[PREDICTED]
    labels = np.asarray(run.sequence.test.labels[:, 0])
    mask = np.asarray(run.sequence.test.mask)
    classes = run.sequence.class_task.shape[0]
    counts = np.zeros((len(predicted), classes, classes), int)
    for time, row in enumerate(predicted):
        known = mask & (row >= 0)
        np.add.at(counts[time], (labels[known], row[known]), 1)
    return counts


class Extra(NamedTuple):
    """A metric that is computed on request."""

    compute: Callable[[Trained], Any]
    axes: tuple[str, ...]
    """Names of its axes: time, task, class."""
    meaning: str
    higher_is_better: bool | None = True
    predictions: bool = True
    """True if it needs the class predicted for every test sample after every task."""


EXTRA: dict[str, Extra] = {
    "accuracy by class": Extra(
        accuracy_by_class,
        ("time", "class"),
        "Accuracy on the test samples of each class after the last task.",
    ),
    "confusion": Extra(
        final_confusion,
        ("class", "class"),
        "Test samples by true class (row) and predicted class (column) after the last task.",
        higher_is_better=None,
    ),
}
"""Metrics that `--metrics` names."""


def class_metrics(names: tuple[str, ...], class_names: tuple[str, ...]) -> tuple[Metric, ...]:
    """Return accuracy over time and by task, and the metrics that `--metrics` names.

    Raises:
      DataError: there is no such metric.
    """
    found = list(ALWAYS)
    for name in dict.fromkeys(names):
        check_name("metric --metrics", name, list(EXTRA))
        row = EXTRA[name]
        axes = tuple(class_names if axis == "class" else axis for axis in row.axes)
        found.append(Metric(name, row.compute, axes, row.higher_is_better, row.meaning))
    return tuple(found)


def needs_predictions(names: tuple[str, ...]) -> bool:
    """Return whether a requested metric needs the class predicted for every test sample."""
    return any(EXTRA[name].predictions for name in names)


def with_predictions(plain: Objective, task_incremental: bool) -> Objective:
    """Return an objective whose evaluation keeps the predicted classes too.

    Args:
      plain: objective whose evaluation is kept beside them.
      task_incremental: predict among the classes of the sample's task, else among seen classes.
    """

    def per_sample_metrics(predictions: Predictions, seen: Bool[jnp.ndarray, "c"]) -> tuple:
        scores, among = predictions.scores, seen
        if task_incremental:
            scores, among = predictions.task_scores, predictions.task_classes
        # One more than the class, as samples that are not evaluated have 0.
        chosen = 1 + jnp.argmax(jnp.where(among, scores, -jnp.inf), axis=1)
        return plain.per_sample_metrics(predictions, seen), chosen.astype(jnp.int16)

    def evaluate(sequence: TaskSequence, per_sample: tuple, seen: Bool[jnp.ndarray, "c"]) -> tuple:
        return plain.evaluate(sequence, per_sample[0], seen), per_sample[1] - 1

    return plain._replace(per_sample_metrics=per_sample_metrics, evaluate=evaluate)
