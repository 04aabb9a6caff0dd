"""Conformal intervals of illuminants from the disagreement of an ensemble.

Independently trained networks agree where the training data determine their output and differ
elsewhere. Held-out pairs measure how this disagreement relates to the error. This is split
conformal prediction with locally weighted residuals (Lei et al. 2018, "Distribution-free predictive
inference for regression", sections 2.2 and 5.2). It covers at least the nominal fraction of new
pairs that are exchangeable with the held-out ones, for any networks. In everlight the minimum width
is the mean error of the same pairs, so that few pairs give slightly lower coverage. For a nominal
0.9 it is 0.87 with nine pairs and 0.89 with twenty (normal log errors).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.checks import POSITIVE, Between, NotEmpty, checked
from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.metrics.angular import angular_error

COVERAGE = 0.9

Coverage = Annotated[float, Between(0.01, 0.99)]


class IntervalScale(NamedTuple):
    """Map from the members' disagreement to an interval, both in logarithms of R/G and B/G.

    Attributes:
      floor: mean error on the held-out pairs, added to the disagreement, `[2]`.
      factor: multiple of the sum; infinite where the held-out pairs are too few for the coverage.
    """

    floor: Float[Array, "2"]
    factor: Float[Array, ""]


class ChromaticityInterval(NamedTuple):
    """Interval of an illuminant; an illuminant is covered if its R/G and B/G both lie inside.

    Attributes:
      low: lower R/G and B/G, `[2]`.
      high: upper R/G and B/G, `[2]`.
      degrees: largest angle between the estimate and an illuminant in the interval.
    """

    low: Float[Array, "2"]
    high: Float[Array, "2"]
    degrees: Float[Array, ""]


class IntervalCoverage(NamedTuple):
    """Quality of the intervals of several pairs.

    Attributes:
      share: share of pairs whose illuminant is in its interval.
      degrees: mean radius of the intervals in degrees.
      uninformative: share of intervals no smaller than that of the calibration illuminants alone.
    """

    share: float
    degrees: float
    uninformative: float


@checked
def ensemble_chromaticity(
    estimates: Annotated[Float[Array, "m *n 2"], NotEmpty],
) -> Float[Array, "*n 2"]:
    """Return the geometric mean over members, which treats R/G and its inverse alike.

    Args:
      estimates: R/G and B/G of every member, positive, `[m, ..., 2]`.
    """
    return jnp.exp(jnp.mean(jnp.log(estimates), axis=0))


@checked
def ensemble_disagreement(
    estimates: Annotated[Float[Array, "m *n 2"], NotEmpty],
) -> Float[Array, "*n 2"]:
    """Return the members' standard deviation in logarithms; 0 for one member.

    Args:
      estimates: R/G and B/G of every member, positive, `[m, ..., 2]`.
    """
    return jnp.std(jnp.log(estimates), axis=0)


@checked
@partial(jax.jit, static_argnames="coverage")
def calibrate_interval(
    estimates: Annotated[Float[Array, "m n 2"], NotEmpty],
    truth: Annotated[Float[Array, "n 2"], POSITIVE],
    coverage: Coverage = COVERAGE,
) -> IntervalScale:
    """Fit the scale with which intervals cover a fraction of the held-out pairs, and of new ones.

    Args:
      estimates: [R/G, B/G] of held-out pairs by every member, `[m, n, 2]`; a pair whose estimates
        are not finite has an infinite error.
      truth: true chromaticities of the pairs, `[n, 2]`.
      coverage: fraction of pairs whose R/G and B/G both lie in their interval.

    Returns:
      The scale. Its factor is the ceil((n + 1) coverage)-th smallest factor that the pairs need. It
        is infinite if that rank exceeds n: below 9 pairs for a coverage of 0.9.
    """
    errors = jnp.abs(jnp.log(ensemble_chromaticity(estimates)) - jnp.log(truth))
    usable = jnp.all(jnp.isfinite(errors), axis=1, keepdims=True)
    known = jnp.where(usable, errors, 0)
    floor = jnp.sum(known, axis=0) / jnp.maximum(jnp.sum(usable), 1)
    widths = jnp.where(usable, ensemble_disagreement(estimates), 0) + floor
    needed = jnp.where(known > 0, known / jnp.where(widths > 0, widths, 1), 0)
    needed = jnp.where(usable[:, 0], jnp.max(needed, axis=1), jnp.inf)
    # Rounded first: 0.9 x 70 is slightly more than 63 in binary.
    rank = math.ceil(round((len(truth) + 1) * float(coverage), 9))
    enough = rank <= len(truth)
    factor = jnp.sort(needed)[rank - 1] if enough else jnp.array(jnp.inf, errors.dtype)
    return IntervalScale(floor, factor)


@checked
def chromaticity_interval(
    scale: IntervalScale, estimates: Float[Array, "m 2"]
) -> ChromaticityInterval:
    """Return the interval of one pair.

    Args:
      scale: scale from `calibrate_interval` on similar pairs.
      estimates: [R/G, B/G] by every member, `[m, 2]`.

    Returns:
      The interval; its radius is infinite where an estimate is not positive and finite.
    """
    center = ensemble_chromaticity(estimates)
    width = scale.factor * (ensemble_disagreement(estimates) + scale.floor)
    # An infinite factor times a width of 0 is NaN; the interval is then infinite.
    width = jnp.where(jnp.isnan(width), jnp.inf, width)
    low, high = center * jnp.exp(-width), center * jnp.exp(width)
    # Illuminants at equal angles form a cone, whose section with the plane of R/G and B/G is a
    # convex curve. The farthest point of a rectangle is therefore a corner.
    corners = jnp.stack(
        [jnp.stack([red, blue]) for red in (low[0], high[0]) for blue in (low[1], high[1])]
    )
    angles = jax.vmap(angular_error, (0, None))(
        chromaticity_to_illuminant(corners), chromaticity_to_illuminant(center)
    )
    return ChromaticityInterval(
        low, high, jnp.where(jnp.all(jnp.isfinite(high)), jnp.max(angles), jnp.inf)
    )


@checked
@partial(jax.jit, static_argnames="coverage")
def uninformative_interval(
    chromaticities: Annotated[Float[Array, "n 2"], POSITIVE, NotEmpty],
    coverage: Coverage = COVERAGE,
) -> ChromaticityInterval:
    """Return the interval of an illuminant without an image: around the mean of others.

    An estimate with an interval at least as wide (`degrees`) is uninformative: it adds nothing to
    these chromaticities.

    Args:
      chromaticities: [R/G, B/G] of the training illuminants, `[n, 2]`.
      coverage: fraction of them in the interval around their geometric mean.
    """
    mean = ensemble_chromaticity(chromaticities)[None]
    scale = calibrate_interval(
        jnp.broadcast_to(mean, (1, *chromaticities.shape)), chromaticities, coverage
    )
    return chromaticity_interval(scale, mean)


_intervals = jax.jit(jax.vmap(chromaticity_interval, (None, 1)))


@checked
def interval_coverage(
    scale: IntervalScale,
    estimates: Float[Array, "m n 2"],
    truth: Annotated[Float[Array, "n 2"], POSITIVE],
    uninformative: Annotated[Float[Array, ""], Between(0)],
) -> IntervalCoverage:
    """Measure the intervals of pairs whose illuminants are known.

    Args:
      scale: scale from `calibrate_interval` on other pairs.
      estimates: [R/G, B/G] of the pairs by every member, `[m, n, 2]`; a pair whose estimates are
        not positive and finite is not covered.
      truth: true chromaticities of the pairs, `[n, 2]`.
      uninformative: radius in degrees of the `uninformative_interval` of the calibration pairs.
    """
    parts = _evaluate_interval(scale, estimates, truth, uninformative)
    return IntervalCoverage(*(float(jnp.mean(part)) for part in parts))


@checked
def cross_coverage(
    estimates: Sequence[Float[np.ndarray, "m n 2"]],
    truth: Annotated[Float[np.ndarray, "n 2"], POSITIVE],
    folds: Sequence[Int[np.ndarray, "_"]],
) -> IntervalCoverage:
    """Measure each fold's intervals after their calibration on the other folds.

    Args:
      estimates: for each fold, the estimates of every pair by the fold's method, `[m, n, 2]`; each
        pair's members were trained without its fold.
      truth: chromaticities of the pairs, `[n, 2]`.
      folds: rows of each fold; every pair is in one.
    """
    rows = []
    for chroma, fold in zip(estimates, folds, strict=True):
        others = np.setdiff1d(np.arange(len(truth)), fold)
        known = jnp.asarray(truth[others])
        scale = calibrate_interval(jnp.asarray(chroma[:, others]), known)
        uninformative = uninformative_interval(known).degrees
        rows.append(
            _evaluate_interval(
                scale, jnp.asarray(chroma[:, fold]), jnp.asarray(truth[fold]), uninformative
            )
        )
    parts = zip(*rows, strict=True)
    return IntervalCoverage(*(float(np.mean(np.concatenate(part))) for part in parts))


def _evaluate_interval(
    scale: IntervalScale, estimates: Array, truth: Array, uninformative: Array
) -> tuple[Array, Array, Array]:
    """Return for each pair if its interval covers it, the radius, and if it is uninformative."""
    interval = _intervals(scale, estimates)
    covered = jnp.all((interval.low <= truth) & (truth <= interval.high), axis=1)
    return covered, interval.degrees, interval.degrees >= uninformative
