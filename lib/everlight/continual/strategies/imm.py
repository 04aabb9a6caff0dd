"""Incremental moment matching (Lee et al. 2017, NeurIPS).

    mean:  θ̄_T = Σ_t α_t θ_t            mode:  θ̄_T = Σ_t α_t F_t θ_t / Σ_t α_t F_t

θ_t are the parameters after task t and F_t its diagonal Fisher information there; tasks weigh
alike, α_t = 1/T. A task starts from the last one's own, unmerged solution (weight transfer) and is
held near it by λ ‖θ − θ_{t−1}‖² (L2 transfer); between tasks the merged network predicts.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Count, checked
from everlight.continual.base import Learner, Setup, Strategy, Strength, Task
from everlight.continual.engine.steps import shuffle, take_batch, with_inputs
from everlight.continual.strategies.importance import fisher_diagonal
from everlight.continual.strategies.naive import batch_outputs, naive
from everlight.continual.strategies.quadratic import (
    QuadraticSums,
    add_anchor,
    no_anchors,
    penalised,
    single_anchor,
)

FLOOR = 1e-8
"""Added to every Fisher information: parameters that matter to no task are averaged."""
STATISTICS_BATCH = 64
"""Samples a pass when batch statistics are estimated again."""


class Moments(NamedTuple):
    """IMM's memory."""

    sums: QuadraticSums
    """Σ F_t and Σ F_t θ_t, with F 1 for the mean."""
    transfer: QuadraticSums
    """The L2 transfer's anchor."""
    batch_stats: PyTree
    """Of the merged network."""
    merged: Bool[Array, ""]
    """Whether the merged network predicts: between tasks."""


@checked
def imm(
    setup: Setup,
    merge: Literal["mean", "mode"],
    strength: Strength = 0.0,
    fisher_samples: Count = 1024,
    implicit_rate: Strength | None = None,
) -> Strategy:
    """IMM, its memory being `Moments`; the learner's parameters are the unmerged ones.

    While a task is learnt, validation judges the network that learns it. Batch statistics of the
    merged network, where there are any, are estimated on the present task's samples: earlier ones
    are gone.

    Args:
      setup: what is static.
      merge: "mean" or "mode".
      strength: λ above; 0 is weight transfer alone.
      fisher_samples: at most so many of a task's samples, evenly spaced, estimate the Fisher.
      implicit_rate: the optimizer's rate, for implicit steps on the L2 transfer, stable at any
        strength (`quadratic.penalised`); None adds its gradient, as the paper does.

    Raises:
      ValueError: a merge that is neither.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Moments:
        nothing = no_anchors(learner.params)
        return Moments(nothing, nothing, learner.batch_stats, jnp.array(False))

    def begin_task(
        memory: Moments, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Moments, Learner]:
        return memory._replace(merged=jnp.array(False)), learner

    def end_task(
        memory: Moments, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Moments, Learner]:
        alike = jax.tree.map(jnp.ones_like, learner.params)
        weight = alike
        key_fisher, key_statistics = jax.random.split(key)
        if merge == "mode":
            fisher = fisher_diagonal(setup, learner, task.train, fisher_samples, key_fisher)
            weight = jax.tree.map(lambda leaf: leaf + FLOOR, fisher)
        sums = add_anchor(memory.sums, weight, learner.params)
        stats = _statistics(setup, learner._replace(params=_merge(sums)), task, key_statistics)
        transfer = single_anchor(alike, learner.params)
        return Moments(sums, transfer, stats, jnp.array(True)), learner

    def predict(
        memory: Moments, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        params, batch_stats = jax.tree.map(
            lambda ours, own: jnp.where(memory.merged, ours, own),
            (_merge(memory.sums), memory.batch_stats),
            (learner.params, learner.batch_stats),
        )
        outputs, _ = setup.apply(params, batch_stats, inputs, False, None)
        return setup.objective.scores(outputs)

    free = naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        predict=predict,
        # Without what is constant: the transfer's weights, and the mean's, which count tasks.
        parameter_copies=2 if merge == "mean" else 3,
    )
    return penalised(setup, free, strength, lambda memory: memory.transfer, implicit_rate)


def _merge(sums: QuadraticSums) -> PyTree:
    """The weighted mean of the anchors; NaN before the first, when nothing reads it."""
    return jax.tree.map(jnp.divide, sums.weighted_anchor, sums.importance)


def _statistics(setup: Setup, learner: Learner, task: Task, key: PRNGKeyArray) -> PyTree:
    """Batch statistics of a pass over the task's samples at the learner's parameters.

    What was there before has no share in them: a running average is affine in what it begins from,
    so one from 0 and one from 1 tell how much of that is left after the pass.
    """
    if not jax.tree.leaves(learner.batch_stats):
        return learner.batch_stats
    key_order, key_passes = jax.random.split(key)
    epoch = naive(setup).epoch_data((), task)
    order = shuffle(epoch, key_order)

    def pass_forward(step: Int[Array, ""], batch_stats: PyTree) -> PyTree:
        key_inputs, key_pass = jax.random.split(jax.random.fold_in(key_passes, step))
        batch = with_inputs(setup, take_batch(epoch, order, step, STATISTICS_BATCH), key_inputs)

        def updated(batch_stats: PyTree) -> PyTree:
            now = learner._replace(batch_stats=batch_stats)
            return batch_outputs(setup, now.params, now, batch, key_pass)[1]

        return jax.vmap(updated)(batch_stats)

    def is_average(leaf: Array) -> bool:
        return jnp.issubdtype(leaf.dtype, jnp.floating)

    def from_0_and_1(own: Array) -> Array:
        two = [jnp.zeros_like(own), jnp.ones_like(own)] if is_average(own) else [own, own]
        return jnp.stack(two)

    def without_beginning(passed: Array, own: Array) -> Array:
        if not is_average(own):
            return passed[0]
        left = passed[1] - passed[0]
        return jnp.where(left < 1, passed[0] / (1 - left), own)

    passes = -(-order.count // STATISTICS_BATCH)
    begun = jax.tree.map(from_0_and_1, learner.batch_stats)
    passed = jax.lax.fori_loop(0, passes, pass_forward, begun)
    return jax.tree.map(without_beginning, passed, learner.batch_stats)
