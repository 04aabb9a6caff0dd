"""Single-image illuminant estimators without training: the baselines of the papers' tables.

All take one linear raw image and a mask, and give the illuminant as a unit vector, NaN where the
image says nothing (all black, all masked, not finite). A masked pixel has no influence at all:
a pixel whose filter support touches it, or leaves the image, is left out too. The mask is where
the caller puts charts and saturation: saturated pixels left in cost every norm but Gray World's two
degrees and more on NUS thumbnails.
"""

import math
import sys
from functools import partial
from typing import Annotated, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import Between, PositiveFloat, PositiveInt, UnitInterval, checked

Image = Float[Array, "h w 3"]
Mask = Float[Array, "h w"] | Bool[Array, "h w"] | None  # 0 leaves a pixel out, 1 keeps it
Illuminant = Float[Array, "3"]


class Estimator(Protocol):
    """One image `[h, w, 3]` and its mask `[h, w]` or None to a unit illuminant `[3]`."""

    def __call__(self, image: Image, mask: Mask) -> Illuminant:
        """The illuminant, or NaN."""
        ...


@checked
def unit_illuminant(illuminant: Illuminant) -> Illuminant:
    """The illuminant at unit length; NaN for the zero vector and for what is not finite."""
    # Dividing by the peak first keeps the squares of dim illuminants from underflowing.
    scaled = illuminant / jnp.max(jnp.abs(illuminant))
    return scaled / jnp.sqrt(jnp.sum(scaled * scaled))


def _root(values: Array, degree: float | int = 2) -> Array:
    """The root of non-negative values, with a gradient of 0 instead of infinity at 0."""
    positive = values > 0
    # NaN is not positive, and stays.
    return jnp.where(
        positive, jnp.where(positive, values, 1) ** (1 / degree), jnp.where(values == 0, 0, values)
    )


def _support(sigma: float) -> int:
    """Radius in pixels where the Gaussian is cut: three sigma, rounded up."""
    return math.ceil(3 * sigma)


def _filter(image: Float[Array, "a b 3"], axis: int, order: int, sigma: float) -> Array:
    """A Gaussian derivative along one axis, only where its whole support lies in the image.

    Written as differences of shifted images, so that flat ground gives exactly 0 for orders 1, 2;
    a sampled second derivative cut at three sigma would leave a few per cent of the image in it.
    """
    radius = _support(sigma)
    length = image.shape[axis] - 2 * radius

    def at(offset: int) -> Array:
        return jax.lax.slice_in_dim(image, radius + offset, radius + offset + length, axis=axis)

    offsets = np.arange(1, radius + 1)
    gaussian = np.exp(-0.5 * (offsets / sigma) ** 2) if radius else np.zeros(0)
    total = 1 + 2 * gaussian.sum()
    centre = at(0)
    result = centre / total if order == 0 else jnp.zeros_like(centre)
    for offset, weight in zip(offsets.tolist(), (gaussian / total).tolist(), strict=True):
        after, before = at(offset), at(-offset)
        if order == 0:
            result += weight * (after + before)
        elif order == 1:
            result += weight * offset / sigma**2 * (after - before)
        else:
            curvature = weight * (offset**2 / sigma**4 - 1 / sigma**2)
            result += curvature * ((after - centre) + (before - centre))
    return result


def _derivative(image: Image, down: int, across: int, sigma: float) -> Float[Array, "a b 3"]:
    """The Gaussian derivative of order `down` along rows' index and `across` along columns'."""
    # The derivative goes first: smoothing first would round flat ground away from flat.
    if down >= across:
        return _filter(_filter(image, 0, down, sigma), 1, across, sigma)
    return _filter(_filter(image, 1, across, sigma), 0, down, sigma)


@checked
def keep_observed(image: Image, mask: Mask) -> Image:
    """The image with 0, whatever stood there, at masked pixels."""
    return image if mask is None else jnp.where((mask > 0)[..., None], image, 0)


def _whole_support(image: Image, mask: Mask, sigma: float) -> Bool[Array, "a b 1"]:
    """Where the filters' output depends on no masked pixel and on nothing outside the image."""
    radius = _support(sigma)
    if min(image.shape[:2]) <= 2 * radius:
        raise ValueError(
            f"an image of {image.shape[0]}x{image.shape[1]} has no pixel whose support of "
            f"{2 * radius + 1}x{2 * radius + 1} (sigma={sigma}) lies inside it"
        )
    observed = jnp.ones(image.shape[:2]) if mask is None else (mask > 0).astype(image.dtype)
    width = 2 * radius + 1
    return jax.lax.reduce_window(observed, jnp.inf, jax.lax.min, (width, width), (1, 1), "valid")[
        ..., None
    ].astype(bool)


