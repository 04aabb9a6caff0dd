"""The locus of a camera: colours of its usual illuminants by colour temperature.

Raspberry Pi's tuning files state a locus as `ct_curve`: [R/G, B/G] of a grey surface at increasing
colour temperatures, with straight lines between them (libcamera, `src/ipa/rpi/controller/rpi/
awb.cpp` and `src/ipa/libipa/pwl.cpp`). Illuminants near the locus are likely, so that an estimate
is often improved by the nearest colour on it.
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import POSITIVE, check_increasing, check_sizes, checked
from everlight.color.illuminants import root
from everlight.color.white_points import white_preserving_transform
from everlight.errors import ArgumentError
from everlight.precision import full_precision, matrix_product

MIRED = 1e6
"""Product of a colour temperature in kelvin and the same one in mired."""


class Locus(NamedTuple):
    """Colours of a camera's usual illuminants.

    Attributes:
      temperatures: colour temperatures in kelvin, ascending, at least two.
      chromaticities: [R/G, B/G] of a grey surface at each temperature.
    """

    temperatures: Annotated[Float[Array, "k"], POSITIVE]
    chromaticities: Float[Array, "k 2"]


class LocusPoint(NamedTuple):
    """The point of a locus nearest to a chromaticity.

    Attributes:
      temperature: its colour temperature in kelvin.
      chromaticity: its [R/G, B/G].
      distance: distance of the given chromaticity from it, in units of R/G and B/G. It is positive
        where R/G and B/G are larger than on the locus (magenta), and negative on the green side.
        The sign is opposite to that of Duv and of `WhitePoint.tint`.
    """

    temperature: Float[Array, ""]
    chromaticity: Float[Array, "2"]
    distance: Float[Array, ""]


@checked
def locus_chromaticity(
    locus: Locus, temperature: Annotated[Float[Array, ""], POSITIVE]
) -> Float[Array, "2"]:
    """Return [R/G, B/G] of a locus at a colour temperature, linear between its points.

    Beyond its ends the nearest end counts, as where libcamera clamps a temperature to the domain.

    Args:
      locus: colours of the camera's illuminants.
      temperature: colour temperature in kelvin; NaN gives NaN.

    Raises:
      ValueError: the locus has fewer than two points, or its temperatures do not ascend.
    """
    _check_points(locus)
    red, blue = (
        jnp.interp(temperature, locus.temperatures, values) for values in locus.chromaticities.T
    )
    return jnp.stack([red, blue])


@checked
def nearest_on_locus(locus: Locus, chromaticity: Float[Array, "2"]) -> LocusPoint:
    """Return the point of a locus nearest to a chromaticity, in the plane of R/G and B/G.

    Args:
      locus: colours of the camera's illuminants.
      chromaticity: [R/G, B/G]; where it is not finite, the result is NaN.

    Raises:
      ValueError: the locus has fewer than two points, or its temperatures do not ascend.
    """
    _check_points(locus)
    starts, ends = locus.chromaticities[:-1], locus.chromaticities[1:]
    along = ends - starts
    lengths = jnp.sum(along**2, axis=1)
    reached = jnp.sum((chromaticity - starts) * along, axis=1)
    share = jnp.clip(reached / jnp.where(lengths > 0, lengths, 1), 0, 1)
    points = starts + share[:, None] * along
    squares = jnp.sum((chromaticity - points) ** 2, axis=1)
    best = jnp.argmin(squares)
    outward = jnp.stack([along[best, 1], -along[best, 0]])
    side = jnp.where(jnp.sum((chromaticity - points[best]) * outward) < 0, -1, 1)
    low, high = locus.temperatures[best], locus.temperatures[best + 1]
    known = jnp.where(jnp.isfinite(squares[best]), 0, jnp.nan)
    return LocusPoint(
        low + share[best] * (high - low) + known,
        points[best] + known,
        side * root(squares[best]) + known,
    )


@checked
@full_precision
def fit_locus(
    temperatures: Annotated[Float[Array, "n"], POSITIVE],
    chromaticities: Float[Array, "n 2"],
    knots: Annotated[Float[Array, "k"], POSITIVE],
) -> Locus:
    """Fit a locus to illuminants of known colour temperature by least squares.

    The locus is linear in temperature between its points, and constant beyond their ends. Without
    an illuminant near a point the points' smallest values that fit are taken.

    Args:
      temperatures: colour temperatures of the illuminants in kelvin, `[n]`.
      chromaticities: their [R/G, B/G], `[n, 2]`; NaN where one of all is not finite.
      knots: colour temperatures of the points in kelvin, ascending, `[k]`, at least two and at most
        as many as illuminants.

    Raises:
      ValueError: there are fewer than two knots, more knots than illuminants, or the knots do not
        ascend.
    """
    if not 2 <= len(knots) <= len(temperatures):
        raise ArgumentError(
            f"{len(knots)} knots for {len(temperatures)} illuminants; give at least 2 knots and at "
            "most one per illuminant"
        )
    check_increasing("knots", knots)
    weights = jnp.stack(
        [jnp.interp(temperatures, knots, unit) for unit in jnp.eye(len(knots))], axis=1
    )
    return Locus(knots, jnp.linalg.lstsq(weights, chromaticities)[0])


@checked
def fit_color_matrix(
    source: Float[Array, "n 3"], target: Float[Array, "n 3"]
) -> Float[Array, "3 3"]:
    """Fit a colour matrix whose rows sum to 1, so that white stays white, by least squares.

    The matrix multiplies colours as columns, `matrix @ color`, as `ccm` of a tuning file does
    (libcamera, `src/ipa/rpi/controller/rpi/ccm.cpp`).

    Args:
      source: white-balanced linear colours of a camera, such as a chart's patches, `[n, 3]`.
      target: the same colours in the target space, such as linear sRGB, `[n, 3]`.

    Returns:
      The matrix; NaN where a colour is not finite, or all source colours are in one plane with
        white, as greys and those of one hue are.

    Raises:
      ValueError: there are fewer than two colours.
    """
    if len(source) < 2:
        raise ArgumentError(f"{len(source)} colours; a row of the matrix needs at least 2")
    white = jnp.ones(3, source.dtype)
    return white_preserving_transform(source, target, white, white).T


@checked
def interpolate_matrices(
    temperatures: Annotated[Float[Array, "k"], POSITIVE],
    matrices: Float[Array, "k 3 3"],
    temperature: Annotated[Float[Array, ""], POSITIVE],
) -> Float[Array, "3 3"]:
    """Return the colour matrix at a colour temperature, linear between those that are given.

    Beyond the ends the nearest matrix counts, as in libcamera's `ccm.cpp`.

    Args:
      temperatures: colour temperatures of the matrices in kelvin, ascending, `[k]`.
      matrices: their colour matrices, `[k, 3, 3]`; NaN where one is not finite.
      temperature: colour temperature in kelvin; NaN gives NaN.

    Raises:
      ValueError: there is no matrix, or the temperatures do not ascend.
    """
    if not len(matrices):
        raise ArgumentError("no matrices; give at least one")
    check_increasing("temperatures", temperatures)
    entries = [jnp.interp(temperature, temperatures, entry) for entry in matrices.reshape(-1, 9).T]
    return jnp.stack(entries).reshape(3, 3)


@checked
def rendering_transform(
    white: Annotated[Float[Array, "2"], POSITIVE], matrix: Float[Array, "3 3"]
) -> Float[Array, "3 3"]:
    """Return the transform from raw to rendered colours, `rendered = raw @ transform`.

    Raw colours are divided by a white and multiplied by a colour matrix. Raspberry Pi's network for
    white balance reads colours rendered at 5,000 K by every camera (libcamera, `awb_nn.cpp`).

    Args:
      white: [R/G, B/G] of the white that becomes grey; NaN gives NaN.
      matrix: colour matrix that multiplies columns; NaN where it is not finite.
    """
    gains = jnp.stack([1 / white[0], jnp.ones(()), 1 / white[1]])
    return matrix_product(jnp.diag(gains), matrix.T)


def _check_points(locus: Locus) -> None:
    check_sizes(temperatures=(locus.temperatures, 0), chromaticities=(locus.chromaticities, 0))
    if len(locus.temperatures) < 2:
        raise ArgumentError(f"locus has {len(locus.temperatures)} points; give at least 2")
    check_increasing("locus.temperatures", locus.temperatures)
