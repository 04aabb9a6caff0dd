"""Regression: the squared error to targets that a function gives for every sample's label."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Objective, Outputs, Predictions, TaskSequence
from everlight.checks import checked
from everlight.precision import matrix_product


@checked
def regression_objective(target: Callable[[Int[Array, "b"]], Float[Array, "b c"]]) -> Objective:
    """Return the objective of regression: the squared error, averaged over the c outputs.

    A sample's label is a number from which its target follows, such as its index. The metric is
    minus the error. An evaluation keeps the mean error on every test set, `[tests]`. The true
    Fisher information is that of a Gaussian with variance ½ about the outputs, divided by c.

    Args:
      target: function from labels to targets.
    """

    def error(logits: Float[Array, "b c"], labels: Int[Array, "b k"]) -> Float[Array, "b"]:
        return jnp.mean((logits - target(labels[:, 0])) ** 2, axis=1)

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return error(outputs.logits, labels)

    def metric(
        scores: Float[Array, "b c"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return -error(scores, labels)

    def per_sample(predictions: Predictions, seen: Bool[Array, "c"]) -> Float[Array, "b"]:
        return error(predictions.scores, predictions.labels)

    def evaluate(
        sequence: TaskSequence, errors: Float[Array, "m"], seen: Bool[Array, "c"]
    ) -> Float[Array, "tests"]:
        member = sequence.test_member.astype(errors.dtype)
        return matrix_product(member, errors) / jnp.maximum(jnp.sum(member, axis=1), 1)

    def fisher_loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"], key: PRNGKeyArray
    ) -> Float[Array, "b"]:
        signs = jax.random.rademacher(key, outputs.logits.shape, outputs.logits.dtype)
        return jnp.sum(signs * outputs.logits, axis=1) * jnp.sqrt(2 / outputs.logits.shape[1])

    return Objective(
        loss,
        lambda outputs: outputs.logits,
        metric,
        per_sample,
        evaluate,
        lambda outputs, seen: outputs.logits,
        fisher_loss=fisher_loss,
        fisher="true",
    )
