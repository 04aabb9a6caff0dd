"""White points: the chromaticity of a camera's neutral, its temperature and tint, a chart's matrix.

A camera's neutral, its colour of a grey surface, has a chromaticity only by a calibration, whose
matrix depends on the temperature of that chromaticity. The DNG specification 1.7, chapter 6
("Translating Camera Neutral Coordinates to White Balance xy Coordinates") solves this by iteration.

Temperatures are those of Robertson 1968, "Computation of Correlated Color Temperature and
Distribution Temperature" (Journal of the Optical Society of America 58), by his 31 isotemperature
lines (Wyszecki and Stiles 1982, "Color Science: Concepts and Methods, Quantitative Data and
Formulae", table 1(3.11)). Raw converters show these, and the distance from the Planckian locus as a
tint of 3,000 units per unit of CIE 1960 (u, v).
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.checks import POSITIVE, checked
from everlight.color.camera_calibration import CameraCalibration, calibrated_matrix
from everlight.color.transforms import inverse_transform
from everlight.precision import full_precision, matrix_product

D50_CHROMATICITY = (0.3457, 0.3585)
"""CIE x and y of D50, from which the iteration starts."""
D65_CHROMATICITY = (0.3127, 0.3290)
"""CIE x and y of D65, the white of sRGB."""
PASSES = 30
"""Number of iterations; the mean of the last two counts where they alternate."""
TINT_SCALE = 3_000.0
"""Tint per unit of distance from the Planckian locus in CIE 1960 (u, v)."""
MIN_MIRED = 10.0
"""Inverse temperature of the hottest illuminant, 100,000 K, in reciprocal megakelvin."""
# Bradford's cone responses (Lam 1985, as in the DNG specification); XYZ are columns.
BRADFORD = np.array(
    [[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]], np.float32
)
# Bradford's adaptation of XYZ from D65 to D50 (Lindbloom, "Chromatic Adaptation"); XYZ are columns.
D65_TO_D50 = np.array(
    [
        [1.0478112, 0.0228866, -0.0501270],
        [0.0295424, 0.9904844, -0.0170491],
        [-0.0092345, 0.0150436, 0.7521316],
    ],
    np.float32,
)
# fmt: off
ISOTEMPERATURE_LINES = np.array([
    [0, 0.18006, 0.26352, -0.24341], [10, 0.18066, 0.26589, -0.25479],
    [20, 0.18133, 0.26846, -0.26876], [30, 0.18208, 0.27119, -0.28539],
    [40, 0.18293, 0.27407, -0.30470], [50, 0.18388, 0.27709, -0.32675],
    [60, 0.18494, 0.28021, -0.35156], [70, 0.18611, 0.28342, -0.37915],
    [80, 0.18740, 0.28668, -0.40955], [90, 0.18880, 0.28997, -0.44278],
    [100, 0.19032, 0.29326, -0.47888], [125, 0.19462, 0.30141, -0.58204],
    [150, 0.19962, 0.30921, -0.70471], [175, 0.20525, 0.31647, -0.84901],
    [200, 0.21142, 0.32312, -1.0182], [225, 0.21807, 0.32909, -1.2168],
    [250, 0.22511, 0.33439, -1.4512], [275, 0.23247, 0.33904, -1.7298],
    [300, 0.24010, 0.34308, -2.0637], [325, 0.24792, 0.34655, -2.4681],
    [350, 0.25591, 0.34951, -2.9641], [375, 0.26400, 0.35200, -3.5814],
    [400, 0.27218, 0.35407, -4.3633], [425, 0.28039, 0.35577, -5.3762],
    [450, 0.28863, 0.35714, -6.7262], [475, 0.29685, 0.35823, -8.5955],
    [500, 0.30505, 0.35907, -11.324], [525, 0.31320, 0.35968, -15.628],
    [550, 0.32129, 0.36011, -23.325], [575, 0.32931, 0.36038, -40.770],
    [600, 0.33724, 0.36051, -116.45],
], np.float32)
# fmt: on
"""Inverse temperature in reciprocal megakelvin, u and v on the locus, and slope of each line."""


class WhitePoint(NamedTuple):
    """White point of an illuminant.

    Attributes:
      chromaticity: CIE x and y.
      temperature: correlated colour temperature in kelvin.
      tint: 3,000 times the distance from the Planckian locus in CIE 1960 (u, v), which is Duv;
        positive for greenish illuminants, above the locus, and negative for magenta ones. The sign
        is opposite to that of `LocusPoint.distance`.
    """

    chromaticity: Float[Array, "2"]
    temperature: Float[Array, ""]
    tint: Float[Array, ""]


@checked
def describe_white_point(chromaticity: Float[Array, "2"]) -> WhitePoint:
    """Return the temperature and tint of a chromaticity.

    Args:
      chromaticity: CIE x and y. Temperatures end at 1,667 and 100,000 K; others get the end.
    """
    x, y = chromaticity
    point = jnp.stack([2 * x, 3 * y]) / (1.5 - x + 6 * y)
    mireds, us, vs, slopes = jnp.asarray(ISOTEMPERATURE_LINES.T)
    locus = jnp.stack([us, vs], axis=1)
    lengths = jnp.sqrt(1 + slopes**2)
    distances = ((point[1] - vs) - slopes * (point[0] - us)) / lengths
    passed = distances[1:] <= 0
    last = jnp.where(jnp.any(passed), jnp.argmax(passed), len(mireds) - 2) + 1
    before, after = distances[last - 1], -distances[last]
    total = before + after
    share = jnp.clip(before / jnp.where(total > 0, total, 1), 0, 1)

    def interpolated(values: Float[Array, "31 *n"]) -> Float[Array, "*n"]:
        return (1 - share) * values[last - 1] + share * values[last]

    direction = interpolated(jnp.stack([1 / lengths, slopes / lengths], axis=1))
    direction = direction / jnp.linalg.norm(direction)
    tint = -TINT_SCALE * jnp.sum((point - interpolated(locus)) * direction)
    temperature = 1e6 / jnp.maximum(interpolated(mireds), MIN_MIRED)
    return WhitePoint(chromaticity, temperature, tint)


@checked
def neutral_white_point(
    calibration: CameraCalibration,
    neutral: Annotated[Float[Array, "3"], POSITIVE],
) -> WhitePoint:
    """Return the white point that a camera's neutral has by the camera's calibration.

    Args:
      calibration: the camera's matrices.
      neutral: camera colour of a grey surface, of any scale.

    Returns:
      The white point. A neutral without a chromaticity, whose sum of X, Y and Z is not positive,
      gives NaN.
    """

    def improve(chromaticity: Float[Array, "2"], _: None) -> tuple[Float[Array, "2"], Array]:
        matrix = calibrated_matrix(calibration, describe_white_point(chromaticity).temperature)
        xyz = matrix_product(inverse_transform(matrix), neutral)
        total = jnp.sum(xyz)
        positive = total > 0
        improved = jnp.where(positive, xyz[:2] / jnp.where(positive, total, 1), jnp.nan)
        return improved, improved

    start = jnp.asarray(D50_CHROMATICITY, neutral.dtype)
    _, passes = jax.lax.scan(improve, start, length=PASSES)
    return describe_white_point((passes[-2] + passes[-1]) / 2)


@checked
def bradford_adaptation(
    source: Annotated[Float[Array, "2"], POSITIVE], target: Annotated[Float[Array, "2"], POSITIVE]
) -> Float[Array, "3 3"]:
    """Return Bradford's adaptation of XYZ from one white to another; XYZ are columns.

    Args:
      source: CIE x and y of the white that is mapped.
      target: CIE x and y of the white to which it is mapped.
    """
    responses = [
        matrix_product(BRADFORD, jnp.stack([x / y, jnp.ones_like(x), (1 - x - y) / y]))
        for x, y in (source, target)
    ]
    gains = responses[1] / responses[0]
    return matrix_product(inverse_transform(jnp.asarray(BRADFORD)), gains[:, None] * BRADFORD)


@checked
def forward_camera_matrix(forward: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Return the matrix from XYZ under D65 to camera colours that a forward matrix implies.

    `camera_to_srgb` of it is the forward matrix, from white-balanced camera colours to XYZ under
    D50, followed by Bradford's adaptation to D65 and the matrix to sRGB.

    Args:
      forward: matrix from white-balanced camera colours to XYZ under D50; both are columns.
    """
    return matrix_product(inverse_transform(forward), D65_TO_D50)


