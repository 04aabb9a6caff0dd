"""How often the intervals of nets hold on pairs that neither trained nor calibrated them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.models.illuminant_interval import (
    Interval,
    calibrate_interval,
    chromaticity_interval,
)

calibrate_all = jax.jit(calibrate_interval)
intervals = jax.jit(jax.vmap(chromaticity_interval, (None, 1)))


class Coverage(NamedTuple):
    """Share of pairs whose light lies in its interval, and the intervals' mean angle in degrees."""

    share: float
    degrees: float


def inside(told: Interval, truth: Float[Array, "n 2"]) -> Bool[Array, "n"]:
    """Whether each light lies in its interval."""
    return jnp.all((told.low <= truth) & (truth <= told.high), axis=1)


def cross_coverage(
    estimates: Float[np.ndarray, "m folds k 2"], truth: Float[np.ndarray, "folds k 2"]
) -> Coverage:
    """Each fold's intervals, calibrated on the other folds; all folds' members are of that fold."""
    held, degrees = [], []
    for fold in range(len(truth)):
        others = np.delete(np.arange(len(truth)), fold)
        known = estimates[:, others].reshape(len(estimates), -1, 2)
        scale = calibrate_all(jnp.asarray(known), jnp.asarray(truth[others].reshape(-1, 2)))
        told = intervals(scale, jnp.asarray(estimates[:, fold]))
        held.append(inside(told, jnp.asarray(truth[fold])))
        degrees.append(told.degrees)
    return Coverage(float(np.mean(held)), float(np.mean(degrees)))
