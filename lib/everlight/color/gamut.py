"""Gamut mapping on pixels and on edges: the trained ones among the single-image estimators.

The canonical gamut is the convex hull of the training images' responses under white light. The
light of an image is told by the diagonal maps that carry the image's gamut into the canonical one
(Forsyth 1990; with derivatives Gijsenij, Gevers and van de Weijer 2010). The choices made here:

- A hull is held as its extent along fixed directions, so that every gamut has the same shape and
  the estimate is plain array code. The canonical gamut, cut out by `DIRECTIONS`, comes out
  slightly too large, the image's, spanned by its extreme colours along `PROBES`, slightly too
  small: both err towards admitting a map.
- Colours are measured in units of each channel's largest response, and maps relative to the one
  of the image's largest onto the canonical. Feasible maps then lie between 0 and about 1: no range
  of lights is assumed, and scaling a channel of the image scales the estimate.
- Of the feasible maps the one of largest trace is taken (Forsyth 1990), in these units: it is the
  correct one where all colours of the gamut occur, and was better on NUS thumbnails than largest
  volume and, on edges, than the feasible set's centroid.
- Along the ray of a map u, the largest feasible multiple has a closed form. So the search is over
  rays only, first over a grid, then around the best in ever smaller steps. The problem is a linear
  program, and the search comes within 1% of its largest trace.
- Instead of growing the gamut until some map is feasible, the fit grows it once, by `GROWTH` in
  every direction: black lies inside then, and a small enough map is always feasible.
- Responses have Gray Edge's sigma at order 0 too, since one hot pixel can decide a hull.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from everlight.checks import checked
from everlight.color.estimators import (
    EDGE_SIGMA,
    Illuminant,
    Image,
    Mask,
    response,
    unit_illuminant,
)

# In units of each channel's largest response. From 0.01 to 0.1 NUS's mean errors change by 0.3.
GROWTH = 0.03


def _fibonacci_sphere(count: int) -> Float[np.ndarray, "n 3"]:
    """Nearly even unit vectors, without those that point away from every colour."""
    index = np.arange(count) + 0.5
    z = 1 - 2 * index / count
    azimuth = index * np.pi * (3 - np.sqrt(5))
    ring = np.sqrt(1 - z * z)
    points = np.stack([ring * np.cos(azimuth), ring * np.sin(azimuth), z], axis=-1)
    return points[points.max(axis=-1) > 0].astype(np.float32)


def _rays(count: int) -> Float[np.ndarray, "n 3"]:
    """Midpoints of the cells of the cube's three faces where one coordinate is 1."""
    middle = (np.arange(count) + 0.5) / count
    first, second = (axis.ravel() for axis in np.meshgrid(middle, middle))
    face = np.stack([np.ones_like(first), first, second], axis=-1)
    return np.concatenate([np.roll(face, k, axis=-1) for k in range(3)]).astype(np.float32)


DIRECTIONS = _fibonacci_sphere(144)
PROBES = _fibonacci_sphere(72)
COARSE_RAYS = _rays(8)
# Factors of (R, G, B) around a ray, as logarithms in units of the step; the last step is 0.004.
NEIGHBOURS = np.array([(r, 0, b) for r in range(-2, 3) for b in range(-2, 3)], np.float32)
STEPS = 0.125 * 0.5 ** np.arange(6, dtype=np.float32)


def _project(colors: Float[Array, "m 3"], directions: Float[np.ndarray, "k 3"]) -> Array:
    return jnp.matmul(colors, directions.T, precision=jax.lax.Precision.HIGHEST)


@struct.dataclass
class Gamut:
    """A canonical gamut: colours x with `DIRECTIONS @ (x / peak) <= extent`.

    Attributes:
      peak: largest response of each channel under white light, `[3]`.
      extent: support of the grown hull in each of `DIRECTIONS`, `[126]`, positive.
      order: derivative order of the responses, 0 or 1; static.
    """

    peak: Float[Array, "3"]
    extent: Float[Array, f"{len(DIRECTIONS)}"]
    order: int = struct.field(pytree_node=False)


@checked
def fit_gamut(
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
    illuminants: Float[Array, "n 3"],
    order: Literal[0, 1],
) -> Gamut:
    """The canonical gamut of training images; call it outside of jit.

    Args:
      images: linear raw colours, `[n, h, w, 3]`.
      masks: `[n, h, w]`, 0 leaves a pixel out.
      illuminants: of each image, `[n, 3]`, any scale: each is taken at unit length.
      order: 0 for Gamut Pixel, 1 for Gamut Edge.

    Raises:
      ValueError: an illuminant that is not positive, or images whose unmasked part is not finite
        or black in a channel.
    """
    if not bool(jnp.all(jnp.isfinite(illuminants) & (illuminants > 0))):
        raise ValueError("illuminants: each needs three positive, finite channels")

    peak, extent = _largest_responses(images, masks, illuminants, order)
    if not bool(jnp.all(jnp.isfinite(peak) & (peak > 0))):
        raise ValueError(f"images: the largest canonical response is {peak}, not positive")
    return Gamut(peak, jnp.maximum(extent, 0) + GROWTH, order)


@partial(jax.jit, static_argnames="order")
def _largest_responses(
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
    illuminants: Float[Array, "n 3"],
    order: Literal[0, 1],
) -> tuple[Float[Array, "3"], Float[Array, "k"]]:
    """Of each channel, and along every direction of responses at that scale."""

    def canonical(image: Image, mask: Mask, illuminant: Illuminant) -> Float[Array, "m 3"]:
        magnitude, _ = response(image, mask, order, EDGE_SIGMA)
        return (magnitude / unit_illuminant(illuminant)).reshape(-1, 3)

    def largest(measure) -> Array:
        per_image = jax.lax.map(lambda one: measure(canonical(*one)), (images, masks, illuminants))
        return jnp.max(per_image, axis=0)

    peak = largest(partial(jnp.max, axis=0))
    return peak, largest(lambda colors: jnp.max(_project(colors / peak, DIRECTIONS), axis=0))


@checked
def gamut_estimate(gamut: Gamut, image: Image, mask: Mask) -> Illuminant:
    """Gamut Pixel or Gamut Edge, whichever the gamut was fitted for: a unit illuminant or NaN.

    Args:
      gamut: from `fit_gamut`.
      image: linear raw colours, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.

    Raises:
      ValueError: an image smaller than the filter.
    """
    magnitude, _ = response(image, mask, gamut.order, EDGE_SIGMA)
    peak = jnp.max(magnitude, axis=(0, 1))
    colors = (magnitude / jnp.where(peak == 0, 1, peak)).reshape(-1, 3)
    extremes = colors[jnp.argmax(_project(colors, PROBES), axis=0)]
    half_spaces = DIRECTIONS / gamut.extent[:, None]

    def trace(ray: Float[Array, "3"]) -> Float[Array, ""]:
        crossings = jnp.matmul(half_spaces * ray, extremes.T, precision=jax.lax.Precision.HIGHEST)
        return jnp.sum(ray) / jnp.max(crossings)

    def best(rays: Float[Array, "n 3"]) -> Float[Array, "3"]:
        # One ray after another: all at once would write every crossing to memory.
        return rays[jnp.argmax(jax.lax.map(trace, rays))]

    def refine(ray: Float[Array, "3"], step: Float[Array, ""]):
        return best(ray * jnp.exp(step * NEIGHBOURS)), None

    ray, _ = jax.lax.scan(refine, best(jnp.asarray(COARSE_RAYS)), jnp.asarray(STEPS))
    return unit_illuminant(peak / (gamut.peak * ray))
