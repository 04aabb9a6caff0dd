"""Linear regression of chromaticities, on the transform between two cameras or other features."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import check_sizes, checked
from everlight.errors import ArgumentError
from everlight.precision import matrix_product


class LinearRegression(NamedTuple):
    """Affine map `features @ slopes + intercept` to [R/G, B/G]."""

    slopes: Float[Array, "f 2"]
    intercept: Float[Array, "2"]


@checked
def fit_linear_regression(
    features: Float[Array, "n f"], chromaticities: Float[Array, "n 2"]
) -> LinearRegression:
    """Fit a least-squares regression of the illuminant's chromaticity on features.

    The "linear regression" baseline of the two-camera paper's table 3, whose features are the
    transform's nine entries. Rows of sum-normalized transforms add up to about 1, which leaves the
    nine nearly dependent. Features are therefore centred, and the SVD solver returns the
    minimum-norm solution.

    Args:
      features: features of the training pairs, such as flattened transforms, `[n, f]`, n > f.
      chromaticities: [R/G, B/G] of the pairs' illuminants, `[n, 2]`.

    Returns:
      The regression; NaN where a feature or chromaticity is not finite.

    Raises:
      ValueError: there are fewer pairs than coefficients per output.
    """
    count, width = features.shape
    if count <= width:
        raise ArgumentError(
            f"{count} pairs; {width} slopes and an intercept need at least {width + 1}"
        )
    center, target = jnp.mean(features, axis=0), jnp.mean(chromaticities, axis=0)
    slopes = jnp.linalg.lstsq(features - center, chromaticities - target)[0]
    shift = matrix_product(center, slopes)
    return LinearRegression(slopes, target - shift)


@checked
def linear_estimate(
    model: LinearRegression, features: Float[Array, "*n f"]
) -> Float[Array, "*n 2"]:
    """Predict [R/G, B/G] of the illuminants from features, `[..., f]`.

    Raises:
      ValueError: the number of features differs from the fitted model's.
    """
    check_sizes(slopes=(model.slopes, 0), features=(features, -1))
    product = matrix_product(features, model.slopes)
    return product + model.intercept
