"""Memory aware synapses (Aljundi et al. 2018, ECCV).

    L(θ) = L_task(θ) + λ Σ_k Ω_k (θ_k − θ*_k)²

Ω is the mean of |∂‖F(x)‖²/∂θ| over the inputs of each task, summed over tasks. The anchor θ* is the
last solution. `regularization` λ is 1 in the paper's experiments.

Equal to the official code (rahafaljundi/MAS-Memory-Aware-Synapses) at the penalty's gradient, and
at Ω where the code passes samples one by one and one head has all classes; differs in:

- Where the code passes batches, it takes the absolute value of a batch's summed gradient.
- F has the outputs of all seen classes. The code has a head per task, and F is the head of the task
  that the samples come from.
- Ω is estimated on at most `importance_samples` samples, in the official code on all.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from everlight.base import Coefficient, Learner, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.importance import memory_aware_importance
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    no_anchors,
    penalized,
    single_anchor,
)


@checked
def mas(
    setup: Setup,
    regularization: Coefficient,
    importance_samples: PositiveInt = 1024,
    implicit_rate: Coefficient | None = None,
) -> Strategy:
    """Return memory aware synapses (MAS), whose memory is `QuadraticSums` with one anchor.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the penalty.
      importance_samples: maximal number of a task's samples, evenly spaced, that estimate Ω.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty. They are
        stable at any regularization (`quadratic.penalized`). None is the paper's explicit step.
    """

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        new = memory_aware_importance(setup, learner, task.train, importance_samples)
        return single_anchor(jax.tree.map(jnp.add, memory.importance, new), learner.params), learner

    free = naive(setup)._replace(
        init=lambda key, learner: no_anchors(learner.params), end_task=end_task, parameter_copies=2
    )
    return penalized(setup, free, regularization, lambda memory: memory, implicit_rate)


METHODS = (
    Method(
        "MAS",
        mas,
        Publication("Aljundi et al.", 2018, "ECCV", ("old net", "statistics")),
        "memory aware synapses (MAS)",
        tunes="regularization",
        hyperparameters=(0.01, 0.1, 1, 10, 100),
        published=1,
        authors={"regularization": 1, "importance_samples": "all", "penalty's step": "explicit"},
        takes_targets=True,
    ),
)
