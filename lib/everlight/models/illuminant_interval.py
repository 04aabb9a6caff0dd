"""An interval of a light: how far the nets of an ensemble disagree, scaled by what they were off.

Nets that were trained apart agree where their training decides and differ where it does not; how
much that tells of their error is measured on held-out pairs. This is split conformal prediction
with locally weighted residuals (Lei et al. 2018, "Distribution-free predictive inference for
regression", sections 2.2 and 5.2), in which of new pairs that are like the held-out ones at least
the asked share is covered, whatever the nets are worth. Here the least width is the very pairs' own
mean error, so that with few of them somewhat less is covered: of nine tenths .87 by nine pairs, .89
by twenty (log errors drawn normally).
"""

import math
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import Between, checked
from everlight.color.chromaticity import from_chromaticity
from everlight.metrics.angular import angular_error

COVERAGE = 0.9

Inside = Annotated[float, Between(0.01, 0.99)]


class IntervalScale(NamedTuple):
    """From the members' disagreement to an interval, both in logarithms of R/G and B/G.

    Attributes:
      floor: added to the disagreement: the mean error on the held-out pairs, `[2]`.
      factor: of the sum; infinite where the held-out pairs are too few for the coverage.
    """

    floor: Float[Array, "2"]
    factor: Float[Array, ""]


class Interval(NamedTuple):
    """Where a light lies; covered is the light whose R/G and B/G both lie in theirs.

    Attributes:
      low: least R/G and B/G, `[2]`.
      high: greatest R/G and B/G, `[2]`.
      degrees: angle between the estimate and the light in the interval that is farthest from it.
    """

    low: Float[Array, "2"]
    high: Float[Array, "2"]
    degrees: Float[Array, ""]


@checked
def ensemble_chromaticity(estimates: Float[Array, "m *n 2"]) -> Float[Array, "*n 2"]:
    """The geometric mean over members, which does not favour R/G over its inverse."""
    return jnp.exp(jnp.mean(jnp.log(estimates), axis=0))


@checked
def ensemble_disagreement(estimates: Float[Array, "m *n 2"]) -> Float[Array, "*n 2"]:
    """The members' deviation around their geometric mean, in logarithms; of one member it is 0."""
    return jnp.std(jnp.log(estimates), axis=0)


@checked
def calibrate_interval(
    estimates: Float[Array, "m n 2"], truth: Float[Array, "n 2"], coverage: Inside = COVERAGE
) -> IntervalScale:
    """The scale with which intervals cover a share of the held-out pairs, and of new ones.

    Args:
      estimates: [R/G, B/G] of pairs that the members were not trained on, by every member,
        `[m, n, 2]`; those of a pair that are not finite count as infinitely far off.
      truth: their lights, `[n, 2]`.
      coverage: share of pairs whose R/G and B/G both lie in their interval.

    Returns:
      The scale; its factor is the ceil((n + 1) coverage)-th least of what the pairs would need, and
      infinite where there is no such one: below 9 pairs for nine of ten.
    """
    errors = jnp.abs(jnp.log(ensemble_chromaticity(estimates)) - jnp.log(truth))
    usable = jnp.all(jnp.isfinite(errors), axis=1, keepdims=True)
    known = jnp.where(usable, errors, 0)
    floor = jnp.sum(known, axis=0) / jnp.maximum(jnp.sum(usable), 1)
    widths = jnp.where(usable, ensemble_disagreement(estimates), 0) + floor
    needed = jnp.where(known > 0, known / jnp.where(widths > 0, widths, 1), 0)
    needed = jnp.where(usable[:, 0], jnp.max(needed, axis=1), jnp.inf)
    # Rounded first: .9 x 70 is a little more than 63 in binary.
    rank = math.ceil(round((len(truth) + 1) * float(coverage), 9))
    enough = rank <= len(truth)
    factor = jnp.sort(needed)[rank - 1] if enough else jnp.array(jnp.inf, errors.dtype)
    return IntervalScale(floor, factor)


@checked
def chromaticity_interval(scale: IntervalScale, estimates: Float[Array, "m 2"]) -> Interval:
    """The interval of one pair.

    Args:
      scale: from `calibrate_interval` on pairs like this one.
      estimates: [R/G, B/G] by every member, `[m, 2]`.
    """
    centre = ensemble_chromaticity(estimates)
    width = scale.factor * (ensemble_disagreement(estimates) + scale.floor)
    # No width of a factor that is infinite, where no member is ever off.
    width = jnp.where(jnp.isnan(width), jnp.inf, width)
    low, high = centre * jnp.exp(-width), centre * jnp.exp(width)
    # Lights at equal angles are a cone, which cuts the plane of R/G and B/G in a convex curve: in
    # a rectangle a corner is farthest.
    corners = jnp.stack(
        [jnp.stack([red, blue]) for red in (low[0], high[0]) for blue in (low[1], high[1])]
    )
    angles = jax.vmap(angular_error, (0, None))(
        from_chromaticity(corners), from_chromaticity(centre)
    )
    return Interval(low, high, jnp.where(jnp.all(jnp.isfinite(high)), jnp.max(angles), jnp.inf))


@checked
def uninformed_interval(lights: Float[Array, "n 2"], coverage: Inside = COVERAGE) -> Interval:
    """What is known of a light without looking: the interval around the mean of others.

    An estimate whose own interval reaches as far (`degrees`) says nothing that these lights did not
    say before.

    Args:
      lights: [R/G, B/G] of the lights that taught, `[n, 2]`.
      coverage: share of them in the interval around their geometric mean.
    """
    mean = ensemble_chromaticity(lights)[None]
    scale = calibrate_interval(jnp.broadcast_to(mean, (1, *lights.shape)), lights, coverage)
    return chromaticity_interval(scale, mean)
