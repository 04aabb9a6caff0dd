"""Full precision of matrix products and convolutions on accelerators, and which ones have it.

By default a GPU multiplies float32 matrices in TF32, with a relative error of about 1e-3, and a TPU
in bfloat16, with about 4e-3. Sums stay in float32. A CPU computes in float32 in any case. Each
product belongs to one of two kinds:

- Forward and backward passes of networks use the default, which is several times as fast. So do the
  heads, prompts and low-rank additions of a network, the learned projections of SCR, OCM and OnPro,
  and the autoencoders of Expert Gate. What passes return has this precision too: losses, features,
  gradients, Fisher information and importances of parameters. A network's `dtype` and JAX's option
  `jax_default_matmul_precision` change it.
- All other products have full precision, whatever the option says: colour transforms, spectral
  integrals, least squares, ridge regression, Gram and scatter matrices, covariances, bases of
  subspaces and projections on them, quadratic programs, clustering, distances and similarities of
  features (in losses too), samples of Gaussians, projected gradients, and metrics. Many of them are
  differences of nearly equal numbers, such as |x|² - 2 x·y + |y|², or are divided by a small
  temperature. They take little of the time.

`IlluminantNet` is the one network of the second kind: its products have at most a few terms, and
its outputs are compared with closed forms. JAX's decompositions and solvers, and their derivatives,
have full precision of their own; only the derivatives of `jnp.linalg.qr` need the decorator.

`tests/contracts/test_matrix_precision.py` traces the public functions and all strategies, and fails
where a product of the second kind has the default precision.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def full_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a function so that its matrix products and convolutions have full precision.

    These include `@`, `jnp.einsum`, products of vectors, batched products under `vmap`, and their
    derivatives. Functions that are called within have full precision as well, so none of them may
    be a network's pass. The rule of a `jax.custom_jvp` or `jax.custom_vjp` needs the decorator
    itself, since JAX may trace it later.
    """

    @functools.wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return call


def matrix_product(left: ArrayLike, right: ArrayLike) -> jax.Array:
    """Return the matrix product in full precision; shapes are those of `jnp.matmul`."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
