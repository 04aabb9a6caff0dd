"""Multi-label objective of IIRC: binary cross-entropy over the classes seen so far."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from everlight.base import Objective, Outputs, Predictions, TaskSequence
from everlight.checks import PositiveInt, check_range, checked
from everlight.continual.objectives.widths import refuse_other_widths
from everlight.metrics.multilabel import (
    LabelScores,
    precision_weighted_jaccard,
    sequence_label_scores,
)


@checked
def binary_objective() -> Objective:
    """Return the objective of binary cross-entropy, for any number of labels per sample.

    A sample's loss is the plain mean over the seen classes; unseen labels are ignored. The true
    Fisher information is that of independent Bernoulli labels, one per seen class. It belongs to
    the sum over the seen classes, so it does not depend on their number. The empirical Fisher
    information squares gradients of the mean.

    Scores are the logits, and the metric is the precision-weighted Jaccard similarity. An
    evaluation keeps every sample's predicted labels as bits, from which `metrics.multilabel`
    computes its metrics. Samples of future tasks have no predicted labels.

    Raises:
      ValueError: while tracing, the network has not as many outputs as there are classes.
    """

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        refuse_other_widths(outputs.logits, seen)
        targets = multi_hot(labels, seen.shape[0])
        return binary_cross_entropy(outputs.logits, targets.astype(outputs.logits.dtype), seen)

    def metric(
        scores: Float[Array, "b c"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        refuse_other_widths(scores, seen)
        true = multi_hot(labels, seen.shape[0]) & seen
        return jax.vmap(precision_weighted_jaccard)(predicted_labels(scores, seen), true)

    def per_sample_metrics(
        predictions: Predictions, seen: Bool[Array, "c"]
    ) -> UInt8[Array, "b packed"]:
        return jnp.packbits(predicted_labels(predictions.scores, seen), axis=-1)

    def evaluate(
        sequence: TaskSequence, predicted: UInt8[Array, "m packed"], seen: Bool[Array, "c"]
    ) -> UInt8[Array, "m packed"]:
        return predicted

    def fisher_loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"], key: PRNGKeyArray
    ) -> Float[Array, "b"]:
        drawn = jax.random.bernoulli(key, jax.nn.sigmoid(outputs.logits))
        targets = drawn.astype(outputs.logits.dtype)
        losses = optax.sigmoid_binary_cross_entropy(outputs.logits, targets)
        return jnp.sum(losses, axis=-1, where=seen)

    return Objective(
        loss,
        lambda outputs: outputs.logits,
        metric,
        per_sample_metrics,
        evaluate,
        evaluates_unseen_classes=False,
        fisher_loss=fisher_loss,
    )


@checked
def multi_hot(labels: Int[Array, "b k"], classes: PositiveInt) -> Bool[Array, "b c"]:
    """Return True for the classes among each sample's labels; -1 is padding.

    Args:
      labels: class numbers of each sample, `[b, k]`.
      classes: number of classes.

    Raises:
      ValueError: a label is neither a class nor padding.
    """
    check_range("labels", labels, -1, classes - 1)
    return jnp.any(labels[:, :, None] == jnp.arange(classes), axis=1)


def predicted_labels(scores: Float[Array, "b c"], seen: Bool[Array, "c"]) -> Bool[Array, "b c"]:
    """Return True for the seen classes whose sigmoid is above one half, given logits."""
    return (scores > 0) & seen


def binary_cross_entropy(
    logits: Float[Array, "b c"], targets: Float[Array, "b c"], among: Bool[Array, "*b c"]
) -> Float[Array, "b"]:
    """Return each sample's binary cross-entropy, averaged over the given classes; 0 without any.

    Args:
      logits: logits of all classes, `[b, c]`.
      targets: target probabilities, `[b, c]`: labels, or an older model's sigmoids.
      among: the classes that count, `[c]`, or those of each sample, `[b, c]`.
    """
    losses = optax.sigmoid_binary_cross_entropy(logits, targets)
    return jnp.sum(losses, axis=-1, where=among) / jnp.maximum(jnp.sum(among, axis=-1), 1)


def label_scores(
    sequence: TaskSequence,
    predicted: UInt8[np.ndarray, "t m packed"],
    superclass: Int[np.ndarray, "c"],
) -> LabelScores:
    """Return all scores of the labels predicted after each task, as an evaluation keeps them.

    Args:
      sequence: tasks and test samples.
      predicted: predicted labels as bits, `[t, m, packed]`.
      superclass: superclass of each class, `[c]`; -1 for none.
    """
    classes = sequence.class_task.shape[0]
    return sequence_label_scores(
        jnp.asarray(np.unpackbits(predicted, axis=-1, count=classes).astype(bool)),
        multi_hot(sequence.test.labels, classes),
        sequence.test_member,
        sequence.tasks.classes,
        jnp.asarray(superclass),
    )
