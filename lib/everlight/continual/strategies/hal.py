"""Hindsight anchor learning (HAL; Chaudhry et al. 2021, AAAI).

Every class has an anchor, an input e on which the class is forgotten most. A step takes the replay
gradient g and the parameters θ̃ that the optimizer would reach with it, and follows

    g + ∇_θ λ mean over anchors and outputs of (f(e; θ̃) − f(e; θ))².

After a task, θ_M is the network after one step (per epoch) on a batch of the memory. Each new class
y starts from an image of uniform noise and takes k steps of gradient descent on

    −loss(e, y; θ_M) + loss(e, y; θ) + γ ‖φ(e; θ) − φ̄‖²,

where φ are features and φ̄ their running mean over the task's batches, with factor β. The memory is
a ring: the last samples of each task, the same number for each. Replay is that of
`experience_replay`.

Equal to the code of Buzzega et al. 2020 (hastings24/rethinking_er, `hal.py` with `--iba`) at the
gradient of a step, the running mean, the ring and the anchors from given noise; differs in six
points. In the official code θ shares its memory with θ_M, so the step on the memory changes both,
the two losses cancel, and anchors approach the mean features alone; in everlight θ stays, as in the
paper. Anchors pass the network in evaluation mode, in the official code in training mode. In the
official code these passes and that for φ̄ also change the batch statistics; without batch
statistics and dropout all is the same. The optimizer steps once on the sum; that of the official
code first steps to θ̃ and keeps that step's momentum, if it has any. The losses run over the
classes that the objective counts, in the official code over all outputs. Only a task's new classes
have anchors; in the official code all of its classes have new ones, also those that come again. The
official code replays samples as they were augmented when they arrived, unless `--iba` augments them
again, as everlight does.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeInt, PositiveFloat, PositiveInt, ProperFraction, checked
from everlight.continual.engine.updates import optimizer_step
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.memory import arrived, draw_batch, empty_buffer, fill_up
from everlight.continual.strategies.parts.passes import (
    batch_outputs,
    evaluation_outputs,
    task_gradient,
    weighted_mean,
)
from everlight.continual.strategies.parts.replayed import joint_gradient
from everlight.errors import ArgumentError


class AnchorMemory(NamedTuple):
    """Memory of hindsight anchor learning."""

    samples: Samples
    task: Int[Array, ""]
    """Number of the current task, whose part of the ring is written."""
    arrived: Int[Array, ""]
    """Number of samples of the task that have arrived."""
    features: Float[Array, "f"]
    """Running mean of the task's features."""
    anchors: Float[Array, "c *shape"]
    """Anchor of each class; 0 for classes without one."""
    has_anchor: Bool[Array, "c"]


