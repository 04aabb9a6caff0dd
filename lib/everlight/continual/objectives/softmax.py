"""Softmax objective for one label per sample: loss, scores and accuracies."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Objective, Outputs, Predictions, TaskSequence
from everlight.checks import Between, NotEmpty, checked
from everlight.continual.objectives.widths import refuse_other_widths
from everlight.errors import ArgumentError


class Accuracies(NamedTuple):
    """Accuracies on every task's test set after one task, or 0 and 1 of every sample.

    The former are rows of the accuracy matrices.
    """

    class_incremental: Float[Array, "_"]
    """Accuracy among all classes seen so far."""
    task_masked: Float[Array, "_"]
    """Accuracy among the classes of the sample's test set (`TaskSequence.test_classes`)."""


@checked
def softmax_objective(
    class_group: Annotated[Int[Array, "c"], Between(0), NotEmpty] | None = None,
    only_seen: bool = False,
) -> Objective:
    """Return the objective of softmax cross-entropy with one label per sample.

    The true Fisher information draws each sample's label from the softmax over the loss's classes.
    A sample without a label (-1) has loss 0 and is never correct. Scores are the logits. The metric
    is 1 if the label has the greatest score among the loss's classes, else 0. An evaluation keeps
    `Accuracies`.

    Args:
      class_group: group of each class, for one head per task. A sample's loss runs over the classes
        of its label's group. None is one head, over all classes seen so far.
      only_seen: exclude unseen classes from a group that has a seen class. One group of all classes
        then is one head; groups whose classes are all seen at once do not change.

    Raises:
      ValueError: while tracing, the network has not as many outputs as there are classes.
    """

    def active(label: Int[Array, "b"], seen: Bool[Array, "c"]) -> Bool[Array, "b c"]:
        if class_group is None:
            return jnp.broadcast_to(seen, (label.shape[0], seen.shape[0]))
        group = class_group == class_group[label][:, None]
        if only_seen:
            group &= seen | ~jnp.any(group & seen, axis=1, keepdims=True)
        return group

    def masked_logits(
        outputs: Outputs, label: Int[Array, "b"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b c"]:
        refuse_other_widths(outputs.logits, seen)
        return jnp.where(active(label, seen), outputs.logits, -jnp.inf)

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        # -1 is padding: as an index it would mean the last class.
        label, labelled = jnp.maximum(labels[:, 0], 0), labels[:, 0] >= 0
        logits = masked_logits(outputs, label, seen)
        chosen = jnp.take_along_axis(outputs.logits, label[:, None], axis=1)[:, 0]
        return jnp.where(labelled, jax.nn.logsumexp(logits, axis=1) - chosen, 0)

    def metric(
        scores: Float[Array, "b c"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return correct(scores, labels[:, 0], active(labels[:, 0], seen))

    def fisher_loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"], key: PRNGKeyArray
    ) -> Float[Array, "b"]:
        logits = masked_logits(outputs, labels[:, 0], seen)
        drawn = jax.random.categorical(key, logits)[:, None]
        chosen = jnp.take_along_axis(outputs.logits, drawn, axis=1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - chosen

    def label_losses(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> tuple[Float[Array, "b c"], Float[Array, "b c"]]:
        among = active(labels[:, 0], seen)
        logits = masked_logits(outputs, labels[:, 0], seen)
        log_probabilities = jax.nn.log_softmax(logits, axis=1)
        losses = jnp.where(among, -log_probabilities, 0)
        return losses, jnp.where(among, jnp.exp(-losses), 0)

    return Objective(
        loss,
        lambda outputs: outputs.logits,
        metric,
        accuracy_per_sample,
        accuracy_row,
        fisher_loss=fisher_loss,
        label_losses=label_losses,
    )


def correct(
    scores: Float[Array, "b c"], label: Int[Array, "b"], among: Bool[Array, "*b c"]
) -> Float[Array, "b"]:
    """Return 1 if the label has the greatest score among the given classes, else 0.

    Args:
      scores: scores of all classes, `[b, c]`.
      label: class of each sample, `[b]`.
      among: the classes that count, `[c]` or `[b, c]`; without any the result is 0.

    Raises:
      ValueError: there are not as many scores as classes.
    """
    refuse_other_widths(scores, among)
    chosen = jnp.argmax(jnp.where(among, scores, -jnp.inf), axis=1)
    # Scores may have 16 bits, in which sums of these round or overflow.
    return ((chosen == label) & jnp.any(among, axis=-1)).astype(jnp.float32)


def accuracy_per_sample(predictions: Predictions, seen: Bool[Array, "c"]) -> Accuracies:
    """Return 1 for correct samples, among all seen classes and among their test set's classes.

    Raises:
      ValueError: `TaskSequence.test_classes` is None.
    """
    label, classes = predictions.labels[:, 0], predictions.task_classes
    if classes is None:
        raise ArgumentError(
            "sequence.test_classes is None; give the classes of each test set, [tests, classes], "
            "among which task-masked accuracy ranks its samples"
        )
    return Accuracies(
        correct(predictions.scores, label, seen), correct(predictions.task_scores, label, classes)
    )


def accuracy_row(
    sequence: TaskSequence, per_sample: Accuracies, seen: Bool[Array, "c"]
) -> Accuracies:
    """Return both accuracies on every task's test set, averaged over its samples; 0 without any."""
    member = sequence.test_member & sequence.test.mask
    count = jnp.maximum(jnp.sum(member, axis=1), 1)
    return Accuracies(*(jnp.sum(jnp.where(member, row, 0), axis=1) / count for row in per_sample))
