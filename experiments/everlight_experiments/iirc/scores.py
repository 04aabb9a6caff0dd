"""From the labels predicted after every task to all that the report shows."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from everlight.continual.base import TaskSequence
from everlight.continual.objectives.many_labels import multi_hot
from everlight.metrics.multilabel import (
    batch_recall,
    confusion_matrix,
    task_score_matrix,
)
from everlight_experiments.iirc.record import unpack

SCORES = ("pw-JS", "JS", "exact match", "recall")
RECALL_BATCH = 128
"""Of the recall that the authors average over batches."""


class Outcome(NamedTuple):
    """One method on one configuration; after stacking, on all, with a leading axis."""

    by_task: Float[np.ndarray, "*runs t t"]
    """R_jk as pw-JS."""
    current: Float[np.ndarray, "*runs t"]
    """R_jj as pw-JS."""
    union: Float[np.ndarray, "*runs t scores"]
    """R_j by each of `SCORES`."""
    batch_recall: Float[np.ndarray, "*runs"]
    """On all tasks after the last, as the authors average it."""
    predicted_labels: Float[np.ndarray, "*runs t"]
    """Mean number predicted for a test sample of the tasks so far."""
    true_labels: Float[np.ndarray, "*runs t"]
    """Mean number of labels seen by then."""
    confusion: Float[np.ndarray, "*runs c c"]
    """After the last task."""
    truth: Float[np.ndarray, "*runs c c"]
    """The same of the true labels (figure 6a)."""


def score_method(sequence: TaskSequence, predicted: UInt8[np.ndarray, "t m packed"]) -> Outcome:
    """Scores what a method predicted on the test samples of its own sequence.

    Args:
      sequence: that the method learnt.
      predicted: labels after each task, as bits.
    """
    classes = sequence.class_task.shape[0]
    predicted = jnp.asarray(unpack(predicted, classes))
    labels = multi_hot(sequence.test.labels, classes)
    seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
    means = task_score_matrix(predicted, labels, sequence.test_member, seen)
    so_far = jnp.cumsum(sequence.test_member, axis=0) > 0

    def labels_a_sample(chosen: Float[np.ndarray, "t m"]) -> Float[np.ndarray, "t"]:
        return np.asarray(jnp.sum(chosen * so_far, axis=1) / jnp.sum(so_far, axis=1))

    last = (predicted[-1], labels)
    by_authors = batch_recall(
        *last, sequence.test_member, seen[-1], sequence.tasks.id[-1], RECALL_BATCH
    )
    shown = jnp.arange(classes)
    return Outcome(
        np.asarray(means.by_task.precision_weighted_jaccard),
        np.asarray(means.current.precision_weighted_jaccard),
        np.stack(means.union, axis=-1),
        np.asarray(by_authors.union),
        labels_a_sample(jnp.sum(predicted, axis=2)),
        labels_a_sample(jnp.sum(labels & seen[:, None], axis=2)),
        np.asarray(confusion_matrix(*last, shown)),
        np.asarray(confusion_matrix(labels, labels, shown)),
    )
