"""How far a pair of images is from those that a net was trained on.

A net of nine inputs answers anything, and outside of its training far from the truth, and so does a
regression; so the distance is told, in units of the distances of pairs like those of its training.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import checked
from everlight.color.feature_distribution import FeatureDistribution

QUANTILES = 100
"""The held-out distances are kept as this many steps of their distribution."""


class Familiarity(NamedTuple):
    """What is familiar to a net or a regression.

    Attributes:
      distribution: of the training pairs' features.
      distances: quantiles 0, .01, ..., 1 of the distances of held-out pairs, `[101]`.
    """

    distribution: FeatureDistribution
    distances: Float[Array, "q"]


class Novelty(NamedTuple):
    """How new a pair is.

    Attributes:
      distance: in units of the distance that 99 of 100 held-out pairs stay below.
      farther: share of the held-out pairs that are at least as far, to the percent.
    """

    distance: Float[Array, ""]
    farther: Float[Array, ""]


@checked
def calibrate(distribution: FeatureDistribution, distances: Float[Array, "m"]) -> Familiarity:
    """From the distances of held-out pairs, `[m]`, which the net was not trained on.

    Raises:
      ValueError: no distance, or one that is not finite.
    """
    if not (len(distances) and bool(jnp.all(jnp.isfinite(distances)))):
        raise ValueError("distances: at least one, and all of them finite")
    return Familiarity(distribution, jnp.quantile(distances, jnp.linspace(0, 1, QUANTILES + 1)))


@checked
def novelty(familiar: Familiarity, distance: Float[Array, ""]) -> Novelty:
    """A distance beside those of the held-out pairs."""
    reached = jnp.sum(familiar.distances < distance) / (QUANTILES + 1)
    return Novelty(distance / familiar.distances[-2], 1 - reached)
