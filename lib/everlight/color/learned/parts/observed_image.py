"""Whole images and thumbnails with their masks, the features of methods that read pixels."""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import checked
from everlight.color.illuminants import Image, Mask


class ObservedImage(NamedTuple):
    """Image and mask, the features of methods that read pixels; 0 excludes a pixel."""

    image: Float[Array, "*n h w 3"]
    mask: Float[Array, "*n h w"]


@checked
def observe_image(image: Image, mask: Mask) -> ObservedImage:
    """Return the image with a mask of floats.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.

    Returns:
      The observation; pixels that are not finite stay so.
    """
    if mask is None:
        return ObservedImage(image, jnp.ones(image.shape[:2], image.dtype))
    return ObservedImage(image, jnp.asarray(mask, image.dtype))


def masked_thumbnail(image: Image, mask: Mask, side: int) -> Float[Array, "a b 4"]:
    """Return block means of unmasked pixels, and in channel four which blocks have any.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      side: largest height and width of the result.
    """
    mask = observe_image(image, mask).mask
    factor = -(-max(mask.shape) // side)
    height, width = (length // factor for length in mask.shape)
    seen = (mask > 0)[: height * factor, : width * factor, None]
    unmasked = jnp.where(seen, image[: height * factor, : width * factor], 0)
    blocks = height, factor, width, factor, -1
    counted = jnp.sum(seen.reshape(blocks), axis=(1, 3))
    total = jnp.sum(unmasked.reshape(blocks), axis=(1, 3))
    return jnp.concatenate([total / jnp.maximum(counted, 1), counted > 0], axis=-1)


thumbnail = partial(masked_thumbnail, side=64)
"""The thumbnails of 64 pixels per side that DMCC's authors use."""


def observed(thumbnails: Float[Array, "*n h w 4"]) -> ObservedImage:
    """Return thumbnails from `masked_thumbnail` as images and masks."""
    return ObservedImage(thumbnails[..., :3], thumbnails[..., 3])
