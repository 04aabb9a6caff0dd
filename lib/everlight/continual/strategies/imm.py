"""Incremental moment matching (Lee et al. 2017, NeurIPS).

    mean:  θ̄_T = Σ_t α_t θ_t            mode:  θ̄_T = Σ_t α_t F_t θ_t / Σ_t α_t F_t

θ_t are the parameters after task t, F_t is its diagonal Fisher information there and α_t its mixing
ratio. Three transfer techniques smooth the way from one solution to the next. A task starts from
the last one's own, unmerged solution (weight transfer). The penalty λ ‖θ − θ_{t−1}‖² holds it near
that solution (L2 transfer). Dropout with that solution as its zero point (drop transfer) trains on

    θ'_i = θ_{t−1,i}  where unit i is dropped,  else  (θ_i − p θ_{t−1,i}) / (1 − p),

with θ_0 = 0, so that the first task has plain dropout. Between tasks the merged network predicts.

Equal to the official code (btjhjeon/IMM_tensorflow) at the mixing ratios, the merges, weight and L2
transfer from the second task on, and a true Fisher information from sampled labels; differs in
six things. Drop transfer draws one mask per step, the code one per sample, and the code drops
inputs too. Without drop transfer, the code has plain dropout in all tasks, which here is left to
the network. The code's L2 transfer holds the first task near 0. With drop transfer, its L2 transfer
penalises ‖θ − 2 θ_{t−1}‖², since its weights are then differences from θ_{t−1}. Its Fisher
information sums squared gradients of means of B = 1,000 of all samples, in expectation N_t / B²
times the one here, so that a task weighs by its number of samples N_t too; what is added to keep it
positive, 1e-8, is the same number. The code merges once, after the last task.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import PositiveFloat, PositiveInt, UnitInterval, checked
from everlight.continual.base import (
    Batch,
    Coefficient,
    Fisher,
    Learner,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.continual.engine.steps import shuffle, take_batch, with_inputs
from everlight.continual.strategies.importance import chosen_fisher, fisher_diagonal
from everlight.continual.strategies.naive import batch_outputs, naive, task_gradient
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
Ratio = UnitInterval | tuple[PositiveFloat, ...] | None
"""The mixing ratio of the last task, one per task, or the same for all."""


class Moments(NamedTuple):
    """IMM's memory."""

    sums: QuadraticSums
    """Σ α_t F_t and Σ α_t F_t θ_t, with F 1 for the mean. Where `alpha` is one number, the last
    task is left out and the others weigh 1."""
    last: QuadraticSums | tuple[()]
    """F_T and F_T θ_T of the last task, where `alpha` is one number; else nothing."""
    tasks: Int[Array, ""]
    """The number of tasks that have ended."""
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
    regularization: Coefficient = 0.0,
    fisher_samples: PositiveInt = 1024,
    implicit_rate: Coefficient | None = None,
    alpha: Ratio = None,
    drop: UnitInterval = 0.0,
    fisher: Fisher = "true",
) -> Strategy:
    """IMM, its memory being `Moments`; the learner's parameters are the unmerged ones.

    While a task is learnt, validation judges the network that learns it. Batch statistics of the
    merged network, where there are any, are estimated on the present task's samples: earlier ones
    are gone.

    Args:
      setup: what is static.
      merge: "mean" or "mode".
      regularization: λ above; 0 is weight transfer alone.
      fisher_samples: at most so many of a task's samples, evenly spaced, estimate the Fisher.
      implicit_rate: the optimizer's rate, for implicit steps on the L2 transfer, stable at any
        regularization (`quadratic.penalised`); None adds its gradient, as the paper does.
      alpha: the mixing ratio of the last task, which the earlier ones share 1 − α of alike, as in
        the official code; or a ratio per task, whose sum over the tasks so far counts as 1. None is
        1/T for every task, as the official code's default is for its three tasks.
      drop: p above, 0 to less than 1. A unit is an entry of the last axis of a layer's parameters,
        which share its mask; the layer named head, if there is one, is never dropped.
      fisher: "true" draws labels from the model, "empirical" takes the data's; of the mode alone.

    Raises:
      ValueError: a merge that is neither; `drop` of 1; an `alpha` without entries; the mode with
        the true Fisher, where the objective has no `fisher_loss`.
    """
    if drop == 1:
        raise ValueError("drop=1.0 would drop every unit; give less than 1")
    if alpha == ():
        raise ValueError("alpha=() has no mixing ratio; give one per task, one number, or None")
    if merge == "mode":
        chosen_fisher(setup, fisher)

    def init(key: PRNGKeyArray, learner: Learner) -> Moments:
        nothing = no_anchors(learner.params)
        last = nothing if _of_last_task(alpha) else ()
        stats = learner.batch_stats
        return Moments(nothing, last, jnp.int32(0), nothing, stats, jnp.array(False))

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
            information = fisher_diagonal(
                setup, learner, task.train, fisher_samples, key_fisher, fisher=fisher
            )
            weight = jax.tree.map(lambda leaf: leaf + FLOOR, information)
        memory = _with_task(memory, weight, learner.params, alpha)
        now = learner._replace(params=_merge(memory, alpha))
        stats = _statistics(setup, now, task, key_statistics)
        transfer = single_anchor(alike, learner.params)
        return memory._replace(
            transfer=transfer, batch_stats=stats, merged=jnp.array(True)
        ), learner

    def grads(
        memory: Moments, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_units, key_gradient = jax.random.split(key)
        scale = unit_scales(learner.params, drop, key_units)
        dropped = drop_transfer(learner.params, memory.transfer.weighted_anchor, scale)
        now = learner._replace(params=dropped)
        gradient, info = task_gradient(setup, now, batch, key_gradient)
        gradient = jax.tree.map(jnp.multiply, scale, gradient)
        return gradient, info._replace(task_gradient=gradient)

    def predict(
        memory: Moments, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        params, batch_stats = jax.tree.map(
            lambda ours, own: jnp.where(memory.merged, ours, own),
            (_merge(memory, alpha), memory.batch_stats),
            (learner.params, learner.batch_stats),
        )
        outputs, _ = setup.apply(params, batch_stats, inputs, False, None)
        return setup.objective.scores(outputs)

    copies = 2 if merge == "mean" else 3
    free = naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        predict=predict,
        # Without what is constant: the transfer's weights, and the mean's, which count tasks.
        parameter_copies=2 * copies - 1 if _of_last_task(alpha) else copies,
        tasks=len(alpha) if isinstance(alpha, tuple) else None,
    )
    if drop > 0:
        free = free._replace(grads=grads)
    return penalised(setup, free, regularization, lambda memory: memory.transfer, implicit_rate)


def _with_task(memory: Moments, weight: PyTree, params: PyTree, alpha: Ratio) -> Moments:
    """Return the memory with one more anchor."""
    tasks = memory.tasks + 1
    if _of_last_task(alpha):
        sums = jax.tree.map(jnp.add, memory.sums, memory.last)
        return memory._replace(sums=sums, last=single_anchor(weight, params), tasks=tasks)
    if alpha is not None:
        ratio = jnp.asarray(alpha, jnp.float32)[memory.tasks]
        weight = jax.tree.map(lambda leaf: (ratio * leaf).astype(leaf.dtype), weight)
    return memory._replace(sums=add_anchor(memory.sums, weight, params), tasks=tasks)


def _merge(memory: Moments, alpha: Ratio) -> PyTree:
    """Return the weighted mean of the anchors; NaN before the first, when nothing reads it."""
    sums = memory.sums
    if _of_last_task(alpha):
        own = jnp.where(memory.tasks > 1, alpha, 1.0)
        other = (1 - own) / jnp.maximum(memory.tasks - 1, 1)

        def balance(earlier: Array, last: Array) -> Array:
            return (other * earlier + own * last).astype(last.dtype)

        sums = jax.tree.map(balance, sums, memory.last)
    return jax.tree.map(jnp.divide, sums.weighted_anchor, sums.importance)


def _of_last_task(alpha: Ratio) -> bool:
    """Return whether the ratio is that of the last task alone."""
    return not (alpha is None or isinstance(alpha, tuple))


def unit_scales(params: PyTree, drop: float, key: PRNGKeyArray) -> PyTree:
    """Return a factor for every entry of each leaf's last axis: 0 if dropped, else 1 / (1 − p).

    Leaves of one layer and of one width share the factors; those of the layer named head are 1.

    Args:
      params: a tree whose layers are subtrees.
      drop: p, the probability of 0.
      key: of the draws; a layer's own is folded in by its place in the tree.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    units: dict[tuple, Array] = {}
    scales = []
    for path, leaf in leaves:
        if getattr(path[0], "key", None) == "head":
            scales.append(jnp.ones(leaf.shape[-1:], leaf.dtype))
            continue
        unit = (path[:-1], leaf.shape[-1:])
        if unit not in units:
            kept = jax.random.bernoulli(jax.random.fold_in(key, len(units)), 1 - drop, unit[1])
            units[unit] = kept / (1 - drop)
        scales.append(units[unit].astype(leaf.dtype))
    return jax.tree.unflatten(tree, scales)


def drop_transfer(params: PyTree, anchor: PyTree, scale: PyTree) -> PyTree:
    """Return θ_{t−1} + s (θ − θ_{t−1}): the anchor where a unit's scale s is 0."""
    return jax.tree.map(lambda new, old, s: old + s * (new - old), params, anchor, scale)


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
