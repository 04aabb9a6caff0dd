"""Synaptic intelligence (Zenke et al. 2017, ICML).

    L(θ) = L_task(θ) + c Σ_k Ω_k (θ_k − θ*_k)²,   Ω_k = Σ_t ω_{t,k} / ((Δθ_{t,k})² + ξ)

ω_{t,k} is the path integral of −∂L_task/∂θ_k · dθ_k over task t, with the gradient of the task loss
alone. Δθ_{t,k} is the parameter's change over the task. A negative ω counts as 0, so that Ω never
falls. The paper has c = 0.1 on split CIFAR and ξ = 1e-3; its code has ξ = 0.1 on permuted MNIST.

Equal to the official code (ganguli-lab/pathint) at ω, at the penalty's gradient, and at Ω where no
ω is negative; differs where one is: in the official code it lowers the Ω of earlier tasks, at most
to 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from everlight.base import Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    no_anchors,
    penalized,
    single_anchor,
)


class PathIntegral(NamedTuple):
    """Memory of SI."""

    sums: QuadraticSums
    path: PyTree
    """Path integral ω of the current task so far."""
    start: PyTree
    """Parameters at the start of the task."""


@checked
def si(
    setup: Setup,
    regularization: Coefficient,
    damping: PositiveFloat = 1e-3,
    implicit_rate: Coefficient | None = None,
) -> Strategy:
    """Return synaptic intelligence (SI), whose memory is `PathIntegral`.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient c of the penalty.
      damping: damping ξ in the denominator of Ω.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty. They are
        stable at any regularization (`quadratic.penalized`). None is the paper's explicit step.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> PathIntegral:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return PathIntegral(no_anchors(learner.params), zeros, learner.params)

    def begin_task(
        memory: PathIntegral, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[PathIntegral, Learner]:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return memory._replace(path=zeros, start=learner.params), learner

    def after_step(
        memory: PathIntegral, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[PathIntegral, Learner]:
        path = jax.tree.map(
            lambda so_far, gradient, update: so_far - gradient * update,
            memory.path,
            info.task_gradient,
            info.update,
        )
        return memory._replace(path=path), learner

    def end_task(
        memory: PathIntegral, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[PathIntegral, Learner]:
        importance = jax.tree.map(
            lambda old, path, end, start: (
                old + jnp.maximum(path, 0) / ((end - start) ** 2 + damping)
            ),
            memory.sums.importance,
            memory.path,
            learner.params,
            memory.start,
        )
        return memory._replace(sums=single_anchor(importance, learner.params)), learner

    free = naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        after_step=after_step,
        end_task=end_task,
        parameter_copies=2,
    )
    return penalized(setup, free, regularization, lambda memory: memory.sums, implicit_rate)


METHODS = (
    Method(
        "SI",
        si,
        Publication("Zenke et al.", 2017, "ICML", ("old net", "statistics")),
        "synaptic intelligence (SI)",
        tunes="regularization",
        hyperparameters=(0.01, 0.1, 1, 10, 100),
        published=0.1,
        authors={"regularization": 0.1, "damping": 0.001, "penalty's step": "explicit"},
        takes_targets=True,
    ),
)
