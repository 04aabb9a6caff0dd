"""Colours of a tuning file, as the library's functions take them."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.color.locus import (
    Locus,
    interpolate_matrices,
    locus_chromaticity,
    rendering_transform,
)
from everlight_data.sets.camera_tuning import ColorMatrices, TemperatureCurve

CANONICAL = 5_000.0
"""Colour temperature in kelvin at which Raspberry Pi's network for white balance reads images."""


def locus_of(curve: TemperatureCurve) -> Locus:
    """Return the library's locus, of float32."""
    temperatures, chromaticities = (jnp.asarray(values, jnp.float32) for values in curve)
    return Locus(temperatures, chromaticities)


def illuminants_at(
    curve: TemperatureCurve, temperatures: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n 3"]:
    """Return (R/G, 1, B/G) of a locus at colour temperatures in kelvin."""
    kelvin = jnp.asarray(temperatures, jnp.float32)
    chromaticities = jax.vmap(locus_chromaticity, (None, 0))(locus_of(curve), kelvin)
    return np.asarray(chromaticity_to_illuminant(chromaticities))


def rendering_at(
    curve: TemperatureCurve, matrices: ColorMatrices, temperature: float = CANONICAL
) -> Float[np.ndarray, "3 3"]:
    """Return the transform from raw to rendered colours, `rendered = raw @ transform`.

    Rendered colours are divided by the white of a colour temperature in kelvin, and multiplied by
    its colour matrix.
    """
    kelvin = jnp.asarray(temperature, jnp.float32)
    white = locus_chromaticity(locus_of(curve), kelvin)
    temperatures, entries = (jnp.asarray(values, jnp.float32) for values in matrices)
    matrix = interpolate_matrices(temperatures, entries, kelvin)
    return np.asarray(rendering_transform(white, matrix))
