"""Confidence intervals by resampling."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Interval(NamedTuple):
    """Lower and upper end."""

    low: Float[Array, ""]
    high: Float[Array, ""]


def bootstrap_interval(
    key: PRNGKeyArray,
    values: Float[Array, "n"],
    statistic: Callable[[Float[Array, "n"]], Float[Array, ""]] = jnp.mean,
    level: float = 0.95,
    resamples: int = 1000,
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
    drawn = jax.lax.map(resample, draws, batch_size=min(100, resamples))
    tail = (1 - level) / 2
    low, high = jnp.quantile(drawn, jnp.array([tail, 1 - tail]))
    return Interval(low, high)
