"""Largest and smallest values of an array; NaN where one of them is NaN, as in NumPy.

On a CPU, `jnp.max` and `jnp.min` leave NaN out of arrays of some thousand values, also where `vmap`
stacks small ones (openxla/xla issue 21461): a result that should be NaN is a plausible number.
"""

import jax.numpy as jnp
from jaxtyping import Array, Shaped

Axis = int | tuple[int, ...] | None


def largest_value(values: Shaped[Array, "..."], axis: Axis = None) -> Shaped[Array, "..."]:
    """Return the maximum along axes."""
    return jnp.where(jnp.any(jnp.isnan(values), axis), jnp.nan, jnp.max(values, axis))


def smallest_value(values: Shaped[Array, "..."], axis: Axis = None) -> Shaped[Array, "..."]:
    """Return the minimum along axes."""
    return -largest_value(-values, axis)
