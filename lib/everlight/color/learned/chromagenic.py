"""Chromagenic colour constancy: of several known illuminants, the one whose transform fits best."""

from typing import Annotated, NamedTuple

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
) -> Chromagenic:
    """Fit one transform per candidate illuminant to all training colours seen under it.

    Preprocessing of Finlayson, Hordley and Morovic 2005 (CVPR): T_i maps the main camera's colours
    under illuminant i to the second camera's by least squares.

    Args:
      main: colours of the main camera, `[pairs, n, 3]`.
      second: colours of the second camera at the same points, `[pairs, n, 3]`.
      labels: index into `illuminants` of each pair's illuminant, `[pairs]`.
      illuminants: candidate illuminants in the main camera's RGB, `[m, 3]`.

    Returns:
      The candidates. A candidate is invalid and never selected if it has no pairs or its colours
        have rank below 3.

    Raises:
      ValueError: a label is not an index into `illuminants`.
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
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
) -> Float[Array, "3"]:
    """Return the candidate illuminant whose transform fits the pair with the least squared error.

    Operation phase of Finlayson, Hordley and Morovic 2005 (CVPR).

    Args:
      model: model from `fit_chromagenic`.
      main: colours of the main camera, `[n, 3]`.
      second: colours of the second camera at the same points, `[n, 3]`.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks a pixel.

    Returns:
      A row of the model's illuminants. NaN where no candidate has a finite error, or where every
        pixel is black or masked.
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
