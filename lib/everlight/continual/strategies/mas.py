"""Memory aware synapses (Aljundi et al. 2018, ECCV).

    L(θ) = L_task(θ) + λ Σ_k Ω_k (θ_k − θ*_k)²

Ω is the mean of |∂‖F(x)‖²/∂θ| over the inputs of each task, added up over tasks; the anchor θ* is
the last solution. `regularization` λ is 1 in the paper's experiments.

Equal to the official code (rahafaljundi/MAS-Memory-Aware-Synapses) at Ω where that passes samples
one by one, and at the penalty's gradient; differs where it passes batches, of which it takes the
absolute value of the summed gradient.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from everlight.checks import PositiveInt, checked
from everlight.continual.base import Coefficient, Learner, Setup, Strategy, Task
from everlight.continual.strategies.importance import memory_aware_importance
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.quadratic import (
    QuadraticSums,
    no_anchors,
    penalised,
    single_anchor,
)


@checked
def mas(
    setup: Setup,
    regularization: Coefficient,
    importance_samples: PositiveInt = 1024,
    implicit_rate: Coefficient | None = None,
) -> Strategy:
    """MAS, its memory being `QuadraticSums` with one anchor.

    Args:
      setup: what is static.
      regularization: λ above.
      importance_samples: at most so many of a task's samples, evenly spaced, estimate Ω.
      implicit_rate: the optimizer's rate, for implicit steps on the penalty, stable at any
        regularization (`quadratic.penalised`); None adds its gradient, as the paper does.
    """

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        new = memory_aware_importance(setup, learner, task.train, importance_samples)
        return single_anchor(jax.tree.map(jnp.add, memory.importance, new), learner.params), learner

    free = naive(setup)._replace(
        init=lambda key, learner: no_anchors(learner.params), end_task=end_task, parameter_copies=2
    )
    return penalised(setup, free, regularization, lambda memory: memory, implicit_rate)
