"""Passes through a network that strategies share: outputs, losses and gradients of a batch."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup, StepInfo
from everlight.continual.strategies.parts.teacher import Teacher


def batch_outputs(
    setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Outputs, PyTree]:
    """Return a batch's outputs in training mode and the new batch statistics."""
    return setup.apply(params, learner.batch_stats, batch.inputs, True, key)


def evaluation_outputs(
    setup: Setup, net: Learner | Teacher, inputs: Float[Array, "b *shape"]
) -> Outputs:
    """Return a network's outputs in evaluation mode.

    Args:
      setup: network, objective, optimizer and data access.
      net: learner or teacher, whose `params` and `batch_stats` are those of the network.
      inputs: inputs of the network.
    """
    outputs, _ = setup.apply(net.params, net.batch_stats, inputs, False, None)
    return outputs


def batch_loss(
    setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], tuple[Outputs, PyTree]]:
    """Return the weighted mean loss of a batch, and the result of `batch_outputs`."""
    outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
    losses = setup.objective.loss(outputs, batch.labels, learner.seen)
    return weighted_mean(losses, batch.weight), (outputs, batch_stats)


def weighted_mean(values: Float[Array, "b"], weight: Float[Array, "b"]) -> Float[Array, ""]:
    """Return the mean over the samples of weight 1; 0 if there are none.

    Values of weight 0 are dropped, not multiplied, so that a NaN among them has no effect.
    """
    weighted = jnp.where(weight > 0, values * weight, 0)
    return jnp.sum(weighted) / jnp.maximum(jnp.sum(weight), 1)


def task_gradient(
    setup: Setup, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of the batch's loss and the `StepInfo`, with the `Outputs` as its aux."""
    differentiate = jax.value_and_grad(
        lambda params: batch_loss(setup, params, learner, batch, key), has_aux=True
    )
    (loss, (outputs, batch_stats)), gradient = differentiate(learner.params)
    return gradient, StepInfo(gradient, batch_stats, loss, outputs)


def evaluation_gradient(setup: Setup, learner: Learner, batch: Batch) -> PyTree:
    """Return the gradient of the weighted mean loss of a batch, in evaluation mode."""

    def loss(params: PyTree) -> Float[Array, ""]:
        outputs = evaluation_outputs(setup, learner._replace(params=params), batch.inputs)
        losses = setup.objective.loss(outputs, batch.labels, learner.seen)
        return weighted_mean(losses, batch.weight)

    return jax.grad(loss)(learner.params)


def mask_other_classes(
    classes: Bool[Array, "c"], scores: Float[Array, "b c"]
) -> Float[Array, "b c"]:
    """Return scores of the current task's classes, −∞ for others; all scores if there are none."""
    return jnp.where(classes | ~jnp.any(classes), scores, -jnp.inf)
