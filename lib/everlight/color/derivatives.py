"""Single-image illuminant estimators without training: the baselines of the papers' tables.

Each takes one linear raw image and a mask, and returns the illuminant as a unit vector. The result
is NaN where the image is black, fully masked or not finite. A masked pixel has no influence: pixels
whose filter support touches it, or leaves the image, are excluded too. Callers mask charts and
saturated pixels. Values below 0, as a sensor's noise has around black, are kept: norms take their
magnitude. Unmasked saturation costs every norm but Gray World's two degrees or more on NUS
thumbnails.
"""

import math
from functools import partial
from typing import Annotated, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import (
    LARGEST,
    NOT_NEGATIVE,
    Between,
    NotEmpty,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    checked,
)
from everlight.errors import ArgumentError

Image = Float[Array, "h w 3"]
# 0 leaves a pixel out, 1 keeps it.
Mask = Annotated[Float[Array, "h w"], Between(0, 1)] | Bool[Array, "h w"] | None
Illuminant = Float[Array, "3"]


class Estimator(Protocol):
    """Function from an image `[h, w, 3]` and a mask `[h, w]` or None to a unit illuminant `[3]`."""

    def __call__(self, image: Image, mask: Mask) -> Illuminant:
        """Return the illuminant, or NaN."""
        ...


@checked
def unit_illuminant(illuminant: Illuminant) -> Illuminant:
    """Scale an illuminant to unit length; NaN for the zero vector and for values not finite."""
    # Dividing by the peak first keeps the squares of dim illuminants from underflowing.
    scaled = illuminant / jnp.max(jnp.abs(illuminant))
    return scaled / jnp.sqrt(jnp.sum(scaled * scaled))


def _unit_of_any_scale(illuminant: Illuminant) -> Illuminant:
    """Return `unit_illuminant`, with a gradient that is finite for dim and bright images too.

    The direction does not depend on the largest value, whose gradient has its inverse squared.
    """
    largest = jax.lax.stop_gradient(jnp.max(illuminant))
    return unit_illuminant(illuminant / jnp.where(largest == 0, 1, largest))


def _root(values: Array, degree: float | int = 2) -> Array:
    """Root of non-negative values, with a gradient of 0 instead of infinity at 0."""
    positive = values > 0
    # NaN is not positive, and stays.
    return jnp.where(
        positive, jnp.where(positive, values, 1) ** (1 / degree), jnp.where(values == 0, 0, values)
    )


def _support(sigma: float) -> int:
    """Radius in pixels at which the Gaussian is truncated: three sigma, rounded up."""
    return math.ceil(3 * sigma)


