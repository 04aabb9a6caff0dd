"""Gradient descent for a fixed number of steps, shared by the networks of this package."""

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
    """Return the parameters after a fixed number of optimizer steps.

    Args:
      loss: loss of the parameters; its second argument is the step's key, for drawing a batch.
      params: initial parameters.
      optimizer: optax optimizer; its state is initialised here.
      key: key from which each step's key is derived.
      steps: number of steps.
    """

    def step(carry: tuple[PyTree, PyTree], index: Array) -> tuple:
        params, state = carry
        gradient = jax.grad(loss)(params, jax.random.fold_in(key, index))
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jnp.arange(steps))
    return params
