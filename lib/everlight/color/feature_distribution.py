"""Where features lie: mean and covariance of transforms, of moments or of both, and how far one is.

What is learnt from such features knows nothing of others, so their distance is worth telling.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import check_sizes, checked

# Of the largest variance: directions in which features do not differ at all are held to this share
# of it, so that the precision is finite in float32.
VARIANCE_FLOOR = 1e-6


class FeatureDistribution(NamedTuple):
    """Mean and covariance of features.

    Attributes:
      mean: `[f]`.
      root: a root of the precision, `root.T @ root` is the inverse covariance, `[f, f]`.
    """

    mean: Float[Array, "f"]
    root: Float[Array, "f f"]


@checked
def fit_feature_distribution(
    features: Float[Array, "m f"], valid: Bool[Array, "m"]
) -> FeatureDistribution:
    """Mean and covariance of the valid rows; an invalid one must be finite all the same.

    Args:
      features: such as transforms row by row, `[m, f]`.
      valid: which rows count, `[m]`.
    """
    counted = valid.astype(features.dtype)[:, None]
    mean = jnp.sum(counted * features, axis=0) / jnp.sum(counted)
    away = counted * (features - mean)
    covariance = jnp.matmul(away.T, away, precision=jax.lax.Precision.HIGHEST) / jnp.sum(counted)
    variances, directions = jnp.linalg.eigh(covariance)
    floored = jnp.maximum(variances, VARIANCE_FLOOR * variances[-1])
    return FeatureDistribution(mean, (directions / jnp.sqrt(floored)).T)


@checked
def feature_distance(
    distribution: FeatureDistribution, features: Float[Array, "f"]
) -> Float[Array, ""]:
    """Mahalanobis distance of features from a distribution of their like.

    Raises:
      ValueError: another number of features.
    """
    check_sizes(distribution=(distribution.mean, 0), features=(features, 0))
    away = jnp.matmul(distribution.root, features - distribution.mean, precision="highest")
    return jnp.sqrt(jnp.sum(away**2))
