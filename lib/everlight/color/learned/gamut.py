"""Gamut mapping on pixels and on edges: trained single-image estimators.

The canonical gamut is the convex hull of the training images' responses under white light. An
image's illuminant follows from the diagonal maps that carry the image's gamut into the canonical
one (Forsyth 1990; with derivatives Gijsenij, Gevers and van de Weijer 2010). Implementation
choices:

- A hull is stored as its extent along fixed directions, so that all gamuts have the same shape and
  the estimate is plain array code. The canonical gamut, bounded along `DIRECTIONS`, is slightly too
  large. The image's gamut, spanned by its extreme colours along `PROBES`, is slightly too small.
  Both errors admit more maps.
- Colours are in units of each channel's largest response, and maps relative to the ratio of those
  of the image and the canonical gamut. Feasible maps then lie between 0 and about 1. No range of
  illuminants is assumed, and scaling a channel of the image scales the estimate.
- The feasible map of largest trace is selected (Forsyth 1990), in these units. It is correct where
  all colours of the gamut occur. On NUS thumbnails it was better than the largest volume and, on
  edges, than the feasible set's centroid.
- This is a linear program in three unknowns, with a constraint for each direction of the canonical
  gamut and each extreme colour of the image. The dual simplex method solves it. It starts at a
  vertex beyond all maps and adds the most violated constraint until none is violated. Rendered
  thumbnails need eight pivots on average and at most twenty.
- Instead of enlarging the gamut until some map is feasible, the fit enlarges it once, by `GROWTH`
  in every direction. Black is then inside, so a small enough map is always feasible.
- Responses use Gray Edge's sigma at order 0 too, since one hot pixel can decide a hull.
"""

from functools import partial
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import POSITIVE, Stacked, check_range, check_sizes, checked
from everlight.color.derivatives import EDGE_SIGMA, response
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, images_alone
from everlight.color.illuminants import Illuminant, Image, Mask, unit_illuminant
from everlight.color.learned.parts.observed_image import ObservedImage, observe_image
from everlight.color.transforms import inverse_transform
from everlight.extrema import largest_value
from everlight.precision import matrix_product

# In units of each channel's largest response; from 0.01 to 0.1 NUS's mean errors change by 0.3.
GROWTH = 0.03


def _fibonacci_sphere(count: int) -> Float[np.ndarray, "n 3"]:
    """Return nearly uniform unit vectors without those that point away from every colour."""
    index = np.arange(count) + 0.5
    z = 1 - 2 * index / count
    azimuth = index * np.pi * (3 - np.sqrt(5))
    ring = np.sqrt(1 - z * z)
    points = np.stack([ring * np.cos(azimuth), ring * np.sin(azimuth), z], axis=-1)
    return points[points.max(axis=-1) > 0].astype(np.float32)


DIRECTIONS = _fibonacci_sphere(144)
PROBES = _fibonacci_sphere(72)
MIN_FACTOR, MAX_FACTOR = GROWTH / 3, 16.0
"""Bounds of a map's three factors: the smaller is always feasible, the larger never is and starts
the search."""
MAX_PIVOTS = 64
VIOLATION_TOLERANCE = 1e-5
"""Excess from which a constraint counts as violated, as a fraction of the gamut's extent."""


@struct.dataclass
class Gamut:
    """Canonical gamut: colours x with `DIRECTIONS @ (x / peak) <= extent`.

    Attributes:
      peak: largest response of each channel under white light, `[3]`.
      extent: support of the enlarged hull along each of `DIRECTIONS`, `[126]`, positive.
      order: derivative order of the responses, 0 or 1; static.
    """

    peak: Float[Array, "3"]
    extent: Float[Array, f"{len(DIRECTIONS)}"]
    order: int = struct.field(pytree_node=False)


@checked
def fit_gamut(
    observations: Annotated[ObservedImage, Stacked],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE],
    order: Literal[0, 1] = 0,
) -> Gamut:
    """Fit the canonical gamut of training images.

    Args:
      observations: images and masks from `observe_image`, `[n, h, w, 3]` and `[n, h, w]`.
      illuminants: illuminant of each image, `[n, 3]`, any scale; normalized to unit length.
      order: 0 for Gamut Pixel, 1 for Gamut Edge.

    Raises:
      ValueError: an illuminant is not positive, or the unmasked images are not finite or are black
        in a channel. Inside jit values are not checked; such a gamut gives NaN or useless
        illuminants.
    """
    check_sizes(observations=(observations.image, 0), illuminants=(illuminants, 0))
    peak, extent = _largest_responses(*observations, illuminants, order)
    check_range("observations: the largest canonical response", peak, *POSITIVE)
    return Gamut(peak, jnp.maximum(extent, 0) + GROWTH, order)


@partial(jax.jit, static_argnames="order")
def _largest_responses(
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
    illuminants: Float[Array, "n 3"],
    order: Literal[0, 1],
) -> tuple[Float[Array, "3"], Float[Array, "k"]]:
    """Return the largest response of each channel, and along each direction at that scale."""

    def map_to_canonical(image: Image, mask: Mask, illuminant: Illuminant) -> Float[Array, "m 3"]:
        magnitude, _ = response(image, mask, order, EDGE_SIGMA)
        return (magnitude / unit_illuminant(illuminant)).reshape(-1, 3)

    def largest(measure) -> Array:
        per_image = jax.lax.map(
            lambda one: measure(map_to_canonical(*one)), (images, masks, illuminants)
        )
        return largest_value(per_image, axis=0)

    peak = largest(partial(largest_value, axis=0))

    def extent(colors: Float[Array, "m 3"]) -> Float[Array, "k"]:
        return largest_value(matrix_product(colors / peak, DIRECTIONS.T), axis=0)

    return peak, largest(extent)