@checked
def response(
    image: Image, mask: Mask, order: int, sigma: float
) -> tuple[Float[Array, "a b 3"], Bool[Array, "a b 1"]]:
    """Magnitude of each channel's Gaussian derivative, and where it may be used.

    Order 0 is the (smoothed) image itself, order 1 the gradient's length, order 2
    sqrt(f_xx² + 4 f_xy² + f_yy²): that 4 (a Frobenius norm has 2) is in the release of van de
    Weijer et al. 2007, with which the papers' tables are made.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.
      order: 0, 1 or 2.
      sigma: of the Gaussian, in pixels; 0 (order 0 only) is no filter at all.

    Returns:
      The magnitudes, `[h - 2r, w - 2r, 3]` with r = ceil(3 sigma), 0 where they may not be used,
      and where they may.

    Raises:
      ValueError: an unknown order, a negative sigma, or 0 for a derivative; an image too small.
    """
    if order not in (0, 1, 2):
        raise ValueError(f"order={order}; derivatives of order 0, 1 and 2 are known")
    if sigma < 0 or (sigma == 0 and order > 0):
        raise ValueError(f"sigma={sigma}; it must be positive, or 0 at order 0")
    usable = _whole_support(image, mask, sigma)
    image = keep_observed(image, mask)
    if order == 0:
        magnitude = jnp.abs(_derivative(image, 0, 0, sigma))
    elif order == 1:
        magnitude = _root(
            _derivative(image, 1, 0, sigma) ** 2 + _derivative(image, 0, 1, sigma) ** 2
        )
    else:
        magnitude = _root(
            _derivative(image, 2, 0, sigma) ** 2
            + 4 * _derivative(image, 1, 1, sigma) ** 2
            + _derivative(image, 0, 2, sigma) ** 2
        )
    return jnp.where(usable, magnitude, 0), usable


@checked
def minkowski_framework(
    image: Image, mask: Mask, order: int, norm: float | int, sigma: float
) -> Illuminant:
    """The illuminant e(n, p, sigma): each channel's Minkowski norm of its derivatives.

    (integral |d^n f_sigma / dx^n|^p dx)^(1/p) of van de Weijer, Gevers and Gijsenij 2007.
    Order 0 and sigma 0 give Gray World (norm 1), Shades of Gray (norm p) and White Patch (norm
    infinity); orders 1 and 2 give Gray Edge. Negative values count by their magnitude.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.
      order: n, 0, 1 or 2.
      norm: p, 1 or more; `math.inf` is the maximum.
      sigma: of the Gaussian, in pixels; 0 (order 0 only) is no filter at all.

    Raises:
      ValueError: an argument outside these ranges, or an image smaller than the filter.
    """
    if not norm >= 1:
        raise ValueError(f"norm={norm}; a Minkowski norm is at least 1")
    magnitude, _ = response(image, mask, order, sigma)
    peak = jnp.max(magnitude, axis=(0, 1))
    if math.isinf(norm):
        return unit_illuminant(peak)
    # Relative to the peak, so that no power overflows and the norm's limit is White Patch.
    relative = magnitude / jnp.where(peak == 0, 1, peak)
    return unit_illuminant(peak * _root(jnp.sum(relative**norm, axis=(0, 1)), norm))


@checked
def weighted_gray_edge(
    image: Image,
    mask: Mask,
    norm: Annotated[float | int, Between(1, sys.float_info.max)],
    sigma: PositiveFloat,
    exponent: Annotated[float | int, Between(0)],
    iterations: PositiveInt,
) -> Illuminant:
    """Weighted Gray Edge with weights for specular edges (Gijsenij, Gevers, van de Weijer 2012).

    An edge of the image corrected by the present estimate weighs by the share of its length along
    white: 1 for an edge between greys or into a highlight, 0 for one between equally bright
    colours. The first estimate is white. The number of iterations is fixed, since with a test of
    convergence the images of a batch would wait for the slowest.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.
      norm: Minkowski norm p of the weighted gradients, finite, 1 or more.
      sigma: of the derivative's Gaussian, in pixels, positive.
      exponent: kappa, the power of the weights; 0 is Gray Edge.
      iterations: estimates made, each from weights by the one before.

    Raises:
      ValueError: an image smaller than the filter.
    """
    usable = _whole_support(image, mask, sigma)
    image = keep_observed(image, mask)
    across, down = _derivative(image, 0, 1, sigma), _derivative(image, 1, 0, sigma)
    gradient = jnp.where(usable, _root(across**2 + down**2), 0)
    peak = jnp.max(gradient, axis=(0, 1))
    relative = gradient / jnp.where(peak == 0, 1, peak)

    def refine(_: Int[Array, ""], estimate: Illuminant) -> Illuminant:
        gain = jnp.where(estimate == 0, 0, 1 / jnp.where(estimate == 0, 1, estimate))
        along_white = _root(
            jnp.sum(across * gain, axis=-1) ** 2 + jnp.sum(down * gain, axis=-1) ** 2
        )
        energy = _root(3 * jnp.sum((gradient * gain) ** 2, axis=-1))
        edge = energy > 0
        share = along_white / jnp.where(edge, energy, 1)
        weight = jnp.where(usable[..., 0] & edge, share, 0) ** exponent
        moment = jnp.sum((weight[..., None] * relative) ** norm, axis=(0, 1))
        return unit_illuminant(peak * _root(moment, norm))

    white = unit_illuminant(jnp.ones(3, image.dtype))
    return jax.lax.fori_loop(0, iterations, refine, white)


