"""Bootstrap confidence intervals."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import FINITE, NotEmpty, PositiveInt, UnitInterval, check_range, checked


class Interval(NamedTuple):
    """Lower and upper end."""

    low: Float[Array, ""]
    high: Float[Array, ""]


@checked
def bootstrap_interval(
    key: PRNGKeyArray,
    values: Annotated[Float[Array, "n"], FINITE, NotEmpty],
    statistic: Callable[[Float[Array, "n"]], Float[Array, ""]] = jnp.mean,
    level: UnitInterval = 0.95,
    resamples: PositiveInt = 1000,
) -> Interval:
    """Return the percentile bootstrap interval of a statistic (Efron 1979).

    It is NaN if the statistic of any resample is. A resample may have one value only, repeated.

    Args:
      key: key of the resampling.
      values: one value per independent unit (image, run), `[n]`.
      statistic: function from `[n]` values to a number.
      level: nominal coverage, between 0 and 1.
      resamples: number of samples of size n drawn with replacement.
    """
    values, count = jnp.asarray(values), values.shape[0]

    def resample(draw: PRNGKeyArray) -> Float[Array, ""]:
        return statistic(values[jax.random.randint(draw, (count,), 0, count)])

    # Mapped in batches, since all resamples at once need resamples × n numbers.
    draws = jax.random.split(key, resamples)
    drawn = jax.lax.map(resample, draws, batch_size=min(100, resamples))
    return Interval(*jnp.quantile(drawn, _tails(level)))


@checked
def grouped_mean_interval(
    key: PRNGKeyArray,
    values: Annotated[Float[Array, "n"], NotEmpty],
    groups: Int[Array, "n"],
    count: PositiveInt,
    level: UnitInterval = 0.95,
    resamples: PositiveInt = 1000,
) -> Interval:
    """Return the percentile bootstrap interval of the mean of grouped values.

    Whole groups are resampled (cluster bootstrap: Davison and Hinkley 1997, section 3.8). Scenes
    under one illuminant are dependent, illuminants are not. Resamples of groups without a finite
    value are left out.

    Args:
      key: key of the resampling.
      values: values, `[n]`; those that are not finite are ignored.
      groups: group of each value, from 0 to `count` - 1, `[n]`.
      count: number of groups.
      level: nominal coverage, between 0 and 1.
      resamples: number of samples of `count` groups drawn with replacement.

    Raises:
      ValueError: a group is outside 0 to `count` - 1.
    """
    check_range("groups", groups, 0, count - 1)
    valid = jnp.isfinite(values)
    sums = jax.ops.segment_sum(jnp.where(valid, values, 0), groups, count)
    sizes = jax.ops.segment_sum(valid.astype(values.dtype), groups, count)

    def resample(draw: PRNGKeyArray) -> Float[Array, ""]:
        drawn = jax.random.randint(draw, (count,), 0, count)
        return jnp.sum(sums[drawn]) / jnp.sum(sizes[drawn])

    drawn = jax.vmap(resample)(jax.random.split(key, resamples))
    # A resample of groups without any valid value has no mean, and is left out.
    return Interval(*jnp.nanquantile(drawn, _tails(level)))


def _tails(level: float) -> Float[Array, "2"]:
    tail = (1 - level) / 2
    return jnp.array([tail, 1 - tail])
