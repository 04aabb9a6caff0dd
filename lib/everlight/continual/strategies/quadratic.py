"""The penalty that EWC, SI, MAS and IMM share, each with its own importances, and steps on it.

    c Σ_k ω_k (θ − θ*_k)²,   Ω = Σ_k ω_k,   A = Σ_k ω_k θ*_k

The papers add its gradient 2c(Ωθ − A) to the task's. At a rate η that explicit step diverges where
η 2cΩ exceeds 2, or 2(1 + m) with momentum m, so that one stiff parameter limits the rate at which
all can learn. The implicit step takes the optimizer's step to θ' on the task's gradient alone, then
the penalty's proximal point

    θ = argmin_x c Σ_k ω_k (x − θ*_k)² + (x − θ')² / 2η = θ' − η 2c(Ωθ' − A) / (1 + η 2cΩ)

(Parikh and Boyd 2014, Proximal algorithms), which is exact since the penalty is diagonal, moves no
parameter beyond the anchors' mean whatever the regularization, and agrees with the explicit step to
first order in η. Where both stand still they do so at the same parameters.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.continual.base import (
    Batch,
    Coefficient,
    Learner,
    Memory,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.continual.engine.steps import trainable_part


class QuadraticSums(NamedTuple):
    """Σ_k ω_k and Σ_k ω_k θ*_k over the anchors so far.

    They give the gradient of Σ_k ω_k (θ − θ*_k)² exactly, in memory that does not grow with tasks.
    """

    importance: PyTree
    weighted_anchor: PyTree


def no_anchors(params: PyTree) -> QuadraticSums:
    """Sums over nothing."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return QuadraticSums(zeros, zeros)


def add_anchor(sums: QuadraticSums, importance: PyTree, params: PyTree) -> QuadraticSums:
    """The sums with one more anchor at `params`."""
    weighted = jax.tree.map(jnp.multiply, importance, params)
    return QuadraticSums(
        jax.tree.map(jnp.add, sums.importance, importance),
        jax.tree.map(jnp.add, sums.weighted_anchor, weighted),
    )


def single_anchor(importance: PyTree, params: PyTree) -> QuadraticSums:
    """The sums of one anchor."""
    return QuadraticSums(importance, jax.tree.map(jnp.multiply, importance, params))


def penalty_gradient(sums: QuadraticSums, params: PyTree) -> PyTree:
    """Gradient of Σ_k ω_k (θ − θ*_k)²: 2 (Σω θ − Σωθ*)."""
    return jax.tree.map(
        lambda importance, anchor, theta: 2 * (importance * theta - anchor),
        sums.importance,
        sums.weighted_anchor,
        params,
    )


def proximal_change(sums: QuadraticSums, params: PyTree, scale: Float[Array, ""]) -> PyTree:
    """What leads from the parameters to the proximal point of Σ_k ω_k (θ − θ*_k)².

    Args:
      sums: of the anchors.
      params: after the optimizer's step on the task alone.
      scale: η c above.
    """
    return jax.tree.map(
        lambda importance, gradient: -scale * gradient / (1 + 2 * scale * importance),
        sums.importance,
        penalty_gradient(sums, params),
    )


def penalised(
    setup: Setup,
    strategy: Strategy,
    coefficient: Coefficient,
    sums_of: Callable[[Memory], QuadraticSums],
    implicit_rate: Coefficient | None,
) -> Strategy:
    """The strategy, held near its anchors at every step.

    Args:
      setup: what is static.
      strategy: whose `grads` is the task's gradient; its `after_step`, where there is one, is told
        the whole change of the parameters.
      coefficient: c above.
      sums_of: the anchors, from the strategy's memory.
      implicit_rate: η above, for implicit steps; the schedule's factor is put to it. Of SGD it is
        the rate, divided by 1 − m where there is momentum m, since so far does a constant gradient
        carry in the end. Where the optimizer gives each parameter a rate of its own, one rate for
        all weighs the penalty differently against the task. None adds the penalty's gradient.
    """
    if implicit_rate is None:
        return strategy._replace(grads=_penalised_grads(strategy, coefficient, sums_of))

    def after_step(
        memory: Memory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        scale = implicit_rate * learner.schedule.factor * coefficient
        change = proximal_change(sums_of(memory), learner.params, scale)
        change = trainable_part(setup, learner.params, change)
        learner = learner._replace(params=optax.apply_updates(learner.params, change))
        if strategy.after_step is None:
            return memory, learner
        info = info._replace(update=jax.tree.map(jnp.add, info.update, change))
        return strategy.after_step(memory, learner, info, key)

    return strategy._replace(after_step=after_step)


def _penalised_grads(
    strategy: Strategy, coefficient: Coefficient, sums_of: Callable[[Memory], QuadraticSums]
) -> Callable[..., tuple[PyTree, StepInfo]]:
    """Return a `grads` that adds `coefficient` times the penalty's gradient to the strategy's."""

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = strategy.grads(memory, learner, batch, task, key)
        penalty = penalty_gradient(sums_of(memory), learner.params)
        total = jax.tree.map(lambda g, p: g + coefficient * p, gradient, penalty)
        return total, info

    return grads
