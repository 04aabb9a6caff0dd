"""White points of photos, and the matrix of the illuminant by which a photo is rendered."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.camera_calibration import CameraCalibration, calibrated_matrix
from everlight.color.transforms import inverse_transform
from everlight.color.white_points import (
    D65_CHROMATICITY,
    WhitePoint,
    bradford_adaptation,
    forward_camera_matrix,
    neutral_white_point,
)
from everlight.precision import matrix_product
from everlight_data.color.raw_files.calibrations import DngCalibration, photo_colors
from everlight_data.color.raw_files.raw import RawImage
from everlight_data.errors import DataError


class PhotoWhite(NamedTuple):
    """White point of a photo's illuminant, and the camera's matrix under it."""

    chromaticity: tuple[float, float]
    """CIE x and y."""
    temperature: float
    """Correlated colour temperature in kelvin."""
    tint: float
    """Tint, as raw converters show it; positive for greenish illuminants, negative for magenta."""
    xyz_to_camera: Float[Array, "3 3"]
    """Matrix for `everlight.color.render`, from XYZ under D65 to camera colours.

    It lies between the two matrices of the calibration, which map XYZ under the illuminant, and
    begins with Bradford's adaptation of D65 to it. It follows from the forward matrices where the
    calibration has them.
    """


def photo_white(
    photo: RawImage, illuminant: Float[np.ndarray, "3"], matrices: Path | None = None
) -> PhotoWhite | None:
    """Return the white point of an illuminant by the calibration of the photo's camera.

    Args:
      photo: photo from `read_photo`.
      illuminant: (r, g, b) of the light in the camera's raw colours, of any scale.
      matrices: file of matrices, as for `photo_colors`.

    Returns:
      The white point. It is None where the illuminant has no chromaticity or matrix, and where
      `matrices` is not given and the photo has no calibration, or one that is not supported.

    Raises:
      MissingDataError: the file of matrices does not exist.
      DataError: the given matrices are damaged, or not of the camera.
    """
    try:
        colors = photo_colors(photo, matrices)
    except DataError:
        if matrices is not None:
            raise
        return None
    neutral = jnp.asarray(illuminant / np.max(illuminant), jnp.float32)
    white = _white_point(colors.calibration, neutral)
    if not all(np.isfinite(leaf).all() for leaf in white) or (white.chromaticity <= 0).any():
        return None
    matrix = _rendering_matrix(colors, white, neutral)
    if not np.isfinite(matrix).all():
        return None
    return PhotoWhite(
        tuple(np.asarray(white.chromaticity, float).tolist()),
        float(white.temperature),
        float(white.tint),
        matrix,
    )


_white_point = jax.jit(neutral_white_point)


@jax.jit
def _rendering_matrix(
    colors: DngCalibration, white: WhitePoint, neutral: Float[Array, "3"]
) -> Float[Array, "3 3"]:
    """Return the matrix from XYZ under D65 to camera colours.

    The DNG specification 1.7, chapter 6, has CameraToXYZ_D50 = CA · ColorMatrix^-1, where CA adapts
    the illuminant's white to D50; with forward matrices it is ForwardMatrix · D · (AB · CC)^-1,
    where D divides by the reference camera's neutral, (AB · CC)^-1 · neutral.
    """

    def interpolate(matrices: Float[Array, "k 3 3"]) -> Float[Array, "3 3"]:
        ends = CameraCalibration(
            jnp.asarray(matrices, jnp.float32), colors.calibration.temperatures
        )
        return calibrated_matrix(ends, white.temperature)

    if colors.forward is None:
        d65 = jnp.asarray(D65_CHROMATICITY, jnp.float32)
        adaptation = bradford_adaptation(d65, white.chromaticity)
        return matrix_product(interpolate(colors.calibration.matrices), adaptation)
    to_reference = inverse_transform(interpolate(colors.individual))
    reference = matrix_product(to_reference, neutral)
    # The columns are colours divided by the camera's neutral.
    balanced = neutral * to_reference / reference[:, None]
    return forward_camera_matrix(matrix_product(interpolate(colors.forward), balanced))


def describe_white(white: PhotoWhite) -> str:
    """Return a white point in words."""
    x, y = white.chromaticity
    return f"{white.temperature:.0f} K, tint {white.tint:+.0f}, CIE x {x:.4f}, y {y:.4f}"
