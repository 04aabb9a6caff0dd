"""The quadratic penalty of EWC, SI, MAS and IMM, and explicit and implicit steps on it.

    c Σ_k ω_k (θ − θ*_k)²,   Ω = Σ_k ω_k,   A = Σ_k ω_k θ*_k

The papers add its gradient 2c(Ωθ − A) to the task's. At a learning rate η this explicit step
diverges if η 2cΩ exceeds 2, or 2(1 + m) with momentum m. One stiff parameter thus limits the
learning rate of all. The implicit step takes the optimizer's step to θ' on the task's gradient
alone, then the penalty's proximal point (Parikh and Boyd 2014, Proximal algorithms)

    θ = argmin_x c Σ_k ω_k (x − θ*_k)² + (x − θ')² / 2η = θ' − η 2c(Ωθ' − A) / (1 + η 2cΩ).

This is exact, since the penalty is diagonal. It moves no parameter beyond the anchors' mean at any
regularization, and agrees with the explicit step to first order in η. Both steps have the same
fixed points.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Memory, Setup, StepInfo, Strategy, Task
from everlight.continual.engine.updates import trainable_part


class QuadraticSums(NamedTuple):
    """Sums Σ_k ω_k and Σ_k ω_k θ*_k over the anchors so far.

    They give the exact gradient of Σ_k ω_k (θ − θ*_k)², in memory that does not grow with tasks.
    """

    importance: PyTree
    weighted_anchor: PyTree


def no_anchors(params: PyTree) -> QuadraticSums:
    """Return the sums without anchors, which are 0."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return QuadraticSums(zeros, zeros)


def add_anchor(sums: QuadraticSums, importance: PyTree, params: PyTree) -> QuadraticSums:
    """Return the sums with one more anchor at `params`."""
    weighted = jax.tree.map(jnp.multiply, importance, params)
    return QuadraticSums(
        jax.tree.map(jnp.add, sums.importance, importance),
        jax.tree.map(jnp.add, sums.weighted_anchor, weighted),
    )


def single_anchor(importance: PyTree, params: PyTree) -> QuadraticSums:
    """Return the sums of one anchor."""
    return QuadraticSums(importance, jax.tree.map(jnp.multiply, importance, params))


def penalty_gradient(sums: QuadraticSums, params: PyTree) -> PyTree:
    """Return the gradient of Σ_k ω_k (θ − θ*_k)², 2 (Σω θ − Σωθ*)."""
    return jax.tree.map(
        lambda importance, anchor, theta: 2 * (importance * theta - anchor),
        sums.importance,
        sums.weighted_anchor,
        params,
    )


def proximal_change(sums: QuadraticSums, params: PyTree, scale: Float[Array, ""]) -> PyTree:
    """Return the change from the parameters to the proximal point of Σ_k ω_k (θ − θ*_k)².

    Args:
      sums: sums over the anchors.
      params: parameters after the optimizer's step on the task alone.
      scale: product η c of learning rate and coefficient.
    """
    return jax.tree.map(
        lambda importance, gradient: -scale * gradient / (1 + 2 * scale * importance),
        sums.importance,
        penalty_gradient(sums, params),
    )


def penalized(
    setup: Setup,
    strategy: Strategy,
    coefficient: Coefficient,
    sums_of: Callable[[Memory], QuadraticSums],
    implicit_rate: Coefficient | None,
) -> Strategy:
    """Return the strategy with the quadratic penalty at every step.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy whose `grads` is the task's gradient. Its `after_step`, if any, receives
        the whole change of the parameters.
      coefficient: coefficient c of the penalty.
      sums_of: function from the strategy's memory to the sums over anchors.
      implicit_rate: learning rate η of implicit steps, multiplied by the schedule's factor. For SGD
        it is the optimizer's rate, divided by 1 − m with momentum m: the total step of a constant
        gradient. If the optimizer scales each parameter's rate, a single rate weighs penalty and
        task differently. None adds the penalty's gradient.
    """

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = strategy.grads(memory, learner, batch, task, key)
        penalty = penalty_gradient(sums_of(memory), learner.params)
        return jax.tree.map(lambda g, p: g + coefficient * p, gradient, penalty), info

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

    if implicit_rate is None:
        return strategy._replace(grads=grads)
    return strategy._replace(after_step=after_step)