@jax.custom_jvp
def _principal_direction(scatter: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Eigenvector of the largest eigenvalue."""
    return jnp.linalg.eigh(scatter)[1][:, -1]


@_principal_direction.defjvp
def _principal_direction_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    # JAX's own derivative divides by the gap of the two smaller eigenvalues too, which has no part
    # in this one and is 0 for an image of one colour.
    (scatter,), (change,) = primals, tangents
    values, vectors = jnp.linalg.eigh(scatter)
    gaps = values[-1] - values[:2]
    moved = jnp.matmul(
        vectors[:, :2].T, change @ vectors[:, -1], precision=jax.lax.Precision.HIGHEST
    )
    shares = jnp.where(gaps > 0, moved / jnp.where(gaps > 0, gaps, 1), 0)
    return vectors[:, -1], vectors[:, :2] @ shares


@checked
def bright_dark_pca(image: Image, mask: Mask, fraction: UnitInterval) -> Illuminant:
    """First principal direction of the brightest and darkest colours (Cheng et al. 2014).

    Colours are ordered by their projection on the mean colour; of both ends `fraction` of the
    unmasked pixels (at least one) is kept, and the direction goes through black: no mean is
    subtracted.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.
      fraction: of the unmasked pixels, from each end; Cheng et al. use 0.035.
    """
    colors = keep_observed(image, mask).reshape(-1, 3)
    observed = jnp.ones(len(colors), bool) if mask is None else mask.reshape(-1) > 0
    scale = jnp.max(jnp.abs(colors))
    colors = colors / jnp.where(scale == 0, 1, scale)
    projection = jnp.sum(colors * jnp.sum(colors, axis=0), axis=-1)
    ascending = colors[jnp.argsort(jnp.where(observed, projection, jnp.inf))]
    count = jnp.sum(observed)
    kept = jnp.maximum(jnp.round(fraction * count), 1)
    rank = jnp.arange(len(colors))
    selected = ((rank < kept) | (rank >= count - kept)) & (rank < count)
    ends = jnp.where(selected[:, None], ascending, 0)
    scatter = jnp.matmul(ends.T, ends, precision=jax.lax.Precision.HIGHEST)
    direction = jnp.abs(_principal_direction(scatter))
    return unit_illuminant(jnp.where(jnp.trace(scatter) > 0, direction, jnp.nan))


# Norms: 6 for Shades of Gray (facts of the two-camera paper), 5 for edges (common default of the
# edge-based method's implementations). Their sigma of 2 pixels is for photographs: on thumbnails
# of 32x48 to 64x64 its support of 13x13 leaves some masked images almost no pixel. The power of
# the weights hardly matters: 1 to 10 give the same mean error on NUS thumbnails to 0.05 degrees.
EDGE_SIGMA = 1.0

ESTIMATORS: dict[str, Estimator] = {
    "GW": partial(minkowski_framework, order=0, norm=1, sigma=0.0),
    "SoG": partial(minkowski_framework, order=0, norm=6, sigma=0.0),
    "GE-1": partial(minkowski_framework, order=1, norm=5, sigma=EDGE_SIGMA),
    "GE-2": partial(minkowski_framework, order=2, norm=5, sigma=EDGE_SIGMA),
    "WGE": partial(weighted_gray_edge, norm=5, sigma=EDGE_SIGMA, exponent=10, iterations=10),
    "PCA": partial(bright_dark_pca, fraction=0.035),
    "WP": partial(minkowski_framework, order=0, norm=math.inf, sigma=0.0),
}
