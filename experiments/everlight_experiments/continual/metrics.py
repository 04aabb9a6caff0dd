"""Named metrics of benchmarks of images with one class each.

A new metric is one function and one row of `EXTRA`.
"""

import numpy as np
from jaxtyping import Float, Int

from everlight.metrics import class_accuracies
from everlight.metrics import confusion_counts as count_confusion
from everlight_data.names import check_name
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
    return class_accuracies(confusion_counts(run))


def final_confusion(run: Trained) -> Int[np.ndarray, "c c"]:
    """Return how many test samples of the class of the row are predicted as that of the column."""
    return confusion_counts(run)[-1]


def confusion_counts(run: Trained) -> Int[np.ndarray, "t c c"]:
    """Return true against predicted classes after every task; unseen classes are left out."""
    test, classes = run.sequence.test, run.sequence.class_task.shape[0]
    labels, mask = np.asarray(test.labels[:, 0]), np.asarray(test.mask)
    return count_confusion(run.arrays[PREDICTED], labels, mask, classes)


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
            None,
            "Test samples by true class (row) and predicted class (column) after the last task.",
        ),
    )
}
"""Metrics that `--metrics` names; the axis "class" has an entry per class. They may read the class
predicted for every test sample after every task, `PREDICTED`."""


def class_metrics(names: tuple[str, ...], class_names: tuple[str, ...]) -> tuple[Metric, ...]:
    """Return accuracy over time and by task, and the metrics that `--metrics` names.

    Raises:
      DataError: there is no such metric.
    """
    found = list(ALWAYS)
    for name in dict.fromkeys(names):
        check_name("metric --metrics", name, list(EXTRA))
        axes = tuple(class_names if axis == "class" else axis for axis in EXTRA[name].axes)
        found.append(EXTRA[name]._replace(axes=axes))
    return tuple(found)
