"""Gaussian derivatives of an image where their support lies in its unmasked pixels."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.checks import NonNegativeFloat, checked
from everlight.color.illuminants import Image, Mask, keep_observed, root
from everlight.errors import Argument, ArgumentError

EDGE_SIGMA = 1.0
"""Standard deviation in pixels of the Gaussian of edges.

The usual 2 pixels are for photographs: a support of 13x13 leaves some masked thumbnails of 32x48 to
64x64 almost without pixels.
"""


def _support(sigma: float) -> int:
    """Return the radius in pixels at which the Gaussian is truncated: three sigma, rounded up."""
    return math.ceil(3 * sigma)


def _filter(image: Float[Array, "a b 3"], axis: int, order: int, sigma: float) -> Array:
    """Apply a Gaussian derivative along one axis, only where its support lies in the image.

    It is computed from differences of shifted images, so that constant regions give exactly 0 for
    orders 1 and 2. A sampled second derivative truncated at three sigma would leak a few per cent
    of the image.
    """
    radius = _support(sigma)
    length = image.shape[axis] - 2 * radius

    def shift(offset: int) -> Array:
        return jax.lax.slice_in_dim(image, radius + offset, radius + offset + length, axis=axis)

    offsets = np.arange(1, radius + 1)
    gaussian = np.exp(-0.5 * (offsets / sigma) ** 2) if radius else np.zeros(0)
    total = 1 + 2 * gaussian.sum()
    center = shift(0)
    result = center / total if order == 0 else jnp.zeros_like(center)
    for offset, weight in zip(offsets.tolist(), (gaussian / total).tolist(), strict=True):
        after, before = shift(offset), shift(-offset)
        if order == 0:
            result += weight * (after + before)
        elif order == 1:
            result += weight * offset / sigma**2 * (after - before)
        else:
            curvature = weight * (offset**2 / sigma**4 - 1 / sigma**2)
            result += curvature * ((after - center) + (before - center))
    return result


def derivative(image: Image, down: int, across: int, sigma: float) -> Float[Array, "a b 3"]:
    """Return the Gaussian derivative of order `down` along rows' index, `across` along columns'."""
    # The derivative goes first: smoothing first would round constant regions to unequal values.
    if down >= across:
        return _filter(_filter(image, 0, down, sigma), 1, across, sigma)
    return _filter(_filter(image, 1, across, sigma), 0, down, sigma)


def whole_support(image: Image, mask: Mask, sigma: float) -> Bool[Array, "a b 1"]:
    """Mark pixels whose filter output depends on no masked pixel and nothing outside the image."""
    radius = _support(sigma)
    if min(image.shape[:2]) <= 2 * radius:
        raise ArgumentError(
            f"an image of {image.shape[0]}x{image.shape[1]} has no pixel whose support of "
            f"{2 * radius + 1}x{2 * radius + 1} (sigma={sigma}) lies inside it; give a "
            "larger image or a smaller sigma"
        )
    observed = jnp.ones(image.shape[:2]) if mask is None else (mask > 0).astype(image.dtype)
    width = 2 * radius + 1
    return jax.lax.reduce_window(observed, jnp.inf, jax.lax.min, (width, width), (1, 1), "valid")[
        ..., None
    ].astype(bool)


@checked
def response(
    image: Image, mask: Mask, order: Literal[0, 1, 2], sigma: NonNegativeFloat
) -> tuple[Float[Array, "a b 3"], Bool[Array, "a b 1"]]:
    """Return the magnitude of each channel's Gaussian derivative, and a mask of usable pixels.

    Order 0 is the (smoothed) image itself, order 1 the gradient magnitude, and order 2 is
    sqrt(f_xx² + 4 f_xy² + f_yy²). The factor 4 (a Frobenius norm has 2) is from the released code
    of van de Weijer et al. 2007, which produced the papers' tables. Magnitudes within reach of a
    value that is NaN are NaN.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      order: derivative order, 0, 1 or 2.
      sigma: standard deviation of the Gaussian in pixels; 0 (order 0 only) applies no filter.

    Returns:
      The magnitudes, `[h - 2r, w - 2r, 3]` with r = ceil(3 sigma), and a mask of the same size.
        Unusable pixels have magnitude 0.

    Raises:
      ValueError: `order` is unknown, `sigma` is negative or is 0 for a derivative, or the image is
        smaller than the filter.
    """
    if sigma == 0 and order > 0:
        raise ArgumentError(
            Argument("sigma", sigma), remedy=("it must be positive, or 0 at order 0",)
        )
    usable = whole_support(image, mask, sigma)
    image = keep_observed(image, mask)
    if order == 0:
        magnitude = jnp.abs(derivative(image, 0, 0, sigma))
    elif order == 1:
        magnitude = root(derivative(image, 1, 0, sigma) ** 2 + derivative(image, 0, 1, sigma) ** 2)
    else:
        magnitude = root(
            derivative(image, 2, 0, sigma) ** 2
            + 4 * derivative(image, 1, 1, sigma) ** 2
            + derivative(image, 0, 2, sigma) ** 2
        )
    return jnp.where(usable, magnitude, 0), usable
