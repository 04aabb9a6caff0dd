"""Confidence intervals by resampling."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import PositiveInt, UnitInterval, check_range, checked


class Interval(NamedTuple):
    """Lower and upper end."""

    low: Float[Array, ""]
    high: Float[Array, ""]


@checked
def bootstrap_interval(
    key: PRNGKeyArray,
    values: Float[Array, "n"],
    statistic: Callable[[Float[Array, "n"]], Float[Array, ""]] = jnp.mean,
    level: UnitInterval = 0.95,
    resamples: PositiveInt = 1000,
) -> Interval:
    """The percentile bootstrap interval of a statistic (Efron 1979).

    Args:
      key: randomness of the resampling.
      values: one number per independent unit (image, run), `[n]`.
      statistic: from `[n]` values to a number.
      level: coverage, between 0 and 1.
      resamples: how many samples of size n are drawn with replacement.
    """
    count = values.shape[0]

    def resample(draw: PRNGKeyArray) -> Float[Array, ""]:
        return statistic(values[jax.random.randint(draw, (count,), 0, count)])

    # A map over groups, since all resamples at once need resamples × n numbers.
    draws = jax.random.split(key, resamples)
    return _ends(jax.lax.map(resample, draws, batch_size=min(100, resamples)), level)


@checked
def grouped_mean_interval(
    key: PRNGKeyArray,
    values: Float[Array, "n"],
    groups: Int[Array, "n"],
    count: PositiveInt,
    level: UnitInterval = 0.95,
    resamples: PositiveInt = 1000,
) -> Interval:
    """The percentile bootstrap interval of a mean whose values come in groups.

    Whole groups are drawn, with all their values (the cluster bootstrap: Davison and Hinkley 1997,
    section 3.8): scenes under one light are not independent of each other, lights are.

    Args:
      key: randomness of the resampling.
      values: `[n]`; those that are not finite have no part.
      groups: of each value, from 0 to `count` - 1, `[n]`.
      count: how many groups there are.
      level: coverage, between 0 and 1.
      resamples: how many samples of `count` groups are drawn with replacement.

    Raises:
      ValueError: a group outside 0 to `count` - 1.
    """
    check_range("groups", groups, 0, count - 1)
    valid = jnp.isfinite(values)
    sums = jax.ops.segment_sum(jnp.where(valid, values, 0), groups, count)
    sizes = jax.ops.segment_sum(valid.astype(values.dtype), groups, count)

    def resample(draw: PRNGKeyArray) -> Float[Array, ""]:
        drawn = jax.random.randint(draw, (count,), 0, count)
        return jnp.sum(sums[drawn]) / jnp.sum(sizes[drawn])

    return _ends(jax.vmap(resample)(jax.random.split(key, resamples)), level)


def _ends(drawn: Float[Array, "r"], level: float) -> Interval:
    tail = (1 - level) / 2
    # Of groups without a valid value alone there is no mean.
    low, high = jnp.nanquantile(drawn, jnp.array([tail, 1 - tail]))
    return Interval(low, high)
