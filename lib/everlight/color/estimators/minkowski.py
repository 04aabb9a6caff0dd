"""Gray World, Shades-of-Gray, White Patch and Gray Edge: Minkowski norms of derivatives.

van de Weijer, Gevers and Gijsenij 2007, "Edge-based color constancy" (IEEE TIP 16, 9). The norms
are 6 for Shades-of-Gray (two-camera paper) and 5 for edges (common default of implementations).
"""

import math
from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp

from everlight.checks import Between, NonNegativeFloat, checked
from everlight.color.derivatives import EDGE_SIGMA, response
from everlight.color.illuminant_method import IlluminantMethod
from everlight.color.illuminants import Illuminant, Image, Mask, root, unit_of_any_scale
from everlight.extrema import largest_value


@checked
def minkowski_framework(
    image: Image,
    mask: Mask,
    order: Literal[0, 1, 2],
    norm: Annotated[float | int, Between(1)],
    sigma: NonNegativeFloat,
) -> Illuminant:
    """Estimate the illuminant e(n, p, sigma): each channel's Minkowski norm of its derivatives.

    (integral |d^n f_sigma / dx^n|^p dx)^(1/p) of van de Weijer, Gevers and Gijsenij 2007. Order 0
    and sigma 0 give Gray World (norm 1), Shades-of-Gray (norm p) and White Patch (norm infinity).
    Orders 1 and 2 give Gray Edge. Negative values count by their magnitude. The estimate is NaN
    where the image is black, fully masked or not finite.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      order: derivative order n, 0, 1 or 2.
      norm: Minkowski norm p, at least 1; `math.inf` is the maximum.
      sigma: standard deviation of the Gaussian in pixels; 0 (order 0 only) applies no filter.

    Raises:
      ValueError: an argument is outside these ranges, or the image is smaller than the filter.
    """
    magnitude, _ = response(image, mask, order, sigma)
    peak = largest_value(magnitude, axis=(0, 1))
    if math.isinf(norm):
        return unit_of_any_scale(peak)
    # Divide by the peak, so that no power overflows and the norm's limit is White Patch. The norm
    # does not depend on it.
    peak = jax.lax.stop_gradient(peak)
    relative = magnitude / jnp.where(peak == 0, 1, peak)
    return unit_of_any_scale(peak * root(jnp.sum(relative**norm, axis=(0, 1)), norm))


GRAY_WORLD = IlluminantMethod("GW", partial(minkowski_framework, order=0, norm=1, sigma=0.0))
SHADES_OF_GRAY = IlluminantMethod("SoG", partial(minkowski_framework, order=0, norm=6, sigma=0.0))
METHODS = (
    GRAY_WORLD,
    SHADES_OF_GRAY,
    IlluminantMethod("GE-1", partial(minkowski_framework, order=1, norm=5, sigma=EDGE_SIGMA)),
    IlluminantMethod("GE-2", partial(minkowski_framework, order=2, norm=5, sigma=EDGE_SIGMA)),
    IlluminantMethod("WP", partial(minkowski_framework, order=0, norm=math.inf, sigma=0.0)),
)
