"""Image formation from spectra: the sum of illuminant times reflectance times sensitivity."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import (
    FINITE,
    LARGEST,
    NOT_NEGATIVE,
    POSITIVE,
    Between,
    NonNegativeFloat,
    NotEmpty,
    PositiveFloat,
    PositiveInt,
    check_range,
    checked,
)
from everlight.errors import ArgumentError
from everlight.precision import full_precision


@checked
@full_precision
def camera_responses(
    illuminant: Annotated[Float[Array, "w"], NOT_NEGATIVE],
    reflectances: Annotated[Float[Array, "n w"], NOT_NEGATIVE],
    sensitivity: Annotated[Float[Array, "3 w"], FINITE],
) -> Float[Array, "n 3"]:
    """Return raw colours of matte surfaces under one illuminant (two-camera paper, section 4.1).

    Args:
      illuminant: spectral power on a uniform grid of `w` wavelengths.
      reflectances: reflectance of each surface on the same grid, `[n, w]`.
      sensitivity: spectral sensitivity of the camera, channels R, G, B, `[3, w]`.

    Returns:
      Raw colours, `[n, 3]`, scaled as a sum over the grid.
    """
    return jnp.einsum("nw,w,cw->nc", reflectances, illuminant, sensitivity)


@checked
def illuminant_response(
    illuminant: Annotated[Float[Array, "w"], NOT_NEGATIVE],
    sensitivity: Annotated[Float[Array, "3 w"], FINITE],
) -> Float[Array, "3"]:
    """Return the response to a perfect reflector: the ground-truth illuminant, `[3]`.

    Args:
      illuminant: spectral power on a uniform grid of `w` wavelengths, in any unit.
      sensitivity: spectral sensitivity of the camera, channels R, G, B, `[3, w]`.
    """
    return camera_responses(illuminant, jnp.ones((1, illuminant.shape[0])), sensitivity)[0]


ROWS, COLUMNS = 4, 6
"""Patches of a thumbnail."""
SECOND_RADIATION_CONSTANT = 1.438776877e7
"""hc/k in nm K (CODATA 2018, exact in the SI)."""


@checked
def blackbody_power(
    temperature: Annotated[Float[Array, ""], Between(500, LARGEST)],
    wavelengths: Annotated[Float[Array, "w"], POSITIVE],
) -> Float[Array, "w"]:
    """Return the spectral power of a black body by Planck's law, normalized to 1 at 560 nm.

    Args:
      temperature: kelvin, at least 500; below that, float32 underflows at short wavelengths.
      wavelengths: wavelengths in nm, `[w]`.
    """
    exponentials = jnp.expm1(SECOND_RADIATION_CONSTANT / (wavelengths * temperature))
    at_560 = jnp.expm1(SECOND_RADIATION_CONSTANT / (560.0 * temperature))
    return (560.0 / wavelengths) ** 5 * (at_560 / exponentials)


class ResponseTable(NamedTuple):
    """One camera's raw colour of every surface under every illuminant."""

    surfaces: Float[Array, "i r 3"]
    illuminants: Float[Array, "i 3"]


@checked
@jax.jit
def response_table(
    illuminants: Annotated[Float[Array, "i w"], NOT_NEGATIVE],
    reflectances: Annotated[Float[Array, "r w"], NOT_NEGATIVE],
    sensitivity: Annotated[Float[Array, "3 w"], FINITE],
) -> ResponseTable:
    """Compute the response to every surface under every illuminant.

    Scenes drawn from the table need only lookups, not integrals.

    Args:
      illuminants: spectral power of each illuminant on a uniform grid, `[i, w]`, in any unit.
      reflectances: reflectance of each surface on the same grid, `[r, w]`.
      sensitivity: spectral sensitivity of the camera, channels R, G, B, `[3, w]`.
    """
    return ResponseTable(
        jax.vmap(camera_responses, (0, None, None))(illuminants, reflectances, sensitivity),
        jax.vmap(illuminant_response, (0, None))(illuminants, sensitivity),
    )


@checked
def scene_colors(
    table: ResponseTable, illuminant: Int[Array, ""], reflectances: Int[Array, "n"]
) -> Float[Array, "n 3"]:
    """Return the colours of one scene: `n` surfaces of the table under one of its illuminants.

    Args:
      table: raw colours of all surfaces under all illuminants.
      illuminant: row of the illuminant, `[]`.
      reflectances: rows of the surfaces, `[n]`.

    Returns:
      Raw colours, `[n, 3]`, in the table's scale.

    Raises:
      ValueError: an illuminant or surface index is outside the table.
    """
    illuminant_count, surfaces, _ = table.surfaces.shape
    check_range("illuminant", illuminant, 0, illuminant_count - 1)
    check_range("reflectances", reflectances, 0, surfaces - 1)
    return table.surfaces[illuminant, reflectances]


@checked
def patch_thumbnail(colors: Float[Array, "24 3"], patch: PositiveInt = 8) -> Float[Array, "h w 3"]:
    """Arrange 24 colours as the paper's 32x48 thumbnail: a 4x6 grid of 8x8 patches, row by row.

    Args:
      colors: colours of the chart's patches, row by row, `[24, 3]`.
      patch: pixels of a patch's side.

    Returns:
      Thumbnail of 4 × 6 patches, `[4 patch, 6 patch, 3]`.
    """
    grid = colors.reshape(ROWS, COLUMNS, 3)
    return jnp.repeat(jnp.repeat(grid, patch, axis=0), patch, axis=1)


