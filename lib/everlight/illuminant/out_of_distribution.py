"""Out-of-distribution score of an image pair relative to the training pairs.

A network or regression of nine inputs extrapolates to any input, with large errors outside its
training distribution. The score is the feature distance relative to those of held-out
in-distribution pairs.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.checks import (
    FINITE,
    NOT_NEGATIVE,
    SMALLEST,
    Between,
    NotEmpty,
    checked,
)
from everlight.color.feature_distribution import (
    FeatureDistribution,
    feature_distance,
    fit_feature_distribution,
)
from everlight.errors import ArgumentError

QUANTILES = 100
"""Number of steps of the stored distribution of held-out distances."""


class DistanceCalibration(NamedTuple):
    """In-distribution features of a network or regression, and the distances of held-out pairs.

    Attributes:
      distribution: distribution of the training pairs' features.
      distances: quantiles 0, 0.01, ..., 1 of the distances of held-out pairs, `[101]`.
    """

    distribution: FeatureDistribution
    distances: Float[Array, "q"]


class OutOfDistributionScore(NamedTuple):
    """Distance of a pair relative to held-out in-distribution pairs.

    Attributes:
      distance: distance divided by the 99% quantile of held-out distances.
      p_value: fraction of the held-out pairs that are at least as far. It is counted in the 101
        stored quantiles, which interpolate between m held-out distances, and differs from the
        fraction by at most 0.01 + 1 / m. Of four pairs the farthest has 0.01, not 0.25.
    """

    distance: Float[Array, ""]
    p_value: Float[Array, ""]


@checked
def calibrate_distances(
    distribution: FeatureDistribution,
    distances: Annotated[Float[Array, "m"], NOT_NEGATIVE, NotEmpty],
) -> DistanceCalibration:
    """Store quantiles of the distances of held-out pairs, `[m]`, which were not used in training.

    Args:
      distribution: distribution of the features of the training pairs.
      distances: distances of held-out pairs from it, `[m]`.

    Raises:
      ValueError: there is no distance, one is not finite, or their 99% quantile is 0, which is no
        unit of distances.
    """
    quantiles = jnp.quantile(distances, jnp.linspace(0, 1, QUANTILES + 1))
    if not isinstance(quantiles, jax.core.Tracer) and quantiles[-2] < SMALLEST:
        raise ArgumentError("the 99% quantile of distances is 0; give pairs that differ")
    return DistanceCalibration(distribution, quantiles)


@checked
def cross_calibrate_distances(
    features: Annotated[Float[Array, "n *relit f"], FINITE, NotEmpty],
    folds: Sequence[Int[np.ndarray, "_"]],
) -> DistanceCalibration:
    """Return the distribution of all pairs, and each fold's distances from the other folds.

    Args:
      features: features of the training pairs, `[n, f]`; or `[n, n, f]`, those of pair i under the
        illuminant of pair j, which all belong to the distribution. Distances are then those of
        pairs under their own illuminants.
      folds: rows of each fold.

    Raises:
      ValueError: a distance is not finite, as of features that do not vary.
    """
    pairs, relit = np.arange(len(features)), features.ndim == 3
    plain = features[pairs, pairs] if relit else features

    def distribution(rows: np.ndarray) -> FeatureDistribution:
        known = features[rows][:, rows].reshape(-1, features.shape[-1]) if relit else plain[rows]
        return fit_feature_distribution(known, jnp.ones(len(known), bool))

    distances = [
        jax.vmap(feature_distance, (None, 0))(distribution(np.setdiff1d(pairs, fold)), plain[fold])
        for fold in folds
    ]
    held_out = jnp.concatenate(distances)
    if not jnp.isfinite(held_out).all():
        raise ArgumentError(
            "features of some pairs have no finite distance; give features that vary"
        )
    return calibrate_distances(distribution(pairs), held_out)


@checked
def out_of_distribution_score(
    calibration: DistanceCalibration, distance: Annotated[Float[Array, ""], Between(0, or_nan=True)]
) -> OutOfDistributionScore:
    """Compare a distance with those of the held-out pairs; NaN for NaN.

    Args:
      calibration: quantiles of the distances of held-out pairs.
      distance: distance of the pair from the same distribution, `[]`.
    """
    reached = jnp.sum(calibration.distances < distance) / (QUANTILES + 1)
    # No distance is less than NaN, which would have the largest p-value.
    reached = jnp.where(jnp.isnan(distance), jnp.nan, reached)
    return OutOfDistributionScore(distance / calibration.distances[-2], 1 - reached)
