"""Weighted Gray Edge: Gray Edge with weights for specular edges.

Gijsenij, Gevers and van de Weijer 2012, "Improving color constancy by photometric edge weighting"
(IEEE TPAMI 34, 5).
"""

from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from everlight.checks import LARGEST, NOT_NEGATIVE, Between, PositiveFloat, PositiveInt, checked
from everlight.color.derivatives import EDGE_SIGMA, derivative, whole_support
from everlight.color.illuminant_method import IlluminantMethod
from everlight.color.illuminants import (
    Illuminant,
    Image,
    Mask,
    keep_observed,
    root,
    unit_illuminant,
)


@checked
def weighted_gray_edge(
    image: Image,
    mask: Mask,
    norm: Annotated[float | int, Between(1, LARGEST)],
    sigma: PositiveFloat,
    exponent: Annotated[float | int, NOT_NEGATIVE],
    iterations: PositiveInt,
) -> Illuminant:
    """Estimate the illuminant by Gray Edge with weights for specular edges.

    Gijsenij, Gevers and van de Weijer 2012 correct the image by the current estimate. An edge's
    weight is the fraction of its length along white: 1 between greys or into a highlight, 0 between
    equally bright colours. The initial estimate is white. The number of iterations is fixed,
    because a convergence test would make a batch wait for its slowest image. The estimate is NaN
    where the image is without edges, fully masked or not finite.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      norm: Minkowski norm p of the weighted gradients, finite, at least 1.
      sigma: standard deviation of the derivative's Gaussian in pixels, positive.
      exponent: exponent kappa of the weights; 0 is Gray Edge.
      iterations: number of estimates, each with weights from the previous one.

    Raises:
      ValueError: the image is smaller than the filter.
    """
    usable = whole_support(image, mask, sigma)
    image = keep_observed(image, mask)
    across, down = derivative(image, 0, 1, sigma), derivative(image, 1, 0, sigma)
    gradient = jnp.where(usable, root(across**2 + down**2), 0)
    peak = jnp.max(gradient, axis=(0, 1))
    relative = gradient / jnp.where(peak == 0, 1, peak)

    def refine(_: Int[Array, ""], estimate: Illuminant) -> Illuminant:
        gain = jnp.where(estimate == 0, 0, 1 / jnp.where(estimate == 0, 1, estimate))
        along_white = root(
            jnp.sum(across * gain, axis=-1) ** 2 + jnp.sum(down * gain, axis=-1) ** 2
        )
        energy = root(3 * jnp.sum((gradient * gain) ** 2, axis=-1))
        edge = energy > 0
        share = along_white / jnp.where(edge, energy, 1)
        weight = jnp.where(usable[..., 0] & edge, share, 0) ** exponent
        moment = jnp.sum((weight[..., None] * relative) ** norm, axis=(0, 1))
        return unit_illuminant(peak * root(moment, norm))

    white = unit_illuminant(jnp.ones(3, image.dtype))
    return jax.lax.fori_loop(0, iterations, refine, white)


# The exponent of the weights hardly matters: from 1 to 10 the mean error on NUS thumbnails changes
# by less than 0.05 degrees.
METHODS = (
    IlluminantMethod(
        "WGE", partial(weighted_gray_edge, norm=5, sigma=EDGE_SIGMA, exponent=10, iterations=10)
    ),
)
