"""Rendering of linear camera RGB: white balance, camera matrix, sRGB transfer curve."""

from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.checks import FINITE, POSITIVE, checked
from everlight.color.transforms import is_inverse
from everlight.precision import matrix_product

Positive = Annotated[Float[Array, "3"], POSITIVE._replace(or_nan=True)]
"""Illuminant without a channel of 0; one of NaN gives NaN."""

# Linear sRGB to XYZ, white D65 (IEC 61966-2-1); XYZ and RGB are columns.
SRGB_TO_XYZ = np.array(
    [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]], np.float32
)


@checked
def white_balance(image: Float[Array, "*n 3"], illuminant: Positive) -> Float[Array, "*n 3"]:
    """Divide the image by the illuminant, keeping green: the illuminant's colour becomes grey."""
    return image * (illuminant[1] / illuminant)


@checked
def full_scale_balance(image: Float[Array, "*n 3"], illuminant: Positive) -> Float[Array, "*n 3"]:
    """White-balance with gains of at least 1, so that saturated pixels stay at 1 or above.

    The illuminant's largest channel is unchanged.

    Args:
      image: linear colours of a camera, saturated at 1, `[..., 3]`.
      illuminant: illuminant in the same colours, of any length, `[3]`.
    """
    return image * (jnp.max(illuminant) / illuminant)


@checked
def camera_to_srgb(xyz_to_camera: Annotated[Float[Array, "3 3"], FINITE]) -> Float[Array, "3 3"]:
    """Return the matrix M from white-balanced camera RGB to linear sRGB, applied as `rgb @ M`.

    Each camera channel is first scaled so that sRGB's white gives (1, 1, 1), as dcraw does
    (`cam_xyz_coeff`); so white-balanced greys stay grey.

    Args:
      xyz_to_camera: matrix from XYZ under D65 to camera RGB, `[3, 3]`, one row per camera channel,
        as in a DNG's ColorMatrix.

    Returns:
      The matrix M for colours as rows, `[3, 3]`; NaN where the camera matrix is singular
        within rounding (a condition number above about 5e5 in float32).
    """
    to_camera = matrix_product(xyz_to_camera, SRGB_TO_XYZ)
    to_camera = to_camera / jnp.sum(to_camera, axis=1, keepdims=True)
    to_srgb = jnp.linalg.inv(to_camera)
    return jnp.where(is_inverse(to_camera, to_srgb), to_srgb, jnp.nan).T


@checked
def encode_srgb(linear: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Apply the sRGB transfer curve (IEC 61966-2-1) to linear values in [0, 1]."""
    curved = 1.055 * jnp.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    return jnp.where(linear <= 0.0031308, 12.92 * linear, curved)


@checked
def render_linear(
    image: Float[Array, "*n 3"],
    illuminant: Positive,
    camera_matrix: Annotated[Float[Array, "3 3"], FINITE] | None = None,
) -> Float[Array, "*n 3"]:
    """White-balance a camera image and convert it to linear sRGB.

    Args:
      image: linear camera RGB, `[..., 3]`, 1 where the sensor saturates.
      illuminant: camera RGB of the illuminant, `[3]`, any scale, no channel 0.
      camera_matrix: XYZ under D65 to camera RGB, `[3, 3]`; None treats the camera's primaries as
        sRGB's.

    Returns:
      Linear sRGB in [0, 1], `[..., 3]`; the illuminant's largest channel has a gain of 1 and the
        others have larger gains.
    """
    # Clip before the matrix too, which would turn a saturated highlight magenta.
    balanced = jnp.clip(full_scale_balance(image, illuminant), 0, 1)
    if camera_matrix is not None:
        matrix = camera_to_srgb(camera_matrix)
        balanced = matrix_product(balanced, matrix)
    return jnp.clip(balanced, 0, 1)


@checked
def render(
    image: Float[Array, "*n 3"],
    illuminant: Positive,
    camera_matrix: Annotated[Float[Array, "3 3"], FINITE] | None = None,
) -> Float[Array, "*n 3"]:
    """White-balance a camera image and encode it as sRGB; arguments as in `render_linear`.

    Returns:
      Encoded sRGB in [0, 1], `[..., 3]`.
    """
    return encode_srgb(render_linear(image, illuminant, camera_matrix))
