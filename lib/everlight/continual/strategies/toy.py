"""Toy strategy: naive finetuning whose later tasks move the parameters less.

    θ ← θ − η s ∇L(θ),   s = 1 at the first task and `share` afterwards.

It has no paper and no official code.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Memory, Proportion, Setup, StepInfo, Strategy, Task
from everlight.checks import checked
from everlight.continual.method import Method, Source
from everlight.continual.strategies.naive import naive, task_gradient


@checked
def toy(setup: Setup, share: Proportion = 0.5) -> Strategy:
    """Return naive finetuning with smaller gradients after the first task.

    Args:
      setup: network, objective, optimizer and data access.
      share: factor on the gradients after the first task.
    """

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = task_gradient(setup, learner, batch, key)
        factor = jnp.where(task.id == 0, 1.0, share)
        return jax.tree.map(lambda leaf: factor * leaf, gradient), info

    return naive(setup)._replace(grads=grads)


METHODS = {
    "toy": Method(
        toy,
        lambda needs: {"share": needs.hyperparameter},
        Source(""),
        (0.25, 0.5, 1),
        published=0.5,
    ),
}
