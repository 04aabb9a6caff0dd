"""Naive finetuning, the base of all other strategies.

It learns task after task without any measure against forgetting: the lower bound of benchmarks.
Other strategies are `naive(setup)._replace(...)` with the functions in which they differ.

Finetuning has no official code. Equal to Mammoth's `sgd.py` at the parameters after every step of
plain gradient descent; differs in that the loss runs over the classes that the objective counts,
where theirs runs over all outputs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Memory, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import checked
from everlight.continual.methods.method import Method, Source
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


@checked
def naive(setup: Setup) -> Strategy:
    """Return naive finetuning: the plain gradient on the task's own samples."""

    def epoch_data(memory: Memory, task: Task) -> Epoch:
        return Epoch(task.train, jnp.zeros_like(task.train.mask))

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner, batch, key)

    def predict(
        memory: Memory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        return setup.objective.scores(evaluation_outputs(setup, learner, inputs))

    return Strategy(
        init=lambda key, learner: (),
        epoch_data=epoch_data,
        valid_data=lambda memory, task: task.valid,
        grads=grads,
        predict=predict,
    )


def among_current(classes: Bool[Array, "c"], scores: Float[Array, "b c"]) -> Float[Array, "b c"]:
    """Return scores of the current task's classes, −∞ for others; all scores if there are none."""
    return jnp.where(classes | ~jnp.any(classes), scores, -jnp.inf)


def naive_on_task_classes(setup: Setup) -> Strategy:
    """Return naive finetuning by the loss over the task's own classes.

    The aux of a step are the parameters before it.
    """

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        task_learner = learner._replace(seen=task.classes)
        gradient, info = task_gradient(setup, task_learner, batch, key)
        return gradient, info._replace(aux=learner.params)

    return naive(setup)._replace(grads=grads)


METHODS = (
    Method(
        "naive", naive, Source(), "naive finetuning: the plain gradient on the task's own samples"
    ),
)