@checked
def hal(
    setup: Setup,
    tasks: PositiveInt,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = None,
    regularization: Coefficient = 0.1,
    mean_decay: ProperFraction = 0.5,
    feature_weight: Coefficient = 0.1,
    anchor_steps: NonNegativeInt = 100,
    anchor_learning_rate: PositiveFloat = 0.03,
    finetuning_steps: NonNegativeInt = 1,
    finetuning_batch_size: PositiveInt = 10,
    labels: PositiveInt = 1,
) -> Strategy:
    """Return hindsight anchor learning (HAL), whose memory is `AnchorMemory`.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: number of tasks in the sequence.
      buffer_size: number of stored samples; each task has an equal part, rounded down.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      regularization: coefficient λ of the anchors' squared change.
      mean_decay: factor β of the running mean of features, less than 1.
      feature_weight: coefficient γ of the distance to that mean.
      anchor_steps: number k of steps that find an anchor.
      anchor_learning_rate: learning rate of these steps; the authors take the network's.
      finetuning_steps: steps on the memory that lead to θ_M; the optimizer restarts.
      finetuning_batch_size: samples of such a step; the authors take the incoming batch's number.
      labels: labels per sample in the sequence; an anchor has one.

    Raises:
      ValueError: the memory has fewer samples than tasks.
    """
    part = buffer_size // tasks
    if part == 0:
        raise ArgumentError(
            f"buffer_size {buffer_size} is below the number of tasks {tasks}; give {tasks} or more"
        )

    def init(key: PRNGKeyArray, learner: Learner) -> AnchorMemory:
        classes = learner.seen.shape[0]
        one = setup.input_shape
        width, dtype = feature_width(setup, learner)
        return AnchorMemory(
            empty_buffer(part * tasks, labels),
            jnp.int32(0),
            jnp.int32(0),
            jnp.zeros(width, dtype),
            jnp.zeros((classes, *one.shape[1:]), one.dtype),
            jnp.zeros(classes, bool),
        )

    def draw(memory: AnchorMemory, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        size = replay_batch_size or batch.index.shape[0]
        # A task of few samples leaves its part with empty slots before those of later tasks.
        return fill_up(draw_batch(memory.samples, size, key), batch)

    def grads(
        memory: AnchorMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = joint_gradient(setup, learner, batch, key)
        lookahead = optimizer_step(setup, learner, gradient)
        anchored = anchor_gradient(setup, memory, learner, lookahead, regularization)
        return jax.tree.map(jnp.add, gradient, anchored), info

    def after_step(
        memory: AnchorMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[AnchorMemory, Learner]:
        incoming = info.batch._replace(replay=())
        outputs, _ = batch_outputs(setup, learner.params, learner, incoming, key)
        mean = mean_of_features(outputs.features, incoming)
        features = mean_decay * memory.features + (1 - mean_decay) * mean
        after = add_to_part(memory, arrived(info), part)
        return after._replace(features=features), learner

    def end_task(
        memory: AnchorMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[AnchorMemory, Learner]:
        key_noise, key_finetuning = jax.random.split(key)
        noise = jax.random.uniform(key_noise, memory.anchors.shape, memory.anchors.dtype)
        finetuned = finetune(
            setup,
            learner,
            memory.samples,
            steps=finetuning_steps,
            batch_size=finetuning_batch_size,
            key=key_finetuning,
        )
        label = jnp.full((noise.shape[0], labels), -1).at[:, 0].set(anchor_classes(task))
        objective = partial(
            anchor_objective,
            setup,
            learner,
            finetuned,
            mean_features=memory.features,
            labels=label,
            feature_weight=feature_weight,
        )
        new_anchors = descend(objective, noise, steps=anchor_steps, rate=anchor_learning_rate)
        new = task.classes.reshape(-1, *[1] * (noise.ndim - 1))
        anchors = jnp.where(new, new_anchors, memory.anchors)
        has_anchor = memory.has_anchor | task.classes
        return memory._replace(anchors=anchors, has_anchor=has_anchor), learner

    return naive(setup)._replace(
        init=init,
        begin_task=open_part,
        draw=draw,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        tasks=tasks,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )


def open_part(
    memory: AnchorMemory, learner: Learner, task: Task, key: PRNGKeyArray
) -> tuple[AnchorMemory, Learner]:
    """Return the memory whose part for a task that begins is written from its first slot on."""
    features = jnp.zeros_like(memory.features)
    number = task.id.astype(jnp.int32)
    return memory._replace(task=number, arrived=jnp.int32(0), features=features), learner


def mean_of_features(features: Float[Array, "b f"], batch: Batch) -> Float[Array, "f"]:
    """Return the mean features of a batch's samples of weight 1; 0 without any."""
    weight = batch.weight[:, None]
    return jnp.sum(weight * features, axis=0) / jnp.maximum(jnp.sum(weight), 1)


def anchor_gradient(
    setup: Setup, memory: AnchorMemory, learner: Learner, lookahead: Learner, regularization: float
) -> PyTree:
    """Return the gradient of λ · mean over anchors of the squared change of their outputs.

    Args:
      setup: network, objective, optimizer and data access.
      memory: the anchors.
      learner: learner before the step.
      lookahead: learner after a step on the samples alone, which is not differentiated.
      regularization: coefficient λ.
    """
    reached = evaluation_outputs(setup, lookahead, memory.anchors).logits

    def change(params: PyTree) -> Float[Array, ""]:
        now = evaluation_outputs(setup, learner._replace(params=params), memory.anchors).logits
        away = jnp.mean((reached - now) ** 2, axis=1)
        return regularization * weighted_mean(away, memory.has_anchor.astype(now.dtype))

    return jax.grad(change)(learner.params)


def add_to_part(memory: AnchorMemory, new: Samples, part: int) -> AnchorMemory:
    """Return the memory with new samples in the task's part, a ring of `part` slots."""
    number = memory.arrived + jnp.cumsum(new.mask) - 1
    # The last samples of a batch stay if it is larger than a task's part.
    count = jnp.sum(new.mask, dtype=memory.arrived.dtype)
    stays = new.mask & (number >= memory.arrived + count - part)
    slot = jnp.where(stays, memory.task * part + number % part, memory.samples.mask.shape[0])
    samples = jax.tree.map(lambda old, row: old.at[slot].set(row, mode="drop"), memory.samples, new)
    return memory._replace(samples=samples, arrived=memory.arrived + count)


def finetune(
    setup: Setup,
    learner: Learner,
    samples: Samples,
    *,
    steps: int,
    batch_size: int,
    key: PRNGKeyArray,
) -> Learner:
    """Return the learner after steps of a new optimizer on batches drawn from the samples."""
    learner = learner._replace(opt_state=setup.optimizer.init(learner.params))
    for number in range(steps):
        key_draw, key_step = jax.random.split(jax.random.fold_in(key, number))
        batch = draw_batch(samples, batch_size, key_draw)
        key_inputs, key_pass = jax.random.split(key_step)
        batch = batch._replace(inputs=setup.gather(batch.index, key_inputs))
        gradient, _ = task_gradient(setup, learner, batch, key_pass)
        learner = optimizer_step(setup, learner, gradient)
    return learner


def anchor_classes(task: Task) -> Int[Array, "c"]:
    """Return the class that each anchor is sought for, the first one of the task for other classes.

    Anchors of other classes are dropped; a seen label keeps their losses finite.
    """
    number = jnp.arange(task.classes.shape[0])
    return jnp.where(task.classes, number, jnp.argmax(task.classes))


def anchor_objective(
    setup: Setup,
    learner: Learner,
    finetuned: Learner,
    anchors: Float[Array, "c *shape"],
    *,
    mean_features: Float[Array, "f"],
    labels: Int[Array, "c k"],
    feature_weight: float,
) -> Float[Array, ""]:
    """Return γ times the distances to the mean features, less what finetuning forgets, summed."""

    def loss(net: Learner) -> Float[Array, "c"]:
        outputs = evaluation_outputs(setup, net, anchors)
        return setup.objective.loss(outputs, labels, learner.seen)

    features = evaluation_outputs(setup, learner, anchors).features
    away = jnp.sum((features - mean_features) ** 2, axis=1)
    return jnp.sum(feature_weight * away - (loss(finetuned) - loss(learner)))


def descend(
    objective: Callable[[Float[Array, "c *shape"]], Float[Array, ""]],
    start: Float[Array, "c *shape"],
    *,
    steps: int,
    rate: float,
) -> Float[Array, "c *shape"]:
    """Return inputs after steps of gradient descent on an objective."""

    def step(inputs: Float[Array, "c *shape"], _: None) -> tuple:
        return inputs - rate * jax.grad(objective)(inputs), None

    return jax.lax.scan(step, start, None, length=steps)[0]


METHODS = (
    Method(
        "HAL",
        hal,
        Publication("Chaudhry et al.", 2021, "AAAI", ("samples", "statistics")),
        "hindsight anchor learning (HAL)",
        derived=lambda arguments: {
            "buffer_size": max(arguments.total_buffer_size, arguments.tasks)
        },
        requirements=SINGLE_LABEL_SCORES,
        planned_total="tasks",
    ),
)
