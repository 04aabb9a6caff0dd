"""Conversion between illuminants (R, G, B) and green-relative chromaticities [R/G, B/G]."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import checked


@checked
def illuminant_to_chromaticity(illuminant: Float[Array, "*n 3"]) -> Float[Array, "*n 2"]:
    """Return [R/G, B/G] of an illuminant of any scale; infinite or NaN where green is 0."""
    return illuminant[..., ::2] / illuminant[..., 1:2]


@checked
def chromaticity_to_illuminant(chromaticity: Float[Array, "*n 2"]) -> Float[Array, "*n 3"]:
    """Return the illuminant (R/G, 1, B/G).

    Args:
      chromaticity: R/G and B/G, `[..., 2]`.
    """
    red, blue = chromaticity[..., 0], chromaticity[..., 1]
    return jnp.stack([red, jnp.ones_like(red), blue], axis=-1)