@full_precision
@checked
def white_preserving_transform(
    source: Float[Array, "n 3"],
    target: Float[Array, "n 3"],
    source_white: Annotated[Float[Array, "3"], POSITIVE],
    target_white: Annotated[Float[Array, "3"], POSITIVE],
) -> Float[Array, "3 3"]:
    """Fit the transform of least squares among those that map white to white exactly.

    Every such transform is `outer(w, target_white)`, where w is the source's white divided by its
    squared length, plus one that maps the source's white to zero. The second is fitted, to the
    parts of the colours that are perpendicular to white. These need two dimensions, beyond the
    rounding of the colours themselves.

    Args:
      source: colours as rows, `[n, 3]`, n >= 2, not all in one plane with white.
      target: the same surfaces' colours in the other space.
      source_white: white in the source's space.
      target_white: white in the target's space.

    Returns:
      The transform T of `target ≈ source @ T`; NaN where all colours are in one plane with white,
        as greys are, or one is not finite.
    """
    length = jnp.linalg.norm(source_white)
    unit = source_white / length
    # Two directions that are perpendicular to white and to each other.
    axis = jnp.eye(3, dtype=source.dtype)[jnp.argmin(jnp.abs(unit))]
    first = jnp.cross(unit, axis)
    first = first / jnp.linalg.norm(first)
    basis = jnp.stack([first, jnp.cross(unit, first)])
    fixed = jnp.outer(unit / length, target_white)
    fitted, _, _, singular = jnp.linalg.lstsq(source @ basis.T, target - source @ fixed)
    # The perpendicular parts of greys are rounding alone, which `lstsq` takes for colours.
    rounding = 16 * jnp.finfo(singular.dtype).eps * jnp.linalg.norm(source)
    return jnp.where(singular[-1] > rounding, fixed + basis.T @ fitted, jnp.nan)
