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
    uninformative_interval,
)

calibrate_all = jax.jit(calibrate_interval)
intervals = jax.jit(jax.vmap(chromaticity_interval, (None, 1)))
uninformed = jax.jit(uninformative_interval)


class Coverage(NamedTuple):
    """How good intervals are.

    Attributes:
      share: of pairs whose light lies in its interval.
      degrees: how far the intervals reach in the mean.
      silent: share of intervals that say nothing, as they reach at least as far as the one that the
        lights of the calibration give alone.
    """

    share: float
    degrees: float
    silent: float


def inside(told: Interval, truth: Float[Array, "n 2"]) -> Bool[Array, "n"]:
    """Whether each light lies in its interval."""
    return jnp.all((told.low <= truth) & (truth <= told.high), axis=1)


def cross_coverage(
    estimates: Sequence[Float[np.ndarray, "m n 2"]],
    truth: Float[np.ndarray, "n 2"],
    folds: Sequence[Int[np.ndarray, "_"]],
) -> Coverage:
    """Each fold's intervals, calibrated on the other folds.

    Args:
      estimates: by fold, of every pair by what tells the fold's lights, trained without the pair's
        fold.
      truth: the pairs' lights.
      folds: rows of each fold; every pair is in one.
    """
    held, degrees, silent = [], [], []
    for own, fold in zip(estimates, folds, strict=True):
        others = np.setdiff1d(np.arange(len(truth)), fold)
        scale = calibrate_all(jnp.asarray(own[:, others]), jnp.asarray(truth[others]))
        told = intervals(scale, jnp.asarray(own[:, fold]))
        held.append(inside(told, jnp.asarray(truth[fold])))
        degrees.append(told.degrees)
        silent.append(told.degrees >= uninformed(jnp.asarray(truth[others])).degrees)
    return Coverage(*(float(np.mean(np.concatenate(each))) for each in (held, degrees, silent)))
