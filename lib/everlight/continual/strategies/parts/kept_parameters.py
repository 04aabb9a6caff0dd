"""Parameters that keep their values when a strategy replaces others."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from everlight.base import Learner, Setup


def keep_frozen(setup: Setup, learner: Learner, params: PyTree) -> PyTree:
    """Return new parameters, but for those that the setup does not train.

    Args:
      setup: setup that says which parameters are trained.
      learner: learner with the present parameters.
      params: new parameters.
    """
    if setup.trainable is None:
        return params
    return jax.tree.map(jnp.where, setup.trainable(learner.params), params, learner.params)


def keep_rows(
    old: PyTree, new: PyTree, trained: Callable[[Int[Array, "m"]], Bool[Array, "m"]]
) -> PyTree:
    """Return the new arrays at the trained rows and the old ones at all others.

    Args:
      old: arrays before a step.
      new: arrays after it.
      trained: function from the numbers of rows to True for trained ones.
    """

    def keep(before: Array, after: Array) -> Array:
        number = jnp.arange(len(after))
        return jnp.where(trained(number).reshape(-1, *(1,) * (after.ndim - 1)), after, before)

    return jax.tree.map(keep, old, new)
