"""Covariances of features: their shrinkage, and solutions of linear systems with them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from everlight.base import Coefficient, Proportion
from everlight.conditional import where_under_vmap
from everlight.precision import matrix_product


def ridge_solve(
    matrix: Float[Array, "m m"], right: Float[Array, "m c"], ridge: Coefficient
) -> Float[Array, "m c"]:
    """Return (A + λ I)⁻¹ B for a matrix A without negative eigenvalues, finite for every λ > 0.

    The Cholesky factorization fails if λ is below the rounding errors of A. Eigenvalues of A are
    then raised to at least the greatest one times the resolution of the dtype.

    Args:
      matrix: the matrix A.
      right: the right-hand side B.
      ridge: the coefficient λ.
    """

    def solve_by_eigenvalues() -> Float[Array, "m c"]:
        values, vectors = jnp.linalg.eigh(matrix)
        least = jnp.finfo(matrix.dtype).eps * values[-1]
        regular = jnp.maximum(values, least) + ridge
        return matrix_product(vectors, matrix_product(vectors.T, right) / regular[:, None])

    regular = matrix + ridge * jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    solution = jax.scipy.linalg.solve(regular, right, assume_a="pos")
    # Cholesky's factor takes a fifteenth of the time, and is NaN where it fails.
    return where_under_vmap(~jnp.all(jnp.isfinite(solution)), solve_by_eigenvalues, solution)


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
