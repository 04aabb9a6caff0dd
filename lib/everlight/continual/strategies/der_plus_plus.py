"""Dark experience replay with labels (DER++; Buzzega et al. 2020, NeurIPS).

    L = CE(batch) + α · mean ‖z(x') − z'‖² / c + β · CE(x'', y'')

x' and x'' are two draws of equal size from a reservoir, each without replacement. z are the logits
of all c outputs, z' those stored with x' when it arrived. As in the authors' code, all three passes
run in training mode, one after another. At every step of every epoch the batch enters the
reservoir: its samples, augmented anew when replayed, and the logits of the augmented inputs before
the step. A sample may therefore be held more than once, with logits of different times. The method
needs no task boundaries.

The paper has, on CIFAR-10 with 200, 500 and 5,120 samples, α = 0.1, 0.2, 0.1 and β = 0.5, 0.5, 1.

Equal to the official code (aimagelab/mammoth, `derpp.py`) at the gradient of a step and at the
stored logits, with `loss_over="all"`; differs by default, where the cross-entropies run over the
seen classes.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Learner,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import PositiveInt, checked
from everlight.continual.strategies.balanced_replay import (
    replayed_loss,
    replayed_outputs,
    with_all_seen,
)
from everlight.continual.strategies.memory import (
    add_to_reservoir,
    arrived,
    batch_at,
    draw_reservoir,
    empty_buffer,
    fill_up,
)
from everlight.continual.strategies.naive import batch_loss, naive, weighted_mean


class DarkReservoir(NamedTuple):
    """Memory of DER++."""

    samples: Samples
    logits: Float[Array, "m c"]
    """Logits of each sample at its arrival."""
    arrived: Int[Array, ""]


class TwoDraws(NamedTuple):
    """Batches that a step replays."""

    matched: Batch
    """Batch whose logits are matched to the stored `logits`."""
    logits: Float[Array, "b c"]
    labelled: Batch
    """Batch whose labels enter the cross-entropy."""


@checked
def der_plus_plus(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    alpha: Coefficient = 0.1,
    beta: Coefficient = 0.5,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return dark experience replay with labels (DER++), whose memory is `DarkReservoir`.

    With `beta` 0 it is the paper's DER, except for batch statistics: the second draw, which DER
    lacks, still passes the network in training mode.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      alpha: coefficient α of the squared distance of logits.
      beta: coefficient β of the replayed batch's cross-entropy.
      labels: labels per sample in the sequence.
      replay_batch_size: samples per draw, at most the stored ones; None is the size of the incoming
        batch.
      loss_over: classes of both cross-entropies: the seen ones, or all outputs of the head, as in
        the authors' code.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> DarkReservoir:
        logits = jnp.zeros((buffer_size, learner.seen.shape[0]))
        return DarkReservoir(empty_buffer(buffer_size, labels), logits, jnp.int32(0))

    def draw(memory: DarkReservoir, batch: Batch, task: Task, key: PRNGKeyArray) -> TwoDraws:
        key_matched, key_labelled = jax.random.split(key)
        held, size = memory.samples, replay_batch_size or batch.index.shape[0]
        matched, labelled = (
            draw_reservoir(memory.arrived, held.mask.shape[0], size, key)
            for key in (key_matched, key_labelled)
        )
        slots, _ = matched
        return TwoDraws(
            fill_up(batch_at(held, *matched), batch),
            memory.logits[slots],
            fill_up(batch_at(held, *labelled), batch),
        )

    def grads(
        memory: DarkReservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        matched, logits, labelled = batch.replay
        key_own, key_matched, key_labelled = jax.random.split(key, 3)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            own, (outputs, stats) = batch_loss(setup, params, learner, batch, key_own)
            after = learner._replace(batch_stats=stats)
            now, stats = replayed_outputs(setup, params, after, matched, key_matched)
            away = weighted_mean(jnp.mean((now.logits - logits) ** 2, axis=1), matched.weight)
            after = learner._replace(batch_stats=stats)
            kept, stats = replayed_loss(setup, params, after, labelled, key_labelled)
            return own + alpha * away + beta * kept, (own, outputs.logits, stats)

        gradient, (own, own_logits, stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, own, own_logits)

    def after_step(
        memory: DarkReservoir, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[DarkReservoir, Learner]:
        new = arrived(info)
        rows, count = add_to_reservoir(
            (memory.samples, memory.logits), memory.arrived, (new, info.aux), new.mask, key
        )
        return DarkReservoir(*rows, count), learner

    return naive(setup)._replace(
        init=init,
        draw=draw,
        grads=grads,
        after_step=after_step,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )
