"""Signature that learnt illuminant estimators share, and the observation of whole images."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from everlight.checks import checked
from everlight.color.derivatives import Illuminant, Image, Mask


class Baseline(NamedTuple):
    """Learnt illuminant estimator as three functions; hyper-parameters are bound to them.

    Attributes:
      observe: function from one image `[h, w, 3]` and its mask to an observation: moments, a
        histogram, another method's estimate or the image itself. It learns nothing.
      fit: function from observations with a leading axis n, illuminants `[n, 3]` of any scale and a
        key to a model. Methods without random numbers ignore the key.
      predict: function from a model and one observation to a unit illuminant, NaN where the image
        determines none.
    """

    observe: Callable[[Image, Mask], PyTree]
    fit: Callable[..., Any]
    predict: Callable[[Any, Any], Illuminant]


class ObservedImage(NamedTuple):
    """Image and mask, the observation of methods that read pixels; 0 excludes a pixel."""

    image: Float[Array, "h w 3"]
    mask: Float[Array, "h w"]


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
