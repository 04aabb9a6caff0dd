"""Naive finetuning, and the parts that every other strategy replaces some of.

Learns task after task with nothing against forgetting: the lower bound of every benchmark. Other
strategies are `naive(setup)._replace(...)` of the functions in which they differ.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.continual.base import (
    Batch,
    Epoch,
    Learner,
    Memory,
    Outputs,
    Setup,
    StepInfo,
    Strategy,
    Task,
)


def batch_outputs(
    setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, "b *shape"], Outputs, PyTree]:
    """A batch's inputs, its outputs in training mode and the new batch statistics."""
    key_input, key_apply = jax.random.split(key)
    inputs = setup.gather(batch.index, key_input)
    return inputs, *setup.apply(params, learner.batch_stats, inputs, True, key_apply)


def batch_inputs_loss(
    setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], tuple[Array, Outputs, PyTree]]:
    """Weighted mean of the objective's loss of a batch, and all that `batch_outputs` gives."""
    inputs, outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
    losses = setup.objective.loss(outputs, batch.labels, learner.seen)
    return weighted_mean(losses, batch.weight), (inputs, outputs, batch_stats)


def weighted_mean(values: Float[Array, "b"], weight: Float[Array, "b"]) -> Float[Array, ""]:
    """Mean over the samples of weight 1; 0 where there are none.

    Values of weight 0 are dropped, not multiplied, so that not even a NaN among them matters.
    """
    kept = jnp.where(weight > 0, values * weight, 0)
    return jnp.sum(kept) / jnp.maximum(jnp.sum(weight), 1)


def task_gradient(
    setup: Setup, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[PyTree, StepInfo]:
    """Gradient of the batch's own loss."""
    differentiate = jax.value_and_grad(
        lambda params: batch_inputs_loss(setup, params, learner, batch, key), has_aux=True
    )
    (loss, (_, _, batch_stats)), gradient = differentiate(learner.params)
    return gradient, StepInfo(gradient, batch_stats, loss)


def naive(setup: Setup) -> Strategy:
    """Finetuning: the plain gradient on the task's own samples."""

    def begin_task(
        memory: Memory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        return memory, learner

    def epoch_data(memory: Memory, task: Task) -> Epoch:
        return Epoch(task.train, jnp.zeros_like(task.train.mask))

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner, batch, key)

    def after_step(
        memory: Memory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        return memory, learner

    def predict(
        memory: Memory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs, _ = setup.apply(learner.params, learner.batch_stats, inputs, False, None)
        return setup.objective.scores(outputs)

    return Strategy(
        init=lambda key, learner: (),
        begin_task=begin_task,
        epoch_data=epoch_data,
        grads=grads,
        after_step=after_step,
        end_task=begin_task,
        predict=predict,
    )
