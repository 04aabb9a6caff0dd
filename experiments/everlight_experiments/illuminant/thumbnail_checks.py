"""Checks of a user's thumbnails: illuminants that are gains, and images that are not linear.

Both compare the given illuminants with Shades-of-Gray, which errs by a few degrees on linear images
of any camera.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.baselines.folds import estimate_images
from everlight.color.estimators import ESTIMATORS
from everlight.metrics.angular import angular_error
from everlight_data.color.image_sets import CameraImages
from everlight_data.errors import DataError

GAINS_MEDIAN = 15.0
"""Median angle in degrees from Shades-of-Gray above which illuminants may be gains.

It is 1.5 to 4.2 on nine cameras' images (NUS-8 with the Nikon D40, Cube+), and 31 to 44 to the
reciprocals of their illuminants.
"""
ENCODED_MEDIAN = 6.0
"""Median angle in degrees from Shades-of-Gray above which images may be gamma-encoded.

On the same images to the power of 1/2.2 it is 9.2 to 11.1, and 1.5 to 4.2 once that is undone.
Linear images to the power of 2.2 have 12.9 to 15.9, at least three times as much as before.
"""
GAMMA = 2.2

_angles = jax.jit(jax.vmap(angular_error))


def check_thumbnails(file: Path, camera: str, data: CameraImages) -> None:
    """Refuse illuminants that seem to be gains; warn of images that seem to be gamma-encoded.

    Raises:
      DataError: the reciprocals of the illuminants are much nearer to Shades-of-Gray.
    """
    found = _shades_of_gray(data.images, data)
    given = _median(found, data.illuminants)
    # Of a greatest channel of 1, so that no reciprocal overflows.
    inverse = data.illuminants.min(axis=1, keepdims=True) / data.illuminants
    if given > GAINS_MEDIAN and (reciprocal := _median(found, inverse)) < given / 2:
        raise DataError(
            f"{file}: the illuminants of {camera} have a median angle of {given:.1f} degrees from "
            f"Shades-of-Gray of the images, their reciprocals {reciprocal:.1f}; these seem to be "
            "white-balance gains; give the raw colour of a grey surface, 1 / gain"
        )
    if given > ENCODED_MEDIAN:
        decoded = _median(_shades_of_gray(data.images**GAMMA, data), data.illuminants)
        if decoded <= given / 2:
            print(
                f"WARNING: {file}: the illuminants of {camera} have a median angle of {given:.1f} "
                f"degrees from Shades-of-Gray of the images, {decoded:.1f} from that of the images "
                f"to the power of {GAMMA}; these seem to be gamma-encoded; give linear raw values",
                file=sys.stderr,
            )


def _shades_of_gray(
    images: Float[np.ndarray, "n h w 3"], data: CameraImages
) -> Float[jax.Array, "n 3"]:
    return estimate_images(ESTIMATORS["SoG"], jnp.asarray(images), jnp.asarray(data.masks))


def _median(found: Float[jax.Array, "n 3"], illuminants: Float[np.ndarray, "n 3"]) -> float:
    """Return the median angle in degrees; images without an estimate have no part in it."""
    return float(jnp.nanmedian(_angles(found, jnp.asarray(illuminants))))
