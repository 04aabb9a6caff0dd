"""Angular error between illuminants, and its usual summary statistics."""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from everlight.checks import Between, NotEmpty, checked


@checked
def angular_error(estimate: Float[Array, "3"], truth: Float[Array, "3"]) -> Float[Array, ""]:
    """Return the recovery angular error (Finlayson et al. 1995; papers' tables 1 to 4).

    The angle is atan2 of the cross product's norm and the dot product. This equals the arccosine of
    the normalized dot product but stays accurate near zero. Near zero the arccosine of a float32
    cosine resolves only 0.03 degrees.

    Args:
      estimate: estimated illuminant, `[3]`, any scale.
      truth: true illuminant, `[3]`, any scale.

    Returns:
      The angle in degrees, `[]`; NaN where either is not finite or is the zero vector. The gradient
        is 0 where the two are parallel, at the angle's kink.
    """
    estimate = estimate / jnp.max(jnp.abs(estimate))
    truth = truth / jnp.max(jnp.abs(truth))
    squared = jnp.sum(jnp.cross(estimate, truth) ** 2)
    apart = squared != 0
    sine = jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)
    return jnp.degrees(jnp.arctan2(sine, jnp.sum(estimate * truth)))


@checked
def reproduction_error(estimate: Float[Array, "3"], truth: Float[Array, "3"]) -> Float[Array, ""]:
    """Return the reproduction angular error (Finlayson and Zakizadeh 2014), that of a white.

    It is the angle between (1, 1, 1) and truth / estimate, a white surface divided by the estimate.
    Unlike the recovery angular error, it is invariant to illuminants that multiply the channels of
    a scene.

    Args:
      estimate: estimated illuminant, `[3]`, any scale.
      truth: true illuminant, `[3]`, any scale.

    Returns:
      The angle in degrees, `[]`; NaN where either is not finite, the estimate has a channel of 0,
        or the truth is the zero vector. The gradient is 0 where the two are parallel.
    """
    # An infinite channel would be a ratio of 0.
    estimate = jnp.where(jnp.isfinite(estimate), estimate, jnp.nan)
    return angular_error(truth / estimate, jnp.ones_like(truth))


class ErrorSummary(NamedTuple):
    """Statistics of the valid angular errors, in degrees; `invalid` counts the others."""

    mean: Float[Array, ""]
    median: Float[Array, ""]
    trimean: Float[Array, ""]
    best25: Float[Array, ""]
    worst25: Float[Array, ""]
    q1: Float[Array, ""]
    q3: Float[Array, ""]
    max: Float[Array, ""]
    invalid: Int[Array, ""]


@checked
def summarize_errors(
    errors: Annotated[Float[Array, "n"], Between(0, or_nan=True), NotEmpty],
) -> ErrorSummary:
    """Return mean, median, trimean, best and worst quarter, quartiles and maximum of errors.

    Best and worst 25% are the means of the round(n/4) smallest and largest errors (half to even; at
    least one). Quartiles are interpolated linearly. Errors that are not finite are excluded and
    counted in `invalid`. Without a valid error every statistic is NaN.

    Args:
      errors: errors in degrees, `[n]`.
    """
    valid: Bool[Array, "n"] = jnp.isfinite(errors)
    count = jnp.sum(valid)
    ascending = jnp.sort(jnp.where(valid, errors, jnp.inf))

    def quantile(fraction: float) -> Float[Array, ""]:
        position = fraction * (count - 1)
        lower = jnp.floor(position).astype(int)
        upper = jnp.minimum(lower + 1, count - 1)
        weight = position - lower
        low, high = ascending[lower], ascending[upper]
        return jnp.where(weight > 0, low + weight * (high - low), low)

    def mean_where(selected: Shaped[Array, "n"], size: Shaped[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(selected, ascending, 0)) / size

    rank = jnp.arange(errors.shape[0])
    quarter = jnp.maximum(jnp.round(count / 4).astype(int), 1)
    q1, median, q3 = quantile(0.25), quantile(0.5), quantile(0.75)
    statistics = ErrorSummary(
        mean=mean_where(rank < count, count),
        median=median,
        trimean=(q1 + 2 * median + q3) / 4,
        best25=mean_where(rank < jnp.minimum(quarter, count), quarter),
        worst25=mean_where((rank >= count - quarter) & (rank < count), quarter),
        q1=q1,
        q3=q3,
        max=ascending[count - 1],
        invalid=errors.shape[0] - count,
    )
    empty = count == 0
    return statistics._replace(
        **{
            name: jnp.where(empty, jnp.nan, value)
            for name, value in statistics._asdict().items()
            if name != "invalid"
        }
    )
