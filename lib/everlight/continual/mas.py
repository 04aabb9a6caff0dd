"""Memory aware synapses (Aljundi et al. 2018, ECCV).

    L(θ) = L_task(θ) + λ Σ_k Ω_k (θ_k − θ*_k)²

Ω is the mean of |∂‖F(x)‖²/∂θ| over the inputs of each task, added up over tasks; the anchor θ* is
the last solution. `strength` λ is 1 in the paper's experiments.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from everlight.continual.base import Learner, Setup, Strategy, Strength, Task
from everlight.continual.importance import memory_aware_importance
from everlight.continual.naive import naive
from everlight.continual.quadratic import (
    QuadraticSums,
    no_anchors,
    penalised_grads,
    single_anchor,
)


def mas(setup: Setup, strength: Strength, importance_samples: int = 1024) -> Strategy:
    """MAS, its memory being `QuadraticSums` with one anchor.

    Args:
      setup: what is static.
      strength: λ above.
      importance_samples: at most so many of a task's samples, evenly spaced, estimate Ω.
    """

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        new = memory_aware_importance(setup, learner, task.train, importance_samples)
        return single_anchor(jax.tree.map(jnp.add, memory.importance, new), learner.params), learner

    return naive(setup)._replace(
        init=lambda key, learner: no_anchors(learner.params),
        grads=penalised_grads(setup, strength, lambda memory: memory),
        end_task=end_task,
        parameter_copies=2,
    )