def _filter(image: Float[Array, "a b 3"], axis: int, order: int, sigma: float) -> Array:
    """Apply a Gaussian derivative along one axis, only where its support lies in the image.

    It is computed from differences of shifted images, so that constant regions give exactly 0 for
    orders 1 and 2. A sampled second derivative truncated at three sigma would leak a few per cent
    of the image.
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
    """Gaussian derivative of order `down` along the rows' index, `across` along the columns'."""
    # The derivative goes first: smoothing first would round constant regions to unequal values.
    if down >= across:
        return _filter(_filter(image, 0, down, sigma), 1, across, sigma)
    return _filter(_filter(image, 1, across, sigma), 0, down, sigma)


@checked
def keep_observed(image: Image, mask: Mask) -> Image:
    """Set masked pixels to 0, whatever their values."""
    return image if mask is None else jnp.where((mask > 0)[..., None], image, 0)


def _whole_support(image: Image, mask: Mask, sigma: float) -> Bool[Array, "a b 1"]:
    """Mark pixels whose filter output depends on no masked pixel and nothing outside the image."""
    radius = _support(sigma)
    if min(image.shape[:2]) <= 2 * radius:
        raise ArgumentError(
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
    """Return the magnitude of each channel's Gaussian derivative, and a mask of usable pixels.

    Order 0 is the (smoothed) image itself, order 1 the gradient magnitude, and order 2 is
    sqrt(f_xx² + 4 f_xy² + f_yy²). The factor 4 (a Frobenius norm has 2) is from the released code
    of van de Weijer et al. 2007, which produced the papers' tables.

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
    if order not in (0, 1, 2):
        raise ArgumentError(f"order={order}; derivatives of order 0, 1 and 2 are known")
    if sigma < 0 or (sigma == 0 and order > 0):
        raise ArgumentError(f"sigma={sigma}; it must be positive, or 0 at order 0")
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
    """Estimate the illuminant e(n, p, sigma): each channel's Minkowski norm of its derivatives.

    (integral |d^n f_sigma / dx^n|^p dx)^(1/p) of van de Weijer, Gevers and Gijsenij 2007. Order 0
    and sigma 0 give Gray World (norm 1), Shades of Gray (norm p) and White Patch (norm infinity).
    Orders 1 and 2 give Gray Edge. Negative values count by their magnitude.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      order: derivative order n, 0, 1 or 2.
      norm: Minkowski norm p, at least 1; `math.inf` is the maximum.
      sigma: standard deviation of the Gaussian in pixels; 0 (order 0 only) applies no filter.

    Raises:
      ValueError: an argument is outside these ranges, or the image is smaller than the filter.
    """
    if not norm >= 1:
        raise ArgumentError(f"norm={norm}; a Minkowski norm is at least 1")
    magnitude, _ = response(image, mask, order, sigma)
    peak = jnp.max(magnitude, axis=(0, 1))
    if math.isinf(norm):
        return _unit_of_any_scale(peak)
    # Divide by the peak, so that no power overflows and the norm's limit is White Patch. The norm
    # does not depend on it.
    peak = jax.lax.stop_gradient(peak)
    relative = magnitude / jnp.where(peak == 0, 1, peak)
    return _unit_of_any_scale(peak * _root(jnp.sum(relative**norm, axis=(0, 1)), norm))


@checked
def weighted_gray_edge(
    image: Image,
    mask: Mask,
    norm: Annotated[float | int, Between(1, LARGEST)],
    sigma: PositiveFloat,
    exponent: Annotated[float | int, NOT_NEGATIVE],
    iterations: PositiveInt,
) -> Illuminant:
    """Weighted Gray Edge with weights for specular edges (Gijsenij, Gevers, van de Weijer 2012).

    The image is corrected by the current estimate. An edge's weight is the fraction of its length
    along white: 1 between greys or into a highlight, 0 between equally bright colours. The initial
    estimate is white. The number of iterations is fixed, because a convergence test would make a
    batch wait for its slowest image.

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
    # JAX's own derivative also divides by the gap of the two smaller eigenvalues. That gap does not
    # affect this eigenvector and is 0 for an image of one colour.
    (scatter,), (change,) = primals, tangents
    values, vectors = jnp.linalg.eigh(scatter)
    gaps = values[-1] - values[:2]
    moved = jnp.matmul(
        vectors[:, :2].T, change @ vectors[:, -1], precision=jax.lax.Precision.HIGHEST
    )
    shares = jnp.where(gaps > 0, moved / jnp.where(gaps > 0, gaps, 1), 0)
    return vectors[:, -1], vectors[:, :2] @ shares


@checked
def bright_dark_pca(
    image: Annotated[Image, NotEmpty], mask: Mask, fraction: UnitInterval
) -> Illuminant:
    """First principal direction of the brightest and darkest colours (Cheng et al. 2014).

    Colours are sorted by their projection on the mean colour. At both ends, `fraction` of the
    unmasked pixels (at least one) is kept. No mean is subtracted, so the direction passes through
    black.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.
      fraction: fraction of the unmasked pixels kept at each end; Cheng et al. use 0.035.
    """
    colors = keep_observed(image, mask).reshape(-1, 3)
    observed = jnp.ones(len(colors), bool) if mask is None else mask.reshape(-1) > 0
    # The direction does not depend on the scale, whose gradient overflows for dim images.
    scale = jax.lax.stop_gradient(jnp.max(jnp.abs(colors)))
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


# Norms: 6 for Shades of Gray (two-camera paper), 5 for edges (common default of implementations).
# Their sigma of 2 pixels is for photographs: its support of 13x13 leaves some masked thumbnails of
# 32x48 to 64x64 almost without pixels. The exponent of the weights hardly matters: from 1 to 10 the
# mean error on NUS thumbnails changes by less than 0.05 degrees.
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
