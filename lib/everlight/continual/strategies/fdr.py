"""Function distance regularization (FDR; Benjamin et al. 2019, ICLR).

    first step:   L = CE(batch)
    second step:  L = λ · mean over x' of ‖p(x') − p'‖

p are the probabilities of all outputs, the softmax of the logits; p' are those of a stored sample
x' at the end of its task. ‖·‖ is the Euclidean length, not its square. Every batch has two steps of
the optimizer, each with the gradient of one loss. So the second one corrects, by the distance of
functions, what the first one changed. With momentum each step also repeats a part of the other;
Mammoth's runs have none. The second step draws x' without replacement, in a pass of training mode.
The first task has the first step alone. At the end of task t the memory of m slots has an equal
part for each task so far, m // t random samples of it. Earlier tasks give up the last of theirs.

As in DER, the cross-entropy runs over all outputs of the head.

Equal to Mammoth (aimagelab/mammoth, `fdr.py`), the common code, at both steps on a batch for given
stored probabilities, at λ = 1; differs in:

- The stored p' are those of images as they are, in evaluation mode; in the official code those of
  augmented ones in training mode, which also change the batch statistics.
- At the end of task t that code divides the slots by t − 1 (by 1 at the first two), and a reservoir
  drops the excess, so that earlier tasks have parts of random sizes.
- That code demands a coefficient, `alpha`, which no line of it uses.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Epoch,
    Learner,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import PositiveInt, checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.epochs import shuffle
from everlight.continual.engine.evaluation import map_samples
from everlight.continual.engine.updates import optimizer_step
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.memory import (
    batch_at,
    draw_slots,
    empty_buffer,
    fill_up,
)
from everlight.continual.strategies.parts.passes import (
    batch_outputs,
    evaluation_outputs,
    task_gradient,
    weighted_mean,
)
from everlight.continual.strategies.parts.replayed import with_all_seen


class FunctionMemory(NamedTuple):
    """Memory of FDR, whose slots are in the order of tasks."""

    samples: Samples
    probabilities: Float[Array, "m c"]
    """Probabilities of each sample at the end of its task."""


class FunctionDraw(NamedTuple):
    """Batch that a step draws, and the probabilities stored with its samples."""

    matched: Batch
    probabilities: Float[Array, "b c"]


@checked
def fdr(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    regularization: Coefficient = 1.0,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "all",
) -> Strategy:
    """Return function distance regularization (FDR), whose memory is `FunctionMemory`.

    A sample has one label.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples; each task so far has an equal part, rounded down.
        Beyond as many tasks as samples, later tasks store none.
      regularization: coefficient λ of the second step's loss.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      loss_over: classes of the cross-entropy: all outputs of the head, as in Mammoth, or the seen
        ones.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> FunctionMemory:
        probabilities = jnp.zeros((buffer_size, learner.seen.shape[0]))
        return FunctionMemory(empty_buffer(buffer_size, 1), probabilities)

    def draw(memory: FunctionMemory, batch: Batch, task: Task, key: PRNGKeyArray) -> FunctionDraw:
        size = replay_batch_size or batch.index.shape[0]
        # A part that a task does not fill, and the rest of the division, are empty.
        slots, weight = draw_slots(memory.samples.mask, size, key)
        drawn = fill_up(batch_at(memory.samples, slots, weight), batch)
        return FunctionDraw(drawn, memory.probabilities[slots])

    def grads(
        memory: FunctionMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        return task_gradient(setup, learner, batch, key)

    def after_step(
        memory: FunctionMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[FunctionMemory, Learner]:
        drawn = info.batch.replay

        def corrected() -> Learner:
            differentiate = jax.grad(
                lambda params: function_distance(setup, params, learner, drawn, key), has_aux=True
            )
            gradient, batch_stats = differentiate(learner.params)
            gradient = jax.tree.map(lambda leaf: regularization * leaf, gradient)
            after = learner._replace(batch_stats=batch_stats)
            return optimizer_step(setup, after, gradient)

        is_held = jnp.any(drawn.matched.weight > 0)
        return memory, where_under_vmap(is_held, corrected, learner)

    def end_task(
        memory: FunctionMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[FunctionMemory, Learner]:
        new = chosen_samples(task, buffer_size, key)

        def probabilities(inputs: Float[Array, "s *shape"]) -> Float[Array, "s c"]:
            return jax.nn.softmax(evaluation_outputs(setup, learner, inputs).logits)

        stored = FunctionMemory(new, map_samples(setup, probabilities, new, size=256))
        return with_task(memory, stored, task.id.astype(jnp.int32)), learner

    return naive(setup)._replace(
        init=init,
        draw=draw,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )


def function_distance(
    setup: Setup, params: PyTree, learner: Learner, drawn: FunctionDraw, key: PRNGKeyArray
) -> tuple[Float[Array, ""], PyTree]:
    """Return the mean distance of a draw's probabilities to the stored ones, and batch statistics.

    Equal probabilities have the distance 0 with the gradient 0.
    """
    outputs, batch_stats = batch_outputs(setup, params, learner, drawn.matched, key)
    away = jax.nn.softmax(outputs.logits) - drawn.probabilities
    squares = jnp.sum(away**2, axis=1)
    differ = squares > 0
    lengths = jnp.where(differ, jnp.sqrt(jnp.where(differ, squares, 1)), 0)
    return weighted_mean(lengths, drawn.matched.weight), batch_stats


def part_size(slots: int, tasks: Int[Array, ""]) -> Int[Array, ""]:
    """Return the number of slots of each task, at least 1."""
    return jnp.maximum(slots // jnp.maximum(tasks, 1), 1)


def chosen_samples(task: Task, slots: int, key: PRNGKeyArray) -> Samples:
    """Return random samples of a task for its part of a memory; those after the part are masked."""
    epoch = shuffle(Epoch(task.train, jnp.zeros_like(task.train.mask)), key)
    position = jnp.arange(slots)
    chosen = epoch.slots[position % jnp.maximum(epoch.count, 1)]
    size = jnp.minimum(epoch.count, part_size(slots, task.id + 1))
    return Samples(task.train.index[chosen], task.train.labels[chosen], position < size)


def with_task(memory: FunctionMemory, new: FunctionMemory, task: Int[Array, ""]) -> FunctionMemory:
    """Return the memory whose last part holds a task's samples; earlier parts keep their first.

    Args:
      memory: memory with a part for each earlier task.
      new: samples of the task in the first slots.
      task: number of the task, from 0.
    """
    slots = memory.samples.mask.shape[0]
    part, rank = jnp.divmod(jnp.arange(slots), part_size(slots, task + 1))
    earlier = jnp.minimum(part * part_size(slots, task) + rank, slots - 1)

    def merged(old: Array, fresh: Array) -> Array:
        is_earlier = (part < task).reshape(-1, *[1] * (old.ndim - 1))
        return jnp.where(is_earlier, old[earlier], fresh[rank])

    after = jax.tree.map(merged, memory, new)
    filled = after.samples.mask & (part <= task)
    return after._replace(samples=after.samples._replace(mask=filled))


METHODS = (
    Method(
        "FDR",
        fdr,
        Publication("Benjamin et al.", 2019, "ICLR", ("samples",)),
        "function distance regularization (FDR)",
        requirements=SINGLE_LABEL_SCORES,
    ),
)
