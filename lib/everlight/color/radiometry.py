"""Image formation from spectra: light times reflectance times sensitivity, summed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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


def illuminant_response(
    illuminant: Float[Array, "w"], sensitivity: Float[Array, "3 w"]
) -> Float[Array, "3"]:
    """The response to a perfect reflector: the ground-truth illuminant, `[3]`."""
    return camera_responses(illuminant, jnp.ones((1, illuminant.shape[0])), sensitivity)[0]


class ResponseTable(NamedTuple):
    """One camera's raw colour of every surface under every light."""

    surfaces: Float[Array, "i r 3"]
    illuminants: Float[Array, "i 3"]


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


def scene_colors(
    table: ResponseTable, illuminant: Int[Array, ""], reflectances: Int[Array, "n"]
) -> Float[Array, "n 3"]:
    """Colours of one scene: `n` surfaces of the table under one of its lights."""
    return table.surfaces[illuminant, reflectances]


def patch_thumbnail(
    colors: Float[Array, "24 3"], rows: int = 4, columns: int = 6, patch: int = 8
) -> Float[Array, "h w 3"]:
    """The paper's 32x48 thumbnail: 24 colours as 8x8 patches in a 4x6 grid, row by row."""
    grid = colors.reshape(rows, columns, 3)
    return jnp.repeat(jnp.repeat(grid, patch, axis=0), patch, axis=1)