@checked
def gamut_estimate(model: Gamut, observation: ObservedImage) -> Illuminant:
    """Estimate by Gamut Pixel or Gamut Edge, as the gamut was fitted: a unit illuminant or NaN.

    Args:
      model: gamut from `fit_gamut`.
      observation: image and mask from `observe_image`, `[h, w, 3]` and `[h, w]`.

    Raises:
      ValueError: the image is smaller than the filter.
    """
    magnitude, _ = response(*observation, model.order, EDGE_SIGMA)
    magnitudes = magnitude.reshape(-1, 3)
    # The gradient of a maximum selects the elements equal to it. It may find none (NaN) where the
    # compiler rounds them differently the second time.
    peak = jnp.take_along_axis(magnitudes, jnp.argmax(magnitudes, axis=0)[None], axis=0)[0]
    colors = magnitudes / jnp.where(peak == 0, 1, peak)
    extremes = colors[jnp.argmax(matrix_product(colors, PROBES.T), axis=0)]
    largest_map = _largest_map(DIRECTIONS / model.extent[:, None], extremes)
    return unit_illuminant(peak / (model.peak * largest_map))


def _largest_map(
    half_spaces: Float[Array, "k 3"], extremes: Float[Array, "m 3"]
) -> Float[Array, "3"]:
    """Return the map u of largest sum with `half_spaces[d] @ (u * extremes[e]) <= 1` for all."""
    fixed = jax.lax.stop_gradient((half_spaces, extremes))

    def unfinished(state: tuple) -> Bool[Array, ""]:
        _, excess, pivots = state
        return (excess > VIOLATION_TOLERANCE) & (pivots < MAX_PIVOTS)

    def pivot(state: tuple) -> tuple:
        basis, _, pivots = state
        vertex, inverse = _intersection(*fixed, basis)
        entering, excess = _most_violated(*fixed, vertex)
        normal, _ = _constraint(*fixed, entering)
        # The objective stays a non-negative combination of the three normals.
        weights = jnp.maximum(jnp.sum(inverse, axis=0), 0)
        change = jnp.sum(normal[:, None] * inverse, axis=0)
        falls = change > 1e-6
        leaving = jnp.argmin(jnp.where(falls, weights / jnp.where(falls, change, 1), jnp.inf))
        enters = (jnp.arange(3) == leaving) & (excess > VIOLATION_TOLERANCE)
        return jnp.where(enters, entering, basis), excess, pivots + 1

    # The choice of active constraints has no gradient; the point where they meet has one.
    beyond = len(half_spaces) * len(extremes) + 3 + jnp.arange(3)
    start = beyond, jnp.float32(jnp.inf), jnp.int32(0)
    basis, *_ = jax.lax.while_loop(unfinished, pivot, start)
    vertex, _ = _intersection(half_spaces, extremes, basis)
    return vertex


def _constraint(
    half_spaces: Float[Array, "k 3"], extremes: Float[Array, "m 3"], number: Int[Array, ""]
) -> tuple[Float[Array, "3"], Float[Array, ""]]:
    """Return the normal and bound of a constraint by its number.

    Half-space d and extreme e have the number m d + e; `u >= MIN_FACTOR` and `u <=
    MAX_FACTOR` follow.
    """
    colors = len(extremes)
    lower = len(half_spaces) * colors
    plane, color = jnp.divmod(jnp.minimum(number, lower - 1), colors)
    axis = jax.nn.one_hot((number - lower) % 3, 3)
    is_half_space, is_lower = number < lower, number < lower + 3
    normal, bound = (
        jnp.where(is_lower, -axis, axis),
        jnp.where(is_lower, -MIN_FACTOR, MAX_FACTOR),
    )
    normal = jnp.where(is_half_space, half_spaces[plane] * extremes[color], normal)
    return normal, jnp.where(is_half_space, 1.0, bound)


def _intersection(
    half_spaces: Float[Array, "k 3"], extremes: Float[Array, "m 3"], basis: Int[Array, "3"]
) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
    """Return the point where three constraints meet, and the inverse of their normals."""
    normals, bounds = jax.vmap(partial(_constraint, half_spaces, extremes))(basis)
    inverse = inverse_transform(normals)
    return jnp.sum(inverse * bounds, axis=1), inverse


def _most_violated(
    half_spaces: Float[Array, "k 3"], extremes: Float[Array, "m 3"], vertex: Float[Array, "3"]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the number of the constraint that a vertex violates most, and its excess."""
    scaled = half_spaces * vertex
    plane = jnp.argmax(jnp.max(matrix_product(extremes, scaled.T), axis=0))
    plane_values = matrix_product(extremes, scaled[plane][None].T)[:, 0]
    color, axis = jnp.argmax(plane_values), jnp.argmin(vertex)
    excess, below = plane_values[color] - 1, MIN_FACTOR - vertex[axis]
    lower = len(half_spaces) * len(extremes) + axis
    number = jnp.where(below > excess, lower, plane * len(extremes) + color)
    return number, jnp.maximum(excess, below)


@images_alone
def _fit(images: LabelledImages, order: Literal[0, 1]) -> Gamut:
    return fit_gamut(images.features, images.illuminants, order)


METHODS = tuple(
    IlluminantMethod(
        name, observe_image, partial(_fit, order=order), gamut_estimate, always_runs=True
    )
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge"))
)
