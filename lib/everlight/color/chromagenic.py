"""Illuminants from the transform between two cameras, without a net: the ancestors of the method.

Chromagenic colour constancy chooses among known lights, linear regression interpolates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import check_range, check_sizes, checked
from everlight.color.transforms import apply_color_transform, fit_color_transform


class Chromagenic(NamedTuple):
    """The transform of each candidate light; where `valid` is false it could not be fitted."""

    transforms: Float[Array, "m 3 3"]
    illuminants: Float[Array, "m 3"]
    valid: Bool[Array, "m"]


@checked
def fit_chromagenic(
    main: Float[Array, "pairs n 3"],
    second: Float[Array, "pairs n 3"],
    labels: Int[Array, "pairs"],
    illuminants: Float[Array, "m 3"],
) -> Chromagenic:
    """One transform per candidate light, from all training colours seen under it.

    Finlayson, Hordley and Morovic 2005 (CVPR), preprocessing: T_i maps the main camera's colours
    under light i to the second's by least squares.

    Args:
      main: colours of the main camera, `[pairs, n, 3]`.
      second: colours of the second camera at the same places, `[pairs, n, 3]`.
      labels: row of `illuminants` under which each pair was taken, `[pairs]`.
      illuminants: of the main camera, `[m, 3]`, the candidates.

    Returns:
      The candidates; one without pairs, or whose colours span no 3-space, is not valid and is
      never chosen.

    Raises:
      ValueError: a label without a row.
    """
    check_range("labels", labels, 0, len(illuminants) - 1)
    colors, targets = main.reshape(-1, 3), second.reshape(-1, 3)
    owner = jnp.repeat(labels, main.shape[1])

    def fit(candidate: Int[Array, ""]):
        return fit_color_transform(colors, targets, (owner == candidate).astype(colors.dtype))

    fitted = jax.lax.map(fit, jnp.arange(len(illuminants)))
    return Chromagenic(fitted.transform, illuminants, fitted.valid)


@checked
def chromagenic_estimate(
    model: Chromagenic,
    main: Float[Array, "n 3"],
    second: Float[Array, "n 3"],
    weights: Float[Array, "n"] | None = None,
) -> Float[Array, "3"]:
    """The candidate light whose transform maps the pair with the least squared error.

    Finlayson, Hordley and Morovic 2005 (CVPR), operation.

    Args:
      model: from `fit_chromagenic`.
      main: colours of the main camera, `[n, 3]`.
      second: colours of the second camera at the same places, `[n, 3]`.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks a pixel out.

    Returns:
      A row of the model's illuminants; NaN where no candidate's error is finite (no valid
      candidate, colours that are not finite) or every pixel is black or masked, which leaves no
      error to compare.
    """
    if weights is not None:
        observed = (weights > 0)[:, None]
        root = jnp.sqrt(weights)[:, None]
        main = jnp.where(observed, main * root, 0)
        second = jnp.where(observed, second * root, 0)

    def squared_error(transform: Float[Array, "3 3"]) -> Float[Array, ""]:
        return jnp.sum((apply_color_transform(main, transform) - second) ** 2)

    errors = jnp.where(model.valid, jax.vmap(squared_error)(model.transforms), jnp.inf)
    best = jnp.argmin(errors)
    known = jnp.isfinite(errors[best]) & jnp.any(main != 0)
    return jnp.where(known, model.illuminants[best], jnp.nan)


class LinearRegression(NamedTuple):
    """The affine map `features @ slopes + intercept` to [R/G, B/G]."""

    slopes: Float[Array, "f 2"]
    intercept: Float[Array, "2"]


@checked
def fit_linear_regression(
    features: Float[Array, "n f"], chromaticities: Float[Array, "n 2"]
) -> LinearRegression:
    """Least-squares regression of the light's chromaticity, on a transform's nine entries or other.

    The baseline "linear regression" of the two-camera paper's table 3. Features are centred first
    and the solver is an SVD, as rows of sum-normalised transforms add up to about 1 and leave the
    nine nearly dependent: of all best maps it gives the smallest.

    Args:
      features: of the training pairs, such as transforms row by row, `[n, f]`, n > f.
      chromaticities: [R/G, B/G] of their lights, `[n, 2]`.

    Raises:
      ValueError: fewer pairs than the map has entries per output.
    """
    count, width = features.shape
    if count <= width:
        raise ValueError(
            f"{count} pairs; {width} slopes and an intercept need at least {width + 1}"
        )
    center, target = jnp.mean(features, axis=0), jnp.mean(chromaticities, axis=0)
    slopes = jnp.linalg.lstsq(features - center, chromaticities - target)[0]
    shift = jnp.matmul(center, slopes, precision=jax.lax.Precision.HIGHEST)
    return LinearRegression(slopes, target - shift)


@checked
def linear_estimate(
    model: LinearRegression, features: Float[Array, "*n f"]
) -> Float[Array, "*n 2"]:
    """[R/G, B/G] of the lights of pairs with these features, `[..., f]`.

    Raises:
      ValueError: features of another number than the model was fitted to.
    """
    check_sizes(slopes=(model.slopes, 0), features=(features, -1))
    product = jnp.matmul(features, model.slopes, precision=jax.lax.Precision.HIGHEST)
    return product + model.intercept