class Sensor(NamedTuple):
    """Noise and quantization of a camera sensor; the defaults are harsh.

    Attributes:
      read_noise: standard deviation of signal-independent noise, as a fraction of white.
      full_well: electrons at white; photon noise is the square root of their number.
      bits: bits of the converter between black and white, at most the 24 of a float32.
      stops: largest underexposure relative to saturating the brightest colour, in stops.
    """

    read_noise: Annotated[Float[Array, ""] | float, NOT_NEGATIVE] = 0.01
    full_well: PositiveFloat = 10_000.0
    bits: Annotated[int, Between(1, 24)] = 10
    stops: NonNegativeFloat = 2.0


class DualExposure(NamedTuple):
    """Two frames of one scene, 0 at black and 1 at white."""

    short: Float[Array, "h w 3"]
    long: Float[Array, "h w 3"]


@checked
def take_photograph(
    key: PRNGKeyArray,
    colors: Annotated[Float[Array, "24 3"], NOT_NEGATIVE],
    sensor: Sensor,
    patch: PositiveInt = 8,
) -> Float[Array, "h w 3"]:
    """Simulate a sensor's thumbnail of exact colours, with 0 at black and 1 at white.

    A random exposure puts the brightest response between white and `stops` below it. Photon noise
    (Gaussian with the Poisson variance), read noise, quantization and clipping at white follow.
    Values below black are kept, since sensors add an offset to 0.

    Args:
      key: key of exposure and noise.
      colors: exact responses of the patches, `[24, 3]`, any scale; black ones give read noise.
      sensor: noise and quantization of the sensor.
      patch: side of a patch in pixels.
    """
    key_exposure, key_noise = jax.random.split(key)
    brightest = 2.0 ** jax.random.uniform(key_exposure, minval=-sensor.stops, maxval=0.0)
    return _expose(key_noise, colors * (brightest / _peak(colors)), sensor, patch)


@checked
def take_exposures(
    key: PRNGKeyArray,
    colors: Float[Array, "24 3"],
    sensor: Sensor,
    ratio: PositiveFloat = 8.0,
    patch: PositiveInt = 8,
) -> DualExposure:
    """Simulate two frames of one scene, the long one `ratio` times as long as the short one.

    The short frame is that of `take_photograph` with the same key, so that nothing of it clips but
    noise. The long one has less noise in the shadows, and bright colours clip at white.

    Args:
      key: key of exposure and noise.
      colors: exact responses of the patches, `[24, 3]`, any scale; black ones give read noise.
      sensor: noise and quantization of the sensor.
      ratio: ratio of the exposure times.
      patch: side of a patch in pixels.
    """
    key_exposure, _ = jax.random.split(key)
    brightest = 2.0 ** jax.random.uniform(key_exposure, minval=-sensor.stops, maxval=0.0)
    longer = colors * (ratio * brightest / _peak(colors))
    key_long = jax.random.fold_in(key, 1)
    return DualExposure(
        take_photograph(key, colors, sensor, patch), _expose(key_long, longer, sensor, patch)
    )


def _peak(colors: Float[Array, "24 3"]) -> Float[Array, ""]:
    """Return the largest response, or 1 where all are 0."""
    largest = jnp.max(colors)
    return jnp.where(largest == 0, 1, largest)


def _expose(
    key: PRNGKeyArray, exact: Float[Array, "24 3"], sensor: Sensor, patch: int
) -> Float[Array, "h w 3"]:
    """Return the thumbnail of exact responses on the sensor's scale, with its noise."""
    exact = patch_thumbnail(exact, patch=patch)
    variance = sensor.read_noise**2 + exact / sensor.full_well
    noisy = exact + jnp.sqrt(variance) * jax.random.normal(key, exact.shape)
    levels = 2**sensor.bits - 1
    return jnp.minimum(jnp.round(noisy * levels) / levels, 1)


@checked
@full_precision
def ambient_readings(
    illuminants: Float[Array, "i w"],
    reflectances: Float[Array, "r w"],
    sensitivities: Float[Array, "c w"],
) -> Float[Array, "i r c"]:
    """Return the readings of a sensor of `c` channels before each surface under each illuminant.

    Koskinen et al. 2023, "Single Pixel Spectral Color Constancy" (IJCV): a sensor without an image
    sees the mean light that a scene reflects; the reading of a scene is the mean of its surfaces'.

    Args:
      illuminants: spectral power on a uniform grid of `w` wavelengths.
      reflectances: reflectance of each surface on the same grid.
      sensitivities: spectral sensitivity of each channel on the same grid.
    """
    return jnp.einsum("iw,rw,cw->irc", illuminants, reflectances, sensitivities)


@checked
def patch_means(thumbnail: Annotated[Float[Array, "h w 3"], NotEmpty]) -> Float[Array, "24 3"]:
    """Return the mean colour of each patch of a thumbnail, row by row.

    Args:
      thumbnail: grid of 4 × 6 patches of equal size, as of `patch_thumbnail`, `[h, w, 3]`.

    Raises:
      ValueError: the height is no multiple of 4, or the width none of 6.
    """
    if thumbnail.shape[0] % ROWS or thumbnail.shape[1] % COLUMNS:
        raise ArgumentError(
            f"a thumbnail of {thumbnail.shape[0]}×{thumbnail.shape[1]} pixels has no grid of "
            f"{ROWS}×{COLUMNS} equal patches; crop it"
        )
    height, width = thumbnail.shape[0] // ROWS, thumbnail.shape[1] // COLUMNS
    blocks = thumbnail.reshape(ROWS, height, COLUMNS, width, 3)
    return jnp.mean(blocks, axis=(1, 3)).reshape(ROWS * COLUMNS, 3)
