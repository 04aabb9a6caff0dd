"""Incremental moment matching (Lee et al. 2017, NeurIPS).

    mean:  θ̄_T = Σ_t α_t θ_t            mode:  θ̄_T = Σ_t α_t F_t θ_t / Σ_t α_t F_t

θ_t are the parameters after task t, F_t is its diagonal Fisher information at θ_t and α_t its
mixing ratio. Three transfer techniques connect one solution to the next. A task starts from the
last task's unmerged solution (weight transfer). The penalty λ ‖θ − θ_{t−1}‖² holds it near that
solution (L2 transfer). Dropout with that solution as its zero point (drop transfer) trains on

    θ'_i = θ_{t−1,i}  where unit i is dropped,  else  (θ_i − p θ_{t−1,i}) / (1 − p),

with θ_0 = 0, so that the first task has plain dropout. Between tasks the merged network predicts.

Equal to the official code (btjhjeon/IMM_tensorflow) at the mixing ratios, the merges, weight and L2
transfer from the second task on, and a true Fisher information from sampled labels; differs in:

- Drop transfer draws one mask per step, the code one per sample. The code drops inputs too.
- Without drop transfer, the code has plain dropout in all tasks. In everlight dropout is left to
  the network.
- The code's L2 transfer holds the first task near 0.
- With drop transfer, the code's L2 transfer penalizes ‖θ − 2 θ_{t−1}‖², since its weights are then
  differences from θ_{t−1}.
- The code's Fisher information sums squared gradients of means over B = 1,000 samples. Its
  expectation is N_t / B² times that of everlight, so a task also weighs by its number of samples
  N_t. Both add 1e-8 to keep it positive.
- The code merges once, after the last task.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Fisher, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, UnitInterval, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.importance import chosen_fisher, fisher_diagonal
from everlight.continual.strategies.parts.merging import merged_statistics
from everlight.continual.strategies.parts.passes import task_gradient
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    add_anchor,
    no_anchors,
    penalized,
    single_anchor,
)
from everlight.errors import Argument, ArgumentError

FLOOR = 1e-8
"""Constant added to every Fisher information: parameters that matter to no task are averaged."""
Merge = Literal["mean", "mode"]
"""Plain mean of the networks, or the mean weighted by their Fisher information."""
Ratio = UnitInterval | tuple[PositiveFloat, ...] | None
"""Mixing ratio of the last task, or one ratio per task; None weighs all tasks equally."""


class Moments(NamedTuple):
    """Memory of IMM."""

    sums: QuadraticSums
    """Σ α_t F_t and Σ α_t F_t θ_t; F is 1 for the mean. If `alpha` is one number, the sums leave
    out the last task and the others weigh 1."""
    last: QuadraticSums | tuple[()]
    """F_T and F_T θ_T of the last task if `alpha` is one number, otherwise empty."""
    tasks: Int[Array, ""]
    """Number of finished tasks."""
    transfer: QuadraticSums
    """Anchor of the L2 transfer."""
    batch_stats: PyTree
    """Batch statistics of the merged network."""
    merged: Bool[Array, ""]
    """True if the merged network predicts, as it does between tasks."""


@checked
def imm(
    setup: Setup,
    merge: Merge,
    regularization: Coefficient = 0.0,
    importance_samples: PositiveInt = 1024,
    implicit_rate: Coefficient | None = None,
    alpha: Ratio = None,
    dropout: UnitInterval = 0.0,
    fisher: Fisher = "true",
) -> Strategy:
    """Return incremental moment matching (IMM), whose memory is `Moments`.

    The learner's parameters are the unmerged ones, and validation during a task scores their
    network. Batch statistics of the merged network are estimated on the current task's samples,
    since earlier samples are not stored.

    Args:
      setup: network, objective, optimizer and data access.
      merge: "mean" or "mode".
      regularization: coefficient λ of the L2 transfer; 0 is weight transfer alone.
      importance_samples: maximal number of a task's samples, evenly spaced, that estimate the
        Fisher information.
      implicit_rate: learning rate of the optimizer, for implicit steps on the L2 transfer. They are
        stable at any regularization (`quadratic.penalized`). None is the paper's explicit step.
      alpha: mixing ratio of the last task; the earlier tasks share 1 − α equally, as in the
        official code. Or one ratio per task, normalized over the tasks so far. None is 1/T for
        every task, as the official code's default is for its three tasks.
      dropout: dropout probability p of the drop transfer, 0 to less than 1. A unit is an entry of
        the last axis of a layer's parameters, which share its mask. A layer named head is never
        dropped.
      fisher: "true" draws labels from the model, "expected" weighs all by its probabilities,
        "empirical" takes the data's; used by the mode.

    Raises:
      ValueError: `merge` is unknown; `dropout` is 1; `alpha` has no entries; or the mode needs the
        Fisher information and the objective has no `fisher_loss` or `label_losses` for it.
    """
    if dropout == 1:
        raise ArgumentError(
            Argument("dropout", 1.0), " would drop every unit", remedy=("give less than 1",)
        )
    if alpha == ():
        raise ArgumentError(
            Argument("alpha", ()),
            " has no mixing ratio",
            remedy=("give one per task, one number, or None",),
        )
    if merge == "mode":
        chosen_fisher(setup, fisher)

    def init(key: PRNGKeyArray, learner: Learner) -> Moments:
        nothing = no_anchors(learner.params)
        last = nothing if _keeps_last_task(alpha) else ()
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
                setup, learner, task.train, importance_samples, key_fisher, fisher=fisher
            )
            weight = jax.tree.map(lambda leaf: leaf + FLOOR, information)
        memory = _with_task(memory, weight, learner.params, alpha)
        now = learner._replace(params=_merge(memory, alpha))
        stats = merged_statistics(setup, now, task, key_statistics)
        transfer = single_anchor(alike, learner.params)
        return memory._replace(
            transfer=transfer, batch_stats=stats, merged=jnp.array(True)
        ), learner

    def grads(
        memory: Moments, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_units, key_gradient = jax.random.split(key)
        scale = unit_scales(learner.params, dropout, key_units)
        dropped = drop_transfer(learner.params, memory.transfer.weighted_anchor, scale)
        now = learner._replace(params=dropped)
        gradient, info = task_gradient(setup, now, batch, key_gradient)
        gradient = jax.tree.map(jnp.multiply, scale, gradient)
        return gradient, info._replace(task_gradient=gradient)

    def predict(
        memory: Moments, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        params, batch_stats = jax.tree.map(
            lambda merged, current: jnp.where(memory.merged, merged, current),
            (_merge(memory, alpha), memory.batch_stats),
            (learner.params, learner.batch_stats),
        )
        return plain.predict((), learner._replace(params=params, batch_stats=batch_stats), inputs)

    plain, copies = naive(setup), 2 if merge == "mean" else 3
    free = plain._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        predict=predict,
        # Constant weights are not counted: the L2 transfer's, and the mean's (numbers of tasks).
        parameter_copies=2 * copies - 1 if _keeps_last_task(alpha) else copies,
        tasks=len(alpha) if isinstance(alpha, tuple) else None,
    )
    if dropout > 0:
        free = free._replace(grads=grads)
    return penalized(setup, free, regularization, lambda memory: memory.transfer, implicit_rate)


def _with_task(memory: Moments, weight: PyTree, params: PyTree, alpha: Ratio) -> Moments:
    """Return the memory with one more anchor."""
    tasks = memory.tasks + 1
    if _keeps_last_task(alpha):
        sums = jax.tree.map(jnp.add, memory.sums, memory.last)
        return memory._replace(sums=sums, last=single_anchor(weight, params), tasks=tasks)
    if alpha is not None:
        ratio = jnp.asarray(alpha, jnp.float32)[memory.tasks]
        weight = jax.tree.map(lambda leaf: (ratio * leaf).astype(leaf.dtype), weight)
    return memory._replace(sums=add_anchor(memory.sums, weight, params), tasks=tasks)


def _merge(memory: Moments, alpha: Ratio) -> PyTree:
    """Return the weighted mean of the anchors; NaN before the first, when nothing reads it."""
    sums = memory.sums
    if _keeps_last_task(alpha):
        share = jnp.where(memory.tasks > 1, alpha, 1.0)
        other = (1 - share) / jnp.maximum(memory.tasks - 1, 1)

        def balance(earlier: Array, last: Array) -> Array:
            return (other * earlier + share * last).astype(last.dtype)

        sums = jax.tree.map(balance, sums, memory.last)
    return jax.tree.map(jnp.divide, sums.weighted_anchor, sums.importance)


def _keeps_last_task(alpha: Ratio) -> bool:
    """Return True if the ratio is that of the last task alone."""
    return not (alpha is None or isinstance(alpha, tuple))


def unit_scales(params: PyTree, dropout: float, key: PRNGKeyArray) -> PyTree:
    """Return a factor for every entry of each leaf's last axis: 0 if dropped, else 1 / (1 − p).

    Leaves of one layer and of one width share the factors. Factors of the layer named head are 1.

    Args:
      params: tree of parameters whose layers are subtrees.
      dropout: probability p of the factor 0.
      key: random key of the masks; each layer folds in its position in the tree.
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
            mask = jax.random.bernoulli(jax.random.fold_in(key, len(units)), 1 - dropout, unit[1])
            units[unit] = mask / (1 - dropout)
        scales.append(units[unit].astype(leaf.dtype))
    return jax.tree.unflatten(tree, scales)


def drop_transfer(params: PyTree, anchor: PyTree, scale: PyTree) -> PyTree:
    """Return θ_{t−1} + s (θ − θ_{t−1}): the anchor where a unit's scale s is 0."""
    return jax.tree.map(lambda new, old, s: old + s * (new - old), params, anchor, scale)


_MEAN = Method(
    "IMM mean",
    imm,
    Publication("Lee et al.", 2017, "NeurIPS", ("old net", "statistics")),
    "incremental moment matching (IMM): the mean of the networks",
    tunes="regularization",
    hyperparameters=(1e-3, 1e-2, 1e-1, 1),
    # The number of samples is the same on every benchmark.
    fixed={"merge": "mean", "importance_samples": 1024},
    requirements=("last weights",),
    authors={"penalty's step": "explicit"},
    takes_targets=True,
)
METHODS = (
    _MEAN,
    _MEAN._replace(
        name="IMM mode",
        fixed={**_MEAN.fixed, "merge": "mode"},
        summary="IMM: the mode, networks weighted by their Fisher information",
    ),
)
