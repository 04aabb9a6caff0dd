"""Types of images, masks and illuminants, and the unit illuminant."""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import Between, checked

Image = Float[Array, "h w 3"]
# 0 leaves a pixel out, 1 keeps it.
Mask = Annotated[Float[Array, "h w"], Between(0, 1)] | Bool[Array, "h w"] | None
Illuminant = Float[Array, "3"]


@checked
def unit_illuminant(illuminant: Illuminant) -> Illuminant:
    """Scale an illuminant to unit length; NaN for the zero vector and for values not finite."""
    # Dividing by the peak first keeps the squares of dim illuminants from underflowing.
    scaled = illuminant / jnp.max(jnp.abs(illuminant))
    return scaled / jnp.sqrt(jnp.sum(scaled * scaled))


def unit_of_any_scale(illuminant: Illuminant) -> Illuminant:
    """Return `unit_illuminant`, with a gradient that is finite for dim and bright images too.

    The direction does not depend on the largest value, whose gradient has its inverse squared.
    """
    largest = jax.lax.stop_gradient(jnp.max(illuminant))
    return unit_illuminant(illuminant / jnp.where(largest == 0, 1, largest))


@checked
def keep_observed(image: Image, mask: Mask) -> Image:
    """Set masked pixels to 0, whatever their values; NaN elsewhere stays NaN.

    Args:
      image: linear image, `[h, w, 3]`.
      mask: False or 0 where a pixel is left out, `[h, w]`; None masks no pixel.
    """
    return image if mask is None else jnp.where((mask > 0)[..., None], image, 0)


def root(values: Array, degree: float | int = 2) -> Array:
    """Return the root of non-negative values, with a gradient of 0 instead of infinity at 0."""
    positive = values > 0
    # NaN is not positive, and stays.
    return jnp.where(
        positive, jnp.where(positive, values, 1) ** (1 / degree), jnp.where(values == 0, 0, values)
    )
