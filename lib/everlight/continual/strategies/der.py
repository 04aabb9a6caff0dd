"""Dark experience replay (DER; Buzzega et al. 2020, NeurIPS).

    L = CE(batch) + α · mean ‖z(x') − z'‖² / c

x' is a draw without replacement from a reservoir. z are the logits of all c outputs, z' those
stored with x' when it arrived. The labels of replayed samples are not used. As in the authors'
code, both passes run in training mode, one after another. At every step of every epoch the batch
enters the reservoir: its samples, augmented again when replayed, and the logits of the augmented
inputs before the step. A sample may therefore be held more than once, with logits of different
times. The method needs no task boundaries.

The authors' code sets α = 0.3 on CIFAR-10 with 200, 500 and 5,120 samples, and on split MNIST
α = 0.2, 1 and 0.5.

The cross-entropy runs over all outputs of the head. It lowers the logits of classes to come, and
the stored logits then keep these low on old samples while later tasks raise them. Over the seen
classes alone, stored logits of later classes would stay as they were drawn.

Equal to the official code (aimagelab/mammoth, `der.py`) at the gradient of a step and at the stored
logits.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.memory import (
    add_to_reservoir,
    arrived,
    draw_from_reservoir,
    empty_buffer,
)
from everlight.continual.strategies.parts.passes import batch_loss, weighted_mean
from everlight.continual.strategies.parts.replayed import replayed_outputs, with_all_seen


class DarkReservoir(NamedTuple):
    """Memory of DER and DER++."""

    samples: Samples
    logits: Float[Array, "m c"]
    """Logits of each sample at its arrival."""
    arrived: Int[Array, ""]


class DarkDraw(NamedTuple):
    """Batch that a step replays, and the logits stored with its samples."""

    matched: Batch
    logits: Float[Array, "b c"]


@checked
def der(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    alpha: Coefficient = 0.3,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "all",
) -> Strategy:
    """Return dark experience replay (DER), whose memory is `DarkReservoir`.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      alpha: coefficient α of the squared distance of logits.
      labels: labels per sample in the sequence.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      loss_over: classes of the cross-entropy: all outputs of the head, as in the authors' code, or
        the seen ones.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> DarkReservoir:
        logits = jnp.zeros((buffer_size, learner.seen.shape[0]))
        return DarkReservoir(empty_buffer(buffer_size, labels), logits, jnp.int32(0))

    def draw(memory: DarkReservoir, batch: Batch, task: Task, key: PRNGKeyArray) -> DarkDraw:
        size = replay_batch_size or batch.index.shape[0]
        drawn = draw_from_reservoir(memory.samples, memory.arrived, size, batch, key)
        return DarkDraw(drawn.batch, memory.logits[drawn.slots])

    def grads(
        memory: DarkReservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        key_batch, key_matched = jax.random.split(key)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            task_loss, (outputs, stats) = batch_loss(setup, params, learner, batch, key_batch)
            after = learner._replace(batch_stats=stats)
            away, stats = logit_distance(setup, params, after, batch.replay, key_matched)
            return task_loss + alpha * away, (task_loss, outputs.logits, stats)

        gradient, (task_loss, task_logits, stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, task_loss, task_logits)

    def after_step(
        memory: DarkReservoir, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[DarkReservoir, Learner]:
        new = arrived(info)
        (samples, logits), count = add_to_reservoir(
            (memory.samples, memory.logits), memory.arrived, (new, info.aux), new.mask, key
        )
        return DarkReservoir(samples, logits, count), learner

    return naive(setup)._replace(
        init=init,
        draw=draw,
        grads=grads,
        after_step=after_step,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )


def logit_distance(
    setup: Setup, params: PyTree, learner: Learner, drawn: DarkDraw, key: PRNGKeyArray
) -> tuple[Float[Array, ""], PyTree]:
    """Return the mean squared distance of a draw's logits to the stored ones, and batch statistics.

    The mean runs over samples and outputs; it is 0 for an empty memory.
    """
    now, stats = replayed_outputs(setup, params, learner, drawn.matched, key)
    squares = jnp.mean((now.logits - drawn.logits) ** 2, axis=1)
    return weighted_mean(squares, drawn.matched.weight), stats


METHODS = (
    Method(
        "DER",
        der,
        Publication("Buzzega et al.", 2020, "NeurIPS", ("samples",)),
        "dark experience replay (DER)",
        requirements=("class scores",),
        authors={
            "alpha": 0.3,
            "loss_over": "all",
            "replay_batch_size": 32,
            "batch size": 32,
            "epochs per task": 50,
        },
    ),
)
