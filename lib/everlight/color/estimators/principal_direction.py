"""The principal direction of the brightest and darkest colours.

Cheng, Prasad and Brown 2014, "Illuminant estimation for color constancy: why spatial-domain methods
work and the role of the color distribution" (JOSA A 31, 5).
"""

from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import NotEmpty, UnitInterval, checked
from everlight.color.illuminant_method import IlluminantMethod
from everlight.color.illuminants import Illuminant, Image, Mask, keep_observed, unit_illuminant
from everlight.extrema import largest_value
from everlight.precision import matrix_product


@jax.custom_jvp
def _principal_direction(scatter: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Return the eigenvector of the largest eigenvalue."""
    return jnp.linalg.eigh(scatter)[1][:, -1]


@_principal_direction.defjvp
def _principal_direction_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    # JAX's own derivative also divides by the gap of the two smaller eigenvalues. That gap does not
    # affect this eigenvector and is 0 for an image of one colour.
    (scatter,), (change,) = primals, tangents
    values, vectors = jnp.linalg.eigh(scatter)
    gaps = values[-1] - values[:2]
    moved = matrix_product(vectors[:, :2].T, matrix_product(change, vectors[:, -1]))
    shares = jnp.where(gaps > 0, moved / jnp.where(gaps > 0, gaps, 1), 0)
    return vectors[:, -1], matrix_product(vectors[:, :2], shares)


@checked
def bright_dark_pca(
    image: Annotated[Image, NotEmpty], mask: Mask, fraction: UnitInterval
) -> Illuminant:
    """Return the first principal direction of the brightest and darkest colours.

    Cheng et al. 2014 sort colours by their projection on the mean colour. At both ends, `fraction`
    of the unmasked pixels (at least one) is kept. No mean is subtracted, so the direction passes
    through black. The estimate is NaN where the image is black, fully masked or not finite.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      fraction: fraction of the unmasked pixels kept at each end; Cheng et al. use 0.035.
    """
    colors = keep_observed(image, mask).reshape(-1, 3)
    observed = jnp.ones(len(colors), bool) if mask is None else mask.reshape(-1) > 0
    # The direction does not depend on the scale, whose gradient overflows for dim images.
    scale = jax.lax.stop_gradient(largest_value(jnp.abs(colors)))
    colors = colors / jnp.where(scale == 0, 1, scale)
    projection = jnp.sum(colors * jnp.sum(colors, axis=0), axis=-1)
    ascending = colors[jnp.argsort(jnp.where(observed, projection, jnp.inf))]
    count = jnp.sum(observed)
    per_end = jnp.maximum(jnp.round(fraction * count), 1)
    rank = jnp.arange(len(colors))
    selected = ((rank < per_end) | (rank >= count - per_end)) & (rank < count)
    ends = jnp.where(selected[:, None], ascending, 0)
    scatter = matrix_product(ends.T, ends)
    direction = jnp.abs(_principal_direction(scatter))
    return unit_illuminant(jnp.where(jnp.trace(scatter) > 0, direction, jnp.nan))


BRIGHT_DARK_PCA = IlluminantMethod("PCA", partial(bright_dark_pca, fraction=0.035))
METHODS = (BRIGHT_DARK_PCA,)
