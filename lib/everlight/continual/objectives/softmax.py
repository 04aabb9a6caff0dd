"""Softmax over one label per sample: its loss, its scores, its accuracies."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.checks import Between, checked
from everlight.continual.base import Objective, Outputs, Predictions, TaskSequence


class Accuracies(NamedTuple):
    """Accuracies on every task's test set, after some task: rows of the accuracy matrices.

    Or on every sample, 0 or 1.
    """

    class_incremental: Float[Array, "_"]
    """Among all classes seen so far."""
    task_masked: Float[Array, "_"]
    """Among the classes of the sample's own test set (`TaskSequence.test_classes`)."""


@checked
def softmax_objective(
    class_group: Annotated[Int[Array, "c"], Between(0)] | None = None,
    only_seen: bool = False,
) -> Objective:
    """Softmax cross-entropy over one label per sample.

    Args:
      class_group: for a head per task: the group of each class; a sample's loss then runs over the
        classes of its label's group. None: over all classes seen so far, one head.
      only_seen: of a group in which a class is seen, those that are not do not compete; with one
        group of all that is one head, and groups that are whole from their task on stay so.

    The true Fisher information draws each sample's label from the softmax over the same classes.

    A sample without a label (-1) has loss 0 and is never right. Scores are the logits; metric is
    whether the label's score is the greatest of the same classes; an evaluation keeps `Accuracies`.
    """

    def active(label: Int[Array, "b"], seen: Bool[Array, "c"]) -> Bool[Array, "b c"]:
        if class_group is None:
            return jnp.broadcast_to(seen, (label.shape[0], seen.shape[0]))
        group = class_group == class_group[label][:, None]
        if only_seen:
            group &= seen | ~jnp.any(group & seen, axis=1, keepdims=True)
        return group

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        # -1 is no label: an index of its own would be the last class.
        label, labelled = jnp.maximum(labels[:, 0], 0), labels[:, 0] >= 0
        logits = jnp.where(active(label, seen), outputs.logits, -jnp.inf)
        chosen = jnp.take_along_axis(outputs.logits, label[:, None], axis=1)[:, 0]
        return jnp.where(labelled, jax.nn.logsumexp(logits, axis=1) - chosen, 0)

    def metric(
        scores: Float[Array, "b c"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return correct(scores, labels[:, 0], active(labels[:, 0], seen))

    def fisher_loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"], key: PRNGKeyArray
    ) -> Float[Array, "b"]:
        logits = jnp.where(active(labels[:, 0], seen), outputs.logits, -jnp.inf)
        drawn = jax.random.categorical(key, logits)[:, None]
        chosen = jnp.take_along_axis(outputs.logits, drawn, axis=1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - chosen

    return Objective(
        loss,
        lambda outputs: outputs.logits,
        metric,
        accuracy_per_sample,
        accuracy_row,
        fisher_loss=fisher_loss,
    )


def correct(
    scores: Float[Array, "b c"], label: Int[Array, "b"], among: Bool[Array, "*b c"]
) -> Float[Array, "b"]:
    """1 where the label has the greatest score among the given classes, else 0; 0 among none."""
    chosen = jnp.argmax(jnp.where(among, scores, -jnp.inf), axis=1)
    return ((chosen == label) & jnp.any(among, axis=-1)).astype(scores.dtype)


def accuracy_per_sample(predictions: Predictions, seen: Bool[Array, "c"]) -> Accuracies:
    """Return whether each sample is right among all seen classes, and among its test set's.

    Raises:
      ValueError: a sequence that does not say which classes each test set has.
    """
    label, own = predictions.labels[:, 0], predictions.task_classes
    if own is None:
        raise ValueError(
            "sequence.test_classes is None; give the classes of each test set, [tests, classes], "
            "among which its samples are scored where the task is known"
        )
    return Accuracies(
        correct(predictions.scores, label, seen), correct(predictions.task_scores, label, own)
    )


def accuracy_row(sequence: TaskSequence, judged: Accuracies, seen: Bool[Array, "c"]) -> Accuracies:
    """Both accuracies on every task's test set, from each sample's."""
    member = sequence.test_member & sequence.test.mask
    count = jnp.maximum(jnp.sum(member, axis=1), 1)
    return Accuracies(*(jnp.sum(jnp.where(member, good, 0), axis=1) / count for good in judged))
