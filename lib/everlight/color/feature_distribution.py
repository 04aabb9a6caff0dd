"""Gaussian of features (transforms, moments or both), and the Mahalanobis distance from it.

A large distance marks inputs unlike the training data, for which predictions are unreliable.
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import FINITE, check_sizes, checked
from everlight.precision import matrix_product

# Lower bound of each variance as a fraction of the largest, which keeps the precision finite in
# float32 where features do not vary.
VARIANCE_FLOOR = 1e-6


class FeatureDistribution(NamedTuple):
    """Mean and precision of features.

    Attributes:
      mean: mean of the features, `[f]`.
      root: square root of the precision, `[f, f]`; `root.T @ root` is the inverse covariance.
    """

    mean: Float[Array, "f"]
    root: Float[Array, "f f"]


@checked
def fit_feature_distribution(
    features: Annotated[Float[Array, "m f"], FINITE], valid: Bool[Array, "m"]
) -> FeatureDistribution:
    """Fit mean and covariance to the valid rows; invalid rows must be finite too.

    Args:
      features: features such as flattened transforms, `[m, f]`.
      valid: mask of the rows to use, `[m]`.

    Returns:
      The distribution. It is NaN without a valid row. With one, or where valid rows do not vary,
        the root is not finite, and no distance is.
    """
    counted = valid.astype(features.dtype)[:, None]
    mean = jnp.sum(counted * features, axis=0) / jnp.sum(counted)
    away = counted * (features - mean)
    covariance = matrix_product(away.T, away) / jnp.sum(counted)
    variances, directions = jnp.linalg.eigh(covariance)
    floored = jnp.maximum(variances, VARIANCE_FLOOR * variances[-1])
    return FeatureDistribution(mean, (directions / jnp.sqrt(floored)).T)


@checked
def feature_distance(
    distribution: FeatureDistribution, features: Float[Array, "f"]
) -> Float[Array, ""]:
    """Return the Mahalanobis distance of features from a distribution.

    Raises:
      ValueError: the number of features differs from the distribution's.
    """
    check_sizes(distribution=(distribution.mean, 0), features=(features, 0))
    away = matrix_product(distribution.root, features - distribution.mean)
    return jnp.sqrt(jnp.sum(away**2))
