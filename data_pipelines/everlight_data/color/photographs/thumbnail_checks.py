"""Checks of a user's thumbnails: illuminants that are gains, images in other orders or not linear.

All compare the given illuminants with Shades-of-Gray, which errs by a few degrees on linear images
of any camera.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color import ESTIMATORS, map_images
from everlight.metrics.angular import angular_error
from everlight_data.color.photographs.camera_images import CameraImages
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
EXCHANGED_MEDIAN = 5.0
"""Median angle in degrees from Shades-of-Gray above which red and blue may be exchanged.

On the same images in BGR order it is 6.7 to 20.3, and 1.5 to 4.2 once red and blue are exchanged,
at most 0.42 of that. Of 20,000 sets of nine images in RGB order none falls below 0.58 of its angle.
In the four other orders it is 19.3 to 41.5. Of 4,500 sets of 9, 15 and 50 images of each camera in
RGB order none falls below 0.52 of its angle in any of the five.
"""
UNRELATED = 0.9
"""Ratio of the angle to that from other images above which illuminants may belong to others."""
GAMMA = 2.2

_BGR = (
    "images or illuminants seem to be in BGR order; give both as R, G, B, or see whether the grey "
    "surfaces have another illuminant than the scenes"
)
_OTHER = "images or illuminants seem to be in another order of channels; give both as R, G, B"
_ORDERS = {
    (2, 1, 0): f"with red and blue exchanged; {_BGR}",
    (1, 0, 2): f"with red and green exchanged; {_OTHER}",
    (0, 2, 1): f"with green and blue exchanged; {_OTHER}",
    (1, 2, 0): f"with channels in the order 2, 3, 1; {_OTHER}",
    (2, 0, 1): f"with channels in the order 3, 1, 2; {_OTHER}",
}
"""Orders of channels in which estimates are read, with the words of the warning."""
_ENCODED = "these seem to be gamma-encoded; give linear raw values"
_angles = jax.jit(jax.vmap(angular_error))


def check_thumbnails(file: Path, camera: str, thumbnails: CameraImages) -> None:
    """Refuse illuminants that seem to be gains; warn of other orders of channels and of gamma.

    So it does of illuminants that are no nearer to their images than to others.

    Raises:
      DataError: the reciprocals of the illuminants are much nearer to Shades-of-Gray.
    """
    shades = _shades_of_gray(thumbnails.images, thumbnails)
    angle = _median(shades, thumbnails.illuminants)
    if angle <= EXCHANGED_MEDIAN:
        return
    # The greatest channel becomes 1, so that no reciprocal overflows.
    inverse = thumbnails.illuminants.min(axis=1, keepdims=True) / thumbnails.illuminants
    reciprocal = _median(shades, inverse)
    decoded = _shades_of_gray(thumbnails.images**GAMMA, thumbnails)
    readings = [
        (EXCHANGED_MEDIAN, shades[:, list(order)], words) for order, words in _ORDERS.items()
    ]
    readings += [(ENCODED_MEDIAN, decoded, f"to the power of {GAMMA}; {_ENCODED}")]
    readings += [
        (ENCODED_MEDIAN, decoded[:, list(order)], f"to the power of {GAMMA} {words}; {_ENCODED}")
        for order, words in _ORDERS.items()
    ]
    medians = [_median(estimates, thumbnails.illuminants) for _, estimates, _ in readings]
    least = min(medians)
    if angle > GAINS_MEDIAN and reciprocal < angle / 2 and reciprocal < least:
        raise DataError(
            f"{file}: the illuminants of {camera} have a median angle of {angle:.1f} degrees from "
            f"Shades-of-Gray of the images, their reciprocals {reciprocal:.1f}; these seem to be "
            "white-balance gains; give the raw colour of a grey surface, 1 / gain"
        )
    bound, _, reading = readings[medians.index(least)]
    if angle > bound and least <= angle / 2:
        print(
            f"WARNING: {file}: the illuminants of {camera} have a median angle of {angle:.1f} "
            f"degrees from Shades-of-Gray of the images, {least:.1f} from that of the images "
            f"{reading}",
            file=sys.stderr,
        )
        return
    others = [np.roll(thumbnails.illuminants, len(shades) // part, axis=0) for part in (2, 3, 4)]
    exchanged = min(_median(shades, illuminants) for illuminants in others)
    spread = min(_median(illuminants, thumbnails.illuminants) for illuminants in others)
    if spread > EXCHANGED_MEDIAN / 2 and angle > UNRELATED * exchanged:
        print(
            f"WARNING: {file}: the illuminants of {camera} have a median angle of {angle:.1f} "
            f"degrees from Shades-of-Gray of their images, and {exchanged:.1f} from that of other "
            "images; they may stand in another order than the images",
            file=sys.stderr,
        )


def _shades_of_gray(
    images: Float[np.ndarray, "n h w 3"], thumbnails: CameraImages
) -> Float[jax.Array, "n 3"]:
    return map_images(ESTIMATORS["SoG"], jnp.asarray(images), jnp.asarray(thumbnails.masks))


def _median(estimates: Float[jax.Array, "n 3"], illuminants: Float[np.ndarray, "n 3"]) -> float:
    """Return the median angle in degrees; images without an estimate have no part in it."""
    return float(jnp.nanmedian(_angles(estimates, jnp.asarray(illuminants))))
