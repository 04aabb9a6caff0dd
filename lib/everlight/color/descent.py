"""The one loop by which this room's nets learn: a fixed number of steps, nothing chosen."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


def descend(
    loss: Callable[[PyTree, PRNGKeyArray], Float[Array, ""]],
    params: PyTree,
    optimizer: optax.GradientTransformation,
    key: PRNGKeyArray,
    steps: int,
) -> PyTree:
    """The parameters after so many steps.

    Args:
      loss: of parameters and a step's own key, from which it draws its batch.
      params: with which it begins.
      optimizer: anew.
      key: of all batches.
      steps: how many.
    """

    def step(carry: tuple[PyTree, PyTree], index: Array) -> tuple:
        params, state = carry
        gradient = jax.grad(loss)(params, jax.random.fold_in(key, index))
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(steps))
    return params
