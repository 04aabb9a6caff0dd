"""Confusion counts of one label per sample, and the accuracies of single classes."""

from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float, Int

from everlight.checks import Between, PositiveInt, check_range, checked


@checked
def confusion_counts(
    predicted: Int[np.ndarray, "t m"],
    labels: Int[np.ndarray, "m"],
    mask: Bool[np.ndarray, "m"],
    classes: PositiveInt,
) -> Int[np.ndarray, "t c c"]:
    """Count the test samples by true and predicted class at several times.

    Args:
      predicted: predicted class of each sample at each time, `[t, m]`; -1 leaves the sample out,
        for instance before its class was seen.
      labels: true class of each sample, `[m]`.
      mask: False for padding, `[m]`.
      classes: number of classes c.

    Returns:
      Counts at `[time, true class, predicted class]`, `[t, c, c]`.

    Raises:
      ValueError: a class is out of range.
    """
    check_range("labels", labels[mask], 0, classes - 1)
    check_range("predicted", predicted, -1, classes - 1)
    counts = np.zeros((len(predicted), classes, classes), int)
    for time, row in enumerate(predicted):
        known = mask & (row >= 0)
        np.add.at(counts[time], (labels[known], row[known]), 1)
    return counts


@checked
def confusion_shares(
    counts: Annotated[Int[np.ndarray, "*t c c"], Between(0)],
) -> Float[np.ndarray, "*t c c"]:
    """Return counts divided by those of their true class; NaN for a class without samples."""
    total = counts.sum(axis=-1, keepdims=True).astype(float)
    return counts / np.where(total > 0, total, np.nan)


@checked
def class_accuracies(
    counts: Annotated[Int[np.ndarray, "*t c c"], Between(0)],
) -> Float[np.ndarray, "*t c"]:
    """Return the accuracy on every class from confusion counts; NaN for a class without samples."""
    return np.diagonal(confusion_shares(counts), axis1=-2, axis2=-1)
