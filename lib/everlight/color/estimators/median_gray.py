"""Gray World with medians, a toy that shows what a new estimator needs: this file and a test."""

from typing import Annotated

import jax.numpy as jnp

from everlight.checks import NotEmpty, checked
from everlight.color.illuminant_method import IlluminantMethod
from everlight.color.illuminants import Illuminant, Image, Mask, keep_observed, unit_illuminant


@checked
def median_gray(image: Annotated[Image, NotEmpty], mask: Mask) -> Illuminant:
    """Return the unit vector of the median of each channel's unmasked values; NaN without any.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
    """
    colors = keep_observed(image, mask)
    finite = jnp.all(jnp.isfinite(colors))
    observed = jnp.ones(image.shape[:2], bool) if mask is None else mask > 0
    medians = jnp.nanmedian(jnp.where(observed[..., None], colors, jnp.nan), axis=(0, 1))
    return unit_illuminant(jnp.where(finite, medians, jnp.nan))


METHODS = (IlluminantMethod("GW by medians", median_gray),)
