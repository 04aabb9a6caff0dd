"""Shrink and perturb (Ash and Adams 2020, NeurIPS, On warm-starting neural network training).

Before every task but the first, all parameters are shrunk and Gaussian noise is added:

    θ ← λ θ + p,   p ~ N(0, σ²)

Shrinking keeps the functions that were learned, up to their scale, and restores gradients to new
samples; the noise breaks ties between units. λ = 0.6 with σ = 0.01 is a usual choice.

Equal to the official code (JordanAsh/warm_start, `run.py`, `shrink_perturb`) at λ θ for all
parameters, biases and scales of normalization included; differs in:

- The noise is normal with one deviation, as in the paper. In the official code it is σ times the
  parameters of a newly drawn network, with λ = 0.4 and σ = 0.1 by default.
- The first task begins at the initial parameters. In the official code these are shrunk and
  perturbed too.
- Batch statistics are kept. In the official code they restart.

Common code (shibhansh/loss-of-plasticity, `bp.py` with `to_perturb`) adds the same normal noise to
all parameters, but at every step, and weight decay shrinks.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.base import Learner, Memory, Proportion, Setup, Strategy, Task
from everlight.checks import NonNegativeFloat, checked
from everlight.continual.engine.updates import trainable_part
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive


@checked
def shrink_and_perturb(
    setup: Setup, shrinkage: Proportion = 0.6, noise: NonNegativeFloat = 0.01
) -> Strategy:
    """Return shrink and perturb: parameters shrink and get noise before later tasks.

    Args:
      setup: network, objective, optimizer and data access. Frozen parameters and batch statistics
        keep their values.
      shrinkage: factor λ of the parameters.
      noise: standard deviation σ of the noise.
    """

    def begin_task(
        memory: Memory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        leaves, tree = jax.tree.flatten(learner.params)
        keys = jax.tree.unflatten(tree, [*jax.random.split(key, len(leaves))])

        def change(leaf: Float[Array, "..."], leaf_key: PRNGKeyArray) -> Float[Array, "..."]:
            moved = noise * jax.random.normal(leaf_key, leaf.shape, leaf.dtype)
            return jnp.where(learner.step > 0, (shrinkage - 1) * leaf + moved, 0)

        perturbed = jax.tree.map(change, learner.params, keys)
        update = trainable_part(setup, learner.params, perturbed)
        params = jax.tree.map(
            lambda leaf, delta: (leaf + delta).astype(leaf.dtype), learner.params, update
        )
        return memory, learner._replace(params=params)

    return naive(setup)._replace(begin_task=begin_task)


METHODS = (
    Method(
        "shrink and perturb",
        shrink_and_perturb,
        Publication("Ash and Adams", 2020, "NeurIPS"),
        "shrink and perturb: parameters shrink and get noise before later tasks",
        tunes="shrinkage",
        hyperparameters=(0.2, 0.4, 0.6, 0.8),
        authors={"shrinkage": 0.4, "noise": 0.1},
        takes_targets=True,
    ),
)
