"""Image formation from spectra: light times reflectance times sensitivity, summed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import PositiveInt, check_range, checked


@checked
def camera_responses(
    illuminant: Float[Array, "w"],
    reflectances: Float[Array, "n w"],
    sensitivity: Float[Array, "3 w"],
) -> Float[Array, "n 3"]:
    """Raw colours of matte surfaces under one light (two-camera paper, section 4.1).

    Args:
      illuminant: spectral power on a uniform grid of `w` wavelengths.
      reflectances: reflectance of each surface on the same grid, `[n, w]`.
      sensitivity: the camera's spectral sensitivity, channels R, G, B, `[3, w]`.

    Returns:
      `[n, 3]`, on the scale of a sum over the grid.
    """
    return jnp.einsum(
        "nw,w,cw->nc", reflectances, illuminant, sensitivity, precision=jax.lax.Precision.HIGHEST
    )


@checked
def illuminant_response(
    illuminant: Float[Array, "w"], sensitivity: Float[Array, "3 w"]
) -> Float[Array, "3"]:
    """The response to a perfect reflector: the ground-truth illuminant, `[3]`."""
    return camera_responses(illuminant, jnp.ones((1, illuminant.shape[0])), sensitivity)[0]


SECOND_RADIATION_CONSTANT = 1.438776877e7
"""hc/k in nm K (CODATA 2018, exact in the SI)."""


@checked
def blackbody_power(
    temperature: Float[Array, ""], wavelengths: Float[Array, "w"]
) -> Float[Array, "w"]:
    """Spectral power of a black body by Planck's law, 1 at 560 nm.

    Args:
      temperature: kelvin, above 500; below, float32 does not hold the blue end.
      wavelengths: nm, `[w]`.
    """
    here = jnp.expm1(SECOND_RADIATION_CONSTANT / (wavelengths * temperature))
    at_560 = jnp.expm1(SECOND_RADIATION_CONSTANT / (560.0 * temperature))
    return (560.0 / wavelengths) ** 5 * (at_560 / here)


class ResponseTable(NamedTuple):
    """One camera's raw colour of every surface under every light."""

    surfaces: Float[Array, "i r 3"]
    illuminants: Float[Array, "i 3"]


@checked
@jax.jit
def response_table(
    illuminants: Float[Array, "i w"],
    reflectances: Float[Array, "r w"],
    sensitivity: Float[Array, "3 w"],
) -> ResponseTable:
    """Every light on every surface: scenes drawn from the table are gathers, not integrals."""
    return ResponseTable(
        jax.vmap(camera_responses, (0, None, None))(illuminants, reflectances, sensitivity),
        jax.vmap(illuminant_response, (0, None))(illuminants, sensitivity),
    )


@checked
def scene_colors(
    table: ResponseTable, illuminant: Int[Array, ""], reflectances: Int[Array, "n"]
) -> Float[Array, "n 3"]:
    """Colours of one scene: `n` surfaces of the table under one of its lights.

    Raises:
      ValueError: a light or a surface that the table does not have.
    """
    lights, surfaces, _ = table.surfaces.shape
    check_range("illuminant", illuminant, 0, lights - 1)
    check_range("reflectances", reflectances, 0, surfaces - 1)
    return table.surfaces[illuminant, reflectances]


@checked
def patch_thumbnail(
    colors: Float[Array, "24 3"],
    rows: PositiveInt = 4,
    columns: PositiveInt = 6,
    patch: PositiveInt = 8,
) -> Float[Array, "h w 3"]:
    """The paper's 32x48 thumbnail: 24 colours as 8x8 patches in a 4x6 grid, row by row."""
    grid = colors.reshape(rows, columns, 3)
    return jnp.repeat(jnp.repeat(grid, patch, axis=0), patch, axis=1)


class Sensor(NamedTuple):
    """How a photograph departs from the exact responses; the default is a harsh one.

    Attributes:
      read_noise: standard deviation of each pixel whatever it sees, as a share of white.
      full_well: electrons at white; the photons' own noise is their number's square root.
      bits: of the converter, between black and white.
      stops: by how much the exposure may fall short of saturating the brightest colour.
    """

    read_noise: Float[Array, ""] | float = 0.01
    full_well: float = 10_000.0
    bits: int = 10
    stops: float = 2.0


@checked
def take_photograph(
    key: PRNGKeyArray, colors: Float[Array, "24 3"], sensor: Sensor, patch: PositiveInt = 8
) -> Float[Array, "h w 3"]:
    """A thumbnail of exact colours as a sensor gives it, with 0 at black and 1 at white.

    Exposed at random so that the brightest response lies between white and `stops` below it, then
    photon noise (Gaussian of the Poisson's variance), read noise, quantisation, and clipping at
    white. Nothing is clipped at black: sensors count from a pedestal for just this reason.

    Args:
      key: randomness of exposure and noise.
      colors: exact responses of the patches, `[24, 3]`, any scale.
      sensor: its noise and bits.
      patch: side of a patch in pixels.
    """
    key_exposure, key_noise = jax.random.split(key)
    brightest = 2.0 ** jax.random.uniform(key_exposure, minval=-sensor.stops, maxval=0.0)
    exact = patch_thumbnail(colors * (brightest / jnp.max(colors)), patch=patch)
    variance = sensor.read_noise**2 + exact / sensor.full_well
    noisy = exact + jnp.sqrt(variance) * jax.random.normal(key_noise, exact.shape)
    levels = 2**sensor.bits - 1
    return jnp.minimum(jnp.round(noisy * levels) / levels, 1)


@checked
def patch_means(
    thumbnail: Float[Array, "h w 3"], rows: PositiveInt = 4, columns: PositiveInt = 6
) -> Float[Array, "24 3"]:
    """The mean colour of each patch of a thumbnail, row by row."""
    height, width = thumbnail.shape[0] // rows, thumbnail.shape[1] // columns
    blocks = thumbnail.reshape(rows, height, columns, width, 3)
    return jnp.mean(blocks, axis=(1, 3)).reshape(rows * columns, 3)
