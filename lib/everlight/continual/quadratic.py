"""The penalty that EWC, SI and MAS share: ω (θ − θ*)², each with its own importance ω."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from everlight.continual.base import Batch, Learner, Memory, Setup, StepInfo, Strength, Task
from everlight.continual.naive import task_gradient


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


def penalised_grads(
    setup: Setup, coefficient: Strength, sums_of: Callable[[Memory], QuadraticSums]
) -> Callable[..., tuple[PyTree, StepInfo]]:
    """A strategy's `grads`: the task's gradient plus `coefficient` times the penalty's."""

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = task_gradient(setup, learner, batch, key)
        penalty = penalty_gradient(sums_of(memory), learner.params)
        total = jax.tree.map(lambda g, p: g + coefficient * p, gradient, penalty)
        return total, info

    return grads
