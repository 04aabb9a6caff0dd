"""Evaluations that keep the predicted class of every test sample."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from everlight.base import Objective, Predictions, TaskSequence
from everlight.checks import checked


@checked
def with_predictions(objective: Objective, task_incremental: bool = False) -> Objective:
    """Return an objective whose evaluation is a pair: the objective's own, and predicted classes.

    The predicted classes are `[m]`, int16 or, of more than 32,767 classes, int32. They are -1 for
    samples that are not evaluated.

    Args:
      objective: objective over class scores.
      task_incremental: predict among the classes of the sample's task, else among seen classes.
    """

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> PyTree:
        scores, among = predictions.scores, seen
        if task_incremental:
            scores, among = predictions.task_scores, predictions.task_classes
        # One more than the class, as samples that are not evaluated have 0.
        chosen = 1 + jnp.argmax(jnp.where(among, scores, -jnp.inf), axis=1)
        fits = scores.shape[1] <= jnp.iinfo(jnp.int16).max
        chosen = chosen.astype(jnp.int16 if fits else jnp.int32)
        return objective.per_sample_metrics(predictions, seen), chosen

    def evaluate(sequence: TaskSequence, per_sample: PyTree, seen: Bool[Array, "c"]) -> PyTree:
        return objective.evaluate(sequence, per_sample[0], seen), per_sample[1] - 1

    return objective._replace(per_sample_metrics=per_sample_metrics, evaluate=evaluate)
