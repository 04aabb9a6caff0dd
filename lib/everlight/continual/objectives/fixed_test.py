"""Softmax over all outputs from the start, judged on one fixed test set (CORe50)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import PositiveInt, checked
from everlight.continual.base import Objective, Predictions, TaskSequence
from everlight.continual.objectives.many_labels import multi_hot
from everlight.continual.objectives.softmax import correct, softmax_objective
from everlight.metrics.open_set import maximum_softmax_probability


class FixedTest(NamedTuple):
    """What is kept of the whole test set, whatever the task; all outputs compete."""

    accuracy: Float[Array, ""]
    """On the full test set: option 2 of the CORe50 paper, section 5.2."""
    class_accuracy: Float[Array, "c"]
    """On each class's test samples; 0 where it has none."""
    correct: Bool[Array, "m"]
    """Of each test sample; from these and the confidence, options 1 and 3 (`metrics.open_set`)."""
    confidence: Float[Array, "m"]
    """The greatest class probability."""


@checked
def fixed_test_objective(classes: PositiveInt) -> Objective:
    """Softmax cross-entropy over all outputs, seen or not; an evaluation keeps `FixedTest`.

    `seen` then says which classes have been met, for strategies and for options 1 and 3; it limits
    neither the loss nor a prediction.

    Args:
      classes: outputs of the head.
    """
    one_group = jnp.zeros(classes, int)

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        good = correct(predictions.scores, predictions.labels[:, 0], jnp.ones_like(seen)) > 0
        return good, maximum_softmax_probability(predictions.scores)

    def evaluate(sequence: TaskSequence, judged: tuple, seen: Bool[Array, "c"]) -> FixedTest:
        labels, mask = sequence.test.labels, sequence.test.mask
        good, confidence = judged
        member = multi_hot(labels, classes) & mask[:, None]
        hits = jnp.sum(member & good[:, None], axis=0)
        return FixedTest(
            jnp.sum(good) / jnp.maximum(jnp.sum(mask), 1),
            hits / jnp.maximum(jnp.sum(member, axis=0), 1),
            good,
            confidence,
        )

    return softmax_objective(one_group)._replace(
        per_sample_metrics=per_sample_metrics, evaluate=evaluate
    )
