"""How often the intervals of nets hold on pairs that neither trained nor calibrated them."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

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
    estimates: Float[np.ndarray, "m n 2"],
    truth: Float[np.ndarray, "n 2"],
    folds: Sequence[Int[np.ndarray, "_"]],
) -> Coverage:
    """Each fold's intervals, calibrated on the other folds.

    Args:
      estimates: of every pair by nets that were not trained on its fold.
      truth: the pairs' lights.
      folds: rows of each fold; every pair is in one.
    """
    held, degrees = [], []
    for fold in folds:
        others = np.setdiff1d(np.arange(len(truth)), fold)
        scale = calibrate_all(jnp.asarray(estimates[:, others]), jnp.asarray(truth[others]))
        told = intervals(scale, jnp.asarray(estimates[:, fold]))
        held.append(inside(told, jnp.asarray(truth[fold])))
        degrees.append(told.degrees)
    return Coverage(float(np.mean(np.concatenate(held))), float(np.mean(np.concatenate(degrees))))
