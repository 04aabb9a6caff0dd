"""Colour moments of one image: low-dimensional features for illuminant estimation."""

import itertools
import math
from typing import Annotated, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import NOT_NEGATIVE, PositiveFloat, checked
from everlight.color.derivatives import EDGE_SIGMA, response
from everlight.color.illuminants import Image, Mask, keep_observed
from everlight.extrema import largest_value
from everlight.precision import matrix_product

Degree = Literal[1, 2, 3]
MONOMIALS = {
    degree: tuple(
        powers for powers in itertools.product(range(degree + 1), repeat=3) if sum(powers) == degree
    )
    for degree in (1, 2, 3)
}
"""Exponents of R, G, B by degree: 3, 6 and 10 products."""


@checked
def color_moments(
    colors: Float[Array, "n 3"],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
    degree: Degree = 2,
) -> Float[Array, "k"]:
    """Return roots of the mean products of channels, divided by their mean.

    Moments of Finlayson 2013 (corrected-moment illuminant estimation). The d-th root of the mean of
    a product of d channels scales with the exposure. Dividing by the mean of all moments removes
    the exposure.

    Args:
      colors: linear raw colours, `[n, 3]`; negative values count as 0.
      weights: non-negative weight of each pixel, `[n]`; 0 masks a pixel, even a NaN.
      degree: highest degree of the products; 1, 2 and 3 give 3, 9 and 19 moments.

    Returns:
      The moments, `[k]`; NaN where all unmasked pixels are black, or one is not finite.

    Raises:
      ValueError: `degree` is not 1, 2 or 3.
    """
    weights = jnp.ones(len(colors), colors.dtype) if weights is None else weights
    seen = jnp.maximum(jnp.where(weights[:, None] > 0, colors, 0), 0)
    peak = largest_value(seen)
    seen = seen / jnp.where(peak > 0, peak, 1)
    moments = []
    for order in range(1, degree + 1):
        for powers in MONOMIALS[order]:
            product = math.prod(seen[:, c] for c in range(3) for _ in range(powers[c]))
            mean = jnp.sum(product * weights) / jnp.sum(weights)
            # Two channels without common pixels have the moment 0, whose root has no gradient.
            moments.append(jnp.where(mean > 0, jnp.where(mean > 0, mean, 1) ** (1 / order), 0))
    stacked = jnp.stack(moments)
    return jnp.where(peak > 0, stacked / jnp.mean(stacked), jnp.nan)


@checked
def pixel_moments(image: Image, mask: Mask, degree: Degree = 2) -> Float[Array, "k"]:
    """Return `color_moments` of an image's unmasked pixels.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      degree: highest degree of the products; 1, 2 and 3 give 3, 9 and 19 moments.

    Returns:
      The moments, `[k]`; NaN where all unmasked pixels are black, or one is not finite.

    Raises:
      ValueError: `degree` is not 1, 2 or 3.
    """
    weights = None if mask is None else mask.ravel().astype(image.dtype)
    return color_moments(image.reshape(-1, 3), weights, degree)


@checked
def edge_moments(
    image: Image, mask: Mask, sigma: PositiveFloat = EDGE_SIGMA, degree: Degree = 2
) -> Float[Array, "k"]:
    """Return moments of the channels' gradient magnitudes (edge moments of Finlayson 2013).

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      sigma: standard deviation of the gradients' Gaussian, in pixels.
      degree: highest degree of the products; 1, 2 and 3 give 3, 9 and 19 moments.

    Returns:
      The moments, `[k]`; NaN where no unmasked pixel has an edge.

    Raises:
      ValueError: `degree` is not 1, 2 or 3, or the image is smaller than the filter.
    """
    magnitude, usable = response(image, mask, 1, sigma)
    return color_moments(magnitude.reshape(-1, 3), usable.ravel().astype(image.dtype), degree)


@checked
def extreme_chromaticities(image: Image, mask: Mask) -> Float[Array, "8"]:
    """Return red and green shares of four colours: brightest, channel maxima, mean and darkest.

    The input features of DMCC (Yue and Wei 2024, JOSA A; after Cheng et al. 2015). Pixels with a
    channel at 0 are excluded.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.

    Returns:
      The shares colour by colour, `[8]`; NaN where no pixel remains.
    """
    colors = keep_observed(image, mask).reshape(-1, 3)
    usable = jnp.all(colors > 0, axis=1)
    colors = jnp.where(usable[:, None], colors, 0)
    total = jnp.sum(colors, axis=1)
    four = jnp.stack(
        [
            colors[jnp.argmax(total)],
            jnp.max(colors, axis=0),
            jnp.sum(colors, axis=0),
            colors[jnp.argmin(jnp.where(usable, total, jnp.inf))],
        ]
    )
    totals = jnp.sum(four, axis=1, keepdims=True)
    shares = four[:, :2] / jnp.where(totals > 0, totals, 1)
    return jnp.where(jnp.any(usable), shares, jnp.nan).ravel()


@checked
def reilluminate_moments(
    moments: Float[Array, "9"], reillumination: Float[Array, "3 3"]
) -> Float[Array, "9"]:
    """Return the nine moments of an image whose colours are multiplied by a matrix.

    Means and mean products of two channels determine the result: mean(c A) = mean(c) A and mean((c
    A)ᵀ c A) = Aᵀ mean(cᵀ c) A. A training image can therefore be re-illuminated (two-camera paper,
    section 3.4) without its pixels. The result is exact where no colour becomes negative.

    Args:
      moments: moments from `color_moments` of degree 2, `[9]`.
      reillumination: the matrix A for colours as rows, `[3, 3]`.
    """
    first = matrix_product(moments[2::-1], reillumination)
    blue, green_blue, green, red_blue, red_green, red = moments[3:] ** 2
    second = jnp.array(
        [[red, red_green, red_blue], [red_green, green, green_blue], [red_blue, green_blue, blue]]
    )
    moved = matrix_product(reillumination.T, matrix_product(second, reillumination))
    upper = moved[jnp.array([2, 1, 1, 0, 0, 0]), jnp.array([2, 2, 1, 2, 1, 0])]
    both = jnp.concatenate([first[::-1], jnp.sqrt(jnp.maximum(upper, 0))])
    both = jnp.maximum(both, 0)
    return both / jnp.mean(both)
