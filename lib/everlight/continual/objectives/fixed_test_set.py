"""Softmax over all outputs from the start, evaluated on one fixed test set (CORe50)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.base import Objective, Predictions, TaskSequence
from everlight.checks import PositiveInt, checked
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.objectives.softmax import correct, softmax_objective
from everlight.metrics.open_set import maximum_softmax_probability


class FixedTest(NamedTuple):
    """Results on the fixed test set after a task, with predictions among all classes."""

    accuracy: Float[Array, ""]
    """Accuracy on the full test set: option 2 of the CORe50 paper, section 5.2."""
    class_accuracy: Float[Array, "c"]
    """Accuracy on each class's test samples; 0 for a class without any."""
    correct: Bool[Array, "m"]
    """True for correctly classified test samples. With the confidence it gives options 1 and 3 of
    the paper (`metrics.open_set`)."""
    confidence: Float[Array, "m"]
    """Greatest class probability of each test sample."""


@checked
def fixed_test_objective(classes: PositiveInt) -> Objective:
    """Return the objective of softmax over all outputs; an evaluation keeps `FixedTest`.

    Strategies and options 1 and 3 use the seen classes. These limit neither the loss nor
    predictions.

    Args:
      classes: number of outputs of the head.
    """
    one_group = jnp.zeros(classes, int)

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        is_correct = correct(predictions.scores, predictions.labels[:, 0], jnp.ones_like(seen)) > 0
        return is_correct, maximum_softmax_probability(predictions.scores)

    def evaluate(sequence: TaskSequence, per_sample: tuple, seen: Bool[Array, "c"]) -> FixedTest:
        labels, mask = sequence.test.labels, sequence.test.mask
        is_correct, confidence = per_sample
        member = multi_hot(labels, classes) & mask[:, None]
        hits = jnp.sum(member & is_correct[:, None], axis=0)
        return FixedTest(
            jnp.sum(is_correct) / jnp.maximum(jnp.sum(mask), 1),
            hits / jnp.maximum(jnp.sum(member, axis=0), 1),
            is_correct,
            confidence,
        )

    return softmax_objective(one_group)._replace(
        per_sample_metrics=per_sample_metrics, evaluate=evaluate
    )
