"""Rehearsal with a head whose weights are imprinted, stay, and are finetuned (LUCIR and PODNet).

Weights of a new class start from the features of its samples, and those of known classes stay
during a task. After every task but the first the head is finetuned on exemplars. The exemplars of
all seen classes are equally many, which the samples of a task and the exemplars of earlier ones are
not. Only the head's weights of the seen classes learn; its scale and the network below stay. The
network is in evaluation mode.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.continual.engine.epochs import train_on
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.passes import batch_outputs, evaluation_outputs
from everlight.continual.strategies.parts.rehearsal import Rehearsal
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher
from everlight.models.heads import head_kernel, with_head_kernel


class LossInputs(NamedTuple):
    """Values of a pass from which the loss of a batch is computed."""

    params: PyTree
    outputs: Outputs
    """Outputs of the network with the parameters."""
    teacher: Teacher
    """Network before the task."""
    batch: Batch
    seen: Bool[Array, "c"]
    new: Bool[Array, "c"]
    """Classes of the task."""


BatchLoss = Callable[[LossInputs], tuple[Float[Array, ""], Float[Array, ""]]]
"""Function that returns the batch's whole loss and the part of the task's samples."""
Imprint = Callable[
    [Float[Array, "f *p c"], Float[Array, "n f"], Task, Bool[Array, "c"], PRNGKeyArray],
    Float[Array, "f *p c"],
]
"""Function from the head's weights, the features of a task's samples, the task, the known classes
and a random key to the head's weights after imprinting the task's classes."""


class Finetuning(NamedTuple):
    """Settings of the class-balanced finetuning."""

    epochs: int
    """Number of epochs; 0 leaves the finetuning out."""
    batch_size: int
    """Exemplars per step."""
    rate: Callable[[Int[Array, ""]], Float[Array, ""]]
    """Function from an epoch, counted from 0, to the factor on the optimizer's learning rate."""


def imprinted_rehearsal(
    setup: Setup, by_head: Strategy, batch_loss: BatchLoss, imprint: Imprint, finetuning: Finetuning
) -> Strategy:
    """Return rehearsal whose head has imprinted, fixed and finetuned weights.

    Args:
      setup: network, objective, optimizer and data access.
      by_head: strategy with the exemplars, whose memory is `Rehearsal`.
      batch_loss: loss of the steps and of the finetuning.
      imprint: function that returns the head's weights when a task begins.
      finetuning: settings of the finetuning.
    """

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        teacher = freeze_teacher(learner, task)
        features = sample_features(setup, learner, task.train)
        kernel = imprint(head_kernel(learner.params), features, task, teacher.known, key)
        params = with_head_kernel(learner.params, kernel)
        return memory._replace(teacher=teacher), learner._replace(params=params)

    def grads(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return batch_gradient(setup, batch_loss, memory.teacher, learner, batch, task, key)

    def end_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        key_rehearsal, key_finetune = jax.random.split(key)
        memory, learner = by_head.end_task(memory, learner, task, key_rehearsal)
        return memory, finetune_head(
            setup, batch_loss, memory, learner, task, key_finetune, finetuning
        )

    strategy = by_head._replace(begin_task=begin_task, grads=grads, after_step=keep_known_weights)
    return strategy._replace(end_task=end_task) if finetuning.epochs else strategy


def batch_gradient(
    setup: Setup,
    batch_loss: BatchLoss,
    teacher: Teacher,
    learner: Learner,
    batch: Batch,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of a batch's whole loss, and the step with the task's share of the loss.

    Args:
      setup: network, objective, optimizer and data access.
      batch_loss: loss whose gradient is followed.
      teacher: network before the task.
      learner: learner before the step.
      batch: samples of the step, with inputs.
      task: current task.
      key: random key of the pass.
    """

    def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
        outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
        total, task_loss = batch_loss(
            LossInputs(params, outputs, teacher, batch, seen=learner.seen, new=task.classes)
        )
        return total, (task_loss, batch_stats)

    gradient, (task_loss, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
    return gradient, StepInfo(gradient, batch_stats, task_loss)


def keep_known_weights(
    memory: Rehearsal, learner: Learner, info: StepInfo, key: PRNGKeyArray
) -> tuple[Rehearsal, Learner]:
    """Return the learner whose head has the weights of known classes as before the task."""
    teacher = memory.teacher
    kernel = jnp.where(teacher.known, head_kernel(teacher.params), head_kernel(learner.params))
    return memory, learner._replace(params=with_head_kernel(learner.params, kernel))


class Finetuned(NamedTuple):
    """Memory of the steps of class-balanced finetuning."""

    teacher: Teacher
    params: PyTree
    """Parameters before finetuning; it changes the head's weights of the seen classes alone."""


def head_gradient(
    setup: Setup,
    batch_loss: BatchLoss,
    memory: Finetuned,
    learner: Learner,
    batch: Batch,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of a batch's loss by the head's weights, in evaluation mode."""

    def loss(kernel: Float[Array, "f *p c"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        params = with_head_kernel(learner.params, kernel)
        outputs = evaluation_outputs(setup, learner._replace(params=params), batch.inputs)
        return batch_loss(
            LossInputs(params, outputs, memory.teacher, batch, learner.seen, new=task.classes)
        )

    of_kernel, task_loss = jax.grad(loss, has_aux=True)(head_kernel(learner.params))
    gradient = with_head_kernel(jax.tree.map(jnp.zeros_like, learner.params), of_kernel)
    return gradient, StepInfo(gradient, learner.batch_stats, task_loss)


def keep_all_but_the_head(
    memory: Finetuned, learner: Learner, info: StepInfo, key: PRNGKeyArray
) -> tuple[Finetuned, Learner]:
    """Return the learner with changed weights of seen classes alone.

    Momentum and weight decay move what has no gradient.
    """
    kernel = jnp.where(learner.seen, head_kernel(learner.params), head_kernel(memory.params))
    return memory, learner._replace(params=with_head_kernel(memory.params, kernel))


def finetune_head(
    setup: Setup,
    batch_loss: BatchLoss,
    memory: Rehearsal,
    learner: Learner,
    task: Task,
    key: PRNGKeyArray,
    finetuning: Finetuning,
) -> Learner:
    """Return the learner after training its head on the exemplars; unchanged after the first task.

    Args:
      setup: network, objective, optimizer and data access.
      batch_loss: loss whose gradient by the head's weights is followed.
      memory: exemplars of all seen classes, and the network before the task.
      learner: learner at the end of the task.
      task: task that ends.
      key: random key of the samples' order.
      finetuning: settings of the finetuning.
    """
    exemplars, known = memory.buffer.samples, memory.teacher.known
    old = jnp.any(multi_hot(exemplars.labels, known.shape[0]) & known, axis=1)
    net = train_on(
        setup,
        naive(setup)._replace(
            grads=partial(head_gradient, setup, batch_loss), after_step=keep_all_but_the_head
        ),
        Finetuned(memory.teacher, learner.params),
        learner,
        task,
        Epoch(exemplars, old),
        epochs=jnp.where(jnp.any(known), finetuning.epochs, 0),
        batch_size=finetuning.batch_size,
        key=key,
        learning_rate_factor=finetuning.rate,
    )
    return learner._replace(params=net.params, step=net.step)
