"""Shrunk covariances of features, and their solution of linear systems."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from everlight.base import Proportion
from everlight.continual.strategies.parts.frozen import ridge_solve


def shrunk_solve(
    covariance: Float[Array, "f f"], right: Float[Array, "f c"], shrinkage: Proportion
) -> Float[Array, "f c"]:
    """Return ((1 − ε) Σ + ε I)⁻¹ B; it is finite for linearly dependent features.

    Args:
      covariance: the covariance Σ.
      right: the right-hand side B.
      shrinkage: the weight ε of the identity matrix.
    """
    return ridge_solve((1 - shrinkage) * covariance, right, shrinkage)


def oas_covariance(empirical: Float[Array, "f f"], count: Int[Array, ""]) -> Float[Array, "f f"]:
    """Return the oracle approximating shrinkage (OAS) of a covariance, as scikit-learn's `OAS`.

    Args:
      empirical: the samples' scatter divided by their number.
      count: number n of samples.
    """
    width = empirical.shape[0]
    level = jnp.trace(empirical) / width
    spread = jnp.mean(empirical**2)
    noise = (count + 1) * (spread - level**2 / width)
    share = jnp.where(noise > 0, (spread + level**2) / jnp.where(noise > 0, noise, 1), 1)
    share = jnp.minimum(share, 1)
    return (1 - share) * empirical + share * level * jnp.eye(width, dtype=empirical.dtype)
