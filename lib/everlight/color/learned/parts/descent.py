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
      optimizer: optax optimizer, whose state this function initializes.
      key: key from which each step's key is derived.
      steps: number of steps.
    """

    def without_stats(variables: PyTree, key: PRNGKeyArray) -> tuple[Array, None]:
        return loss(variables["params"], key), None

    start = {"params": params, "batch_stats": None}
    return descend_with_stats(without_stats, start, optimizer, key, steps)["params"]


def descend_with_stats(
    loss: Callable[[PyTree, PRNGKeyArray], tuple[Float[Array, ""], PyTree]],
    variables: PyTree,
    optimizer: optax.GradientTransformation,
    key: PRNGKeyArray,
    steps: int,
) -> PyTree:
    """Return the variables of a network with batch normalization after a fixed number of steps.

    Args:
      loss: loss of the variables and a step's key, and the new statistics.
      variables: initial `params` and `batch_stats`.
      optimizer: optax optimizer of the parameters, whose state this function initializes.
      key: key from which each step's key is derived.
      steps: number of steps.
    """

    def step(carry: tuple[PyTree, PyTree, PyTree], index: Array) -> tuple:
        params, stats, state = carry

        def loss_of_params(params: PyTree) -> tuple[Array, PyTree]:
            return loss({"params": params, "batch_stats": stats}, jax.random.fold_in(key, index))

        gradient, stats = jax.grad(loss_of_params, has_aux=True)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), stats, state), None

    params, stats = variables["params"], variables["batch_stats"]
    start = params, stats, optimizer.init(params)
    (params, stats, _), _ = jax.lax.scan(step, start, jnp.arange(steps))
    return {"params": params, "batch_stats": stats}
