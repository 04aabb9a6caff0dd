"""Any loss of outputs and targets, where a function gives every sample's target; regression."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Objective, Outputs, Predictions, TaskSequence
from everlight.checks import checked
from everlight.precision import matrix_product


@checked
def target_objective(
    loss: Callable[[Float[Array, "c"], PyTree], Float[Array, ""]],
    target: Callable[[Int[Array, "b"]], PyTree],
) -> Objective:
    """Return the objective of a loss between a sample's outputs and its target.

    A sample's label is a number from which its target follows, such as its index, and no class. The
    metric is minus the loss. An evaluation keeps the mean loss on every test set, `[tests]`, 0 on
    one without samples. The Fisher information is the empirical one. All outputs count from the
    first task on.

    Args:
      loss: function from one sample's outputs and its target to its loss.
      target: function from labels to targets, arrays or a tree of arrays, `[b, ...]`.
    """

    def losses(logits: Float[Array, "b c"], labels: Int[Array, "b k"]) -> Float[Array, "b"]:
        # -1 is padding, whose weight is 0.
        return jax.vmap(loss)(logits, target(jnp.maximum(labels[:, 0], 0)))

    def batch_losses(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return losses(outputs.logits, labels)

    def metric(
        scores: Float[Array, "b c"], labels: Int[Array, "b k"], seen: Bool[Array, "classes"]
    ) -> Float[Array, "b"]:
        return -losses(scores, labels)

    def per_sample(predictions: Predictions, seen: Bool[Array, "c"]) -> Float[Array, "b"]:
        # Sums over a test set in the outputs' 16 bits would round or overflow.
        return losses(predictions.scores, predictions.labels).astype(jnp.float32)

    def evaluate(
        sequence: TaskSequence, values: Float[Array, "m"], seen: Bool[Array, "c"]
    ) -> Float[Array, "tests"]:
        member = (sequence.test_member & sequence.test.mask).astype(values.dtype)
        return matrix_product(member, values) / jnp.maximum(jnp.sum(member, axis=1), 1)

    return Objective(
        batch_losses,
        lambda outputs: outputs.logits,
        metric,
        per_sample,
        evaluate,
        lambda outputs, seen: outputs.logits,
    )


@checked
def regression_objective(target: Callable[[Int[Array, "b"]], Float[Array, "b c"]]) -> Objective:
    """Return the objective of regression: the squared error, averaged over the c outputs.

    It is the `target_objective` of that loss with another Fisher information: the true one of a
    Gaussian with variance ½ about the outputs, divided by c.

    Args:
      target: function from labels to targets.
    """

    def fisher_loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"], key: PRNGKeyArray
    ) -> Float[Array, "b"]:
        signs = jax.random.rademacher(key, outputs.logits.shape, outputs.logits.dtype)
        return jnp.sum(signs * outputs.logits, axis=1) * jnp.sqrt(2 / outputs.logits.shape[1])

    return target_objective(_squared_error, target)._replace(fisher_loss=fisher_loss, fisher="true")


def _squared_error(outputs: Float[Array, "c"], target: Float[Array, "c"]) -> Float[Array, ""]:
    return jnp.mean((outputs - target) ** 2)
