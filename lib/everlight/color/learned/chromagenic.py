"""Chromagenic colour constancy: of several known illuminants, the one whose transform fits best."""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import FINITE, NOT_NEGATIVE, NotEmpty, check_range, checked
from everlight.color.transforms import apply_color_transform, fit_color_transform


class Chromagenic(NamedTuple):
    """The transform of each candidate illuminant; `valid` is false where it could not be fitted."""

    transforms: Float[Array, "m 3 3"]
    illuminants: Float[Array, "m 3"]
    valid: Bool[Array, "m"]


@checked
def fit_chromagenic(
    main: Annotated[Float[Array, "pairs n 3"], FINITE],
    second: Annotated[Float[Array, "pairs n 3"], FINITE],
    labels: Int[Array, "pairs"],
    illuminants: Annotated[Float[Array, "m 3"], NOT_NEGATIVE, NotEmpty],
    weights: Annotated[Float[Array, "pairs n"], NOT_NEGATIVE] | None = None,
    normalize: Literal["mean"] | None = None,
) -> Chromagenic:
    """Fit one transform per candidate illuminant to all training colours seen under it.

    Preprocessing of Finlayson, Hordley and Morovic 2005 (CVPR): T_i maps the main camera's colours
    under illuminant i to the second camera's by least squares.

    Args:
      main: colours of the main camera, `[pairs, n, 3]`.
      second: colours of the second camera at the same points, `[pairs, n, 3]`.
      labels: index into `illuminants` of each pair's illuminant, `[pairs]`.
      illuminants: candidate illuminants in the main camera's RGB, `[m, 3]`.
      weights: non-negative weight of each pixel's squared error, `[pairs, n]`; 0 masks a pixel.
      normalize: "mean" is for unknown exposures: it divides every image by its weighted mean over
        pixels and channels, and leaves out pairs with a mean that is not positive. Give
        `chromagenic_estimate` the same.

    Returns:
      The candidates. A candidate is invalid and never selected if it has no pairs or its colours
        have rank below 3.

    Raises:
      ValueError: a label is not an index into `illuminants`.
    """
    check_range("labels", labels, 0, len(illuminants) - 1)
    shares = jnp.ones(main.shape[:2], main.dtype) if weights is None else weights
    if normalize == "mean":
        main, second = _divide_by_means(main, second, weights)
    colors, targets = main.reshape(-1, 3), second.reshape(-1, 3)
    owner, shares = jnp.repeat(labels, main.shape[1]), shares.ravel()

    def fit(candidate: Int[Array, ""]):
        return fit_color_transform(colors, targets, jnp.where(owner == candidate, shares, 0))

    fitted = jax.lax.map(fit, jnp.arange(len(illuminants)))
    return Chromagenic(fitted.transform, illuminants, fitted.valid)


@checked
def chromagenic_estimate(
    model: Chromagenic,
    main: Float[Array, "n 3"],
    second: Float[Array, "n 3"],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
    normalize: Literal["mean"] | None = None,
) -> Float[Array, "3"]:
    """Return the candidate illuminant whose transform fits the pair with the least squared error.

    Operation phase of Finlayson, Hordley and Morovic 2005 (CVPR).

    Args:
      model: model from `fit_chromagenic`.
      main: colours of the main camera, `[n, 3]`.
      second: colours of the second camera at the same points, `[n, 3]`.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks a pixel.
      normalize: that of the model's fit.

    Returns:
      A row of the model's illuminants. NaN where no candidate has a finite error, where every pixel
        is black or masked, or where `normalize` is "mean" and a mean is not positive.
    """
    if normalize == "mean":
        main, second = _divide_by_means(main, second, weights)
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


def _divide_by_means(
    main: Float[Array, "*pairs n 3"],
    second: Float[Array, "*pairs n 3"],
    weights: Float[Array, "*pairs n"] | None,
) -> list[Float[Array, "*pairs n 3"]]:
    """Divide images by their means over pixels and channels.

    Both images of a pair with a mean that is not positive become black.
    """
    means = [_mean(images, weights)[..., None, None] for images in (main, second)]
    positive = (means[0] > 0) & (means[1] > 0)
    return [
        jnp.where(positive, images / jnp.where(positive, mean, 1), 0)
        for images, mean in zip((main, second), means, strict=True)
    ]


def _mean(
    images: Float[Array, "*pairs n 3"], weights: Float[Array, "*pairs n"] | None
) -> Float[Array, "*pairs"]:
    if weights is None:
        return jnp.mean(images, axis=(-2, -1))
    # A masked pixel may hold anything.
    seen = jnp.where((weights > 0)[..., None], images, 0)
    sums = jnp.sum(jnp.mean(seen, axis=-1) * weights, axis=-1)
    total = jnp.sum(weights, axis=-1)
    return sums / jnp.where(total > 0, total, 1)
