"""Maximally interfered retrieval (MIR; Aljundi et al. 2019, NeurIPS).

A virtual step on the incoming batch B gives θᵛ. Of C samples drawn from the memory, the k whose
loss rises most are replayed:

    θᵛ = θ + step(∇ mean over B of ℓ(θ)),   s(x) = ℓ(x; θᵛ) − ℓ(x; θ)
    L = mean over B of ℓ + mean over the k candidates of greatest s of ℓ

The step is the one that the optimizer would take; neither parameters nor optimizer keep it. Memory
and draws of candidates are those of `experience_replay`. The candidates pass twice in training
mode, and the replayed ones once more. Batch statistics see the incoming batch, the candidates
before the virtual step, and the replayed batch, in this order.

There are five candidates per replayed sample, as Mai et al. 2022 draw 50 and replay 10 of them per
batch of 10. One per replayed sample would be random replay, since all are replayed then.

Equal to the code of the survey of Mai et al. 2022, Neurocomputing (`mir_retrieve.py` in the loop of
`exp_replay.py` of RaptorMai/online-continual-learning), at the candidates' scores, the choice and
the gradient of a step, with `loss_over="all"` and plain gradient descent; differs in:

- The virtual step of the official code is the gradient times the learning rate, whatever the
  optimizer.
- By default the losses run over the seen classes, in the official code over all outputs.
- Candidates are augmented in everlight where the setup augments, and replayed as they were scored.
- The reservoir in the official code counts the arrivals before a batch for all of the batch.

The code of MIR's authors (optimass/Maximally_Interfered_Retrieval, `mir.py`) has the same scores on
CIFAR-10. It replays from the second task on and draws candidates only of earlier tasks. On MNIST
its score is the rise above the least loss of the candidate so far.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.updates import optimizer_step
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.memory import draw_from_reservoir
from everlight.continual.strategies.parts.passes import task_gradient
from everlight.continual.strategies.parts.replayed import (
    replayed_loss,
    replayed_outputs,
    with_all_seen,
)
from everlight.errors import Argument, ArgumentError


@checked
def mir(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    candidate_ratio: PositiveInt = 5,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return maximally interfered retrieval (MIR), whose memory is `Reservoir`.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      candidate_ratio: candidates per replayed sample, C / k, at least 2. All stored samples are
        candidates where they are fewer.
      labels: labels per sample in the sequence.
      replay_batch_size: number k of candidates that are replayed, at most all; None is the size of
        the incoming batch.
      loss_over: classes of all losses: the seen ones, or all outputs of the head, as in the
        authors' code.

    Raises:
      ValueError: `candidate_ratio` is 1.
    """
    if candidate_ratio < 2:
        raise ArgumentError(
            Argument("candidate_ratio", candidate_ratio),
            " replays every candidate, as `experience_replay` does",
            remedy=("give 2 or more",),
        )

    def draw(memory: Reservoir, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        size = candidate_ratio * (replay_batch_size or batch.index.shape[0])
        return draw_from_reservoir(memory.samples, memory.arrived, size, batch, key).batch

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        key_batch, key_score, key_replay = jax.random.split(key, 3)
        batch_gradient, info = task_gradient(setup, learner, batch, key_batch)
        lookahead = optimizer_step(setup, learner, batch_gradient).params
        after = learner._replace(batch_stats=info.batch_stats)
        drawn = batch.replay

        def losses(params: PyTree) -> tuple[Float[Array, "n"], PyTree]:
            outputs, batch_stats = replayed_outputs(setup, params, after, drawn, key_score)
            return setup.objective.loss(outputs, drawn.labels, learner.seen), batch_stats

        # Both passes have one key, so that dropout changes no score.
        now, batch_stats = losses(learner.params)
        rise = losses(lookahead)[0] - now
        chosen = most_interfered(drawn, rise, replay_batch_size or batch.index.shape[0])
        after = after._replace(batch_stats=batch_stats)
        differentiate = jax.grad(
            lambda params: replayed_loss(setup, params, after, chosen, key_replay), has_aux=True
        )
        replay_gradient, batch_stats = differentiate(learner.params)
        gradient = jax.tree.map(jnp.add, batch_gradient, replay_gradient)
        return gradient, StepInfo(gradient, batch_stats, info.loss)

    return experience_replay(setup, buffer_size, labels)._replace(draw=draw, grads=grads)


def most_interfered(drawn: Batch, rise: Float[Array, "n"], size: int) -> Batch:
    """Return the samples of a batch whose loss rises most, at most `size`; padding comes last.

    Args:
      drawn: candidates with their inputs.
      rise: increase of each candidate's loss.
      size: number of wanted samples.
    """
    _, rows = jax.lax.top_k(jnp.where(drawn.weight > 0, rise, -jnp.inf), min(size, rise.shape[0]))
    return jax.tree.map(lambda leaf: leaf[rows], drawn)


METHODS = (
    Method(
        "MIR",
        mir,
        Publication("Aljundi et al.", 2019, "NeurIPS", ("samples",)),
        "maximally interfered retrieval (MIR)",
        authors={
            "candidate_ratio": 5,
            "replay_batch_size": 10,
            "loss_over": "all",
            "batch size": 10,
            "epochs per task": 1,
        },
        takes_targets=True,
    ),
)
