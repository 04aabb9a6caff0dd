"""Registration of two cameras' images of one scene by their brightness, without a chart.

An affine map from main to second pixels maximizes the correlation of both images' logarithmic
brightness over their overlap (the enhanced correlation coefficient of Evangelidis and Psarakis
2008, IEEE TPAMI 30). Its starts are shifts and zooms, upright and turned by 180 degrees. The best
ones are refined by Levenberg-Marquardt steps on images blurred by two pixels, then by one.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Bool, Float

from everlight.checks import checked
from everlight.color.alignment import area_downsample, warp_image
from everlight.color.transform_prior import least_squares
from everlight.precision import full_precision, matrix_product

MIN_OVERLAP = 0.3
"""Minimum share of the main image's unmasked pixels that the second one must show."""
DARKEST = 0.02
"""Offset of brightness before the logarithm, as a fraction of the image's mean."""
SHIFTS = tuple(0.2 * step for step in range(-3, 4))
"""Shifts of the starts in both directions, where 1 is half the longer side."""
ZOOMS = (0.75, 1.0, 4 / 3)
TURNS = (1.0, -1.0)
"""Upright, and turned by 180 degrees."""
STARTS = 3
"""Refined starts of each turn."""
SIGMAS = (2.0, 1.0)
"""Standard deviations of the blur of the two refinements, in pixels."""
COARSE_SIGMA = 3.0
STEPS = 20
"""Steps of each refinement."""
POINTS = 32
"""Points along the shorter side at which a refinement compares the images."""
SEEN = 0.999
"""Minimum weight of unmasked pixels in an interpolated one."""
BLOCKS = 8
"""Blocks along the longer side of the main image."""
MIN_SHARE = 0.5
"""Minimum share of a block's pixels that are unmasked in both images; the others do not count."""
AREA, STRETCH = 4.0, 1.1
"""Limits on the change of area, and on the mean square of both stretches relative to the area."""


class Registration(NamedTuple):
    """Affine map from main to second pixels, and its quality.

    Attributes:
      homography: the map of pixels (x, y, 1), `[3, 3]`; its last row is (0, 0, 1).
      correlation: correlation of both images' logarithmic brightness over the overlap; NaN where
        no start has an overlap of `MIN_OVERLAP`.
      overlap: share of the main image's unmasked pixels that the second one shows.
    """

    homography: Float[Array, "3 3"]
    correlation: Float[Array, ""]
    overlap: Float[Array, ""]


class RegisteredBlocks(NamedTuple):
    """Both images as block means on the main image's grid.

    Attributes:
      registration: map from main to second pixels, and its quality.
      main: mean colours of the main image's blocks over pixels unmasked in both, `[r, s, 3]`.
      second: those of the second image over the same pixels, `[r, s, 3]`.
      mask: blocks of which both images show `MIN_SHARE` unmasked, `[r, s]`.
    """

    registration: Registration
    main: Float[Array, "r s 3"]
    second: Float[Array, "r s 3"]
    mask: Bool[Array, "r s"]


class _Views(NamedTuple):
    """Points of the main image with values and weights, and the second image's values and mask."""

    points: Float[Array, "n 2"]
    values: Float[Array, "n"]
    weights: Float[Array, "n"]
    second: Float[Array, "h w"]
    second_mask: Float[Array, "h w"]


@checked
@full_precision
def register_images(
    main: Float[Array, "h w 3"],
    main_mask: Float[Array, "h w"],
    second: Float[Array, "k l 3"],
    second_mask: Float[Array, "k l"],
) -> Registration:
    """Return the affine map with the highest correlation.

    Args:
      main: linear colours of the main camera, `[h, w, 3]`.
      main_mask: 0 excludes a pixel, `[h, w]`.
      second: linear colours of the second camera, `[k, l, 3]`.
      second_mask: 0 excludes a pixel, `[k, l]`.
    """
    images = (main, main_mask), (second, second_mask)
    pixel_step = max(1, min(main_mask.shape) // POINTS)
    coarse = _views(*images, COARSE_SIGMA, 2 * pixel_step)
    starts = jnp.asarray(_starts())
    scores = jax.vmap(lambda start: _score(start, coarse))(starts)
    best = jax.lax.top_k(scores.reshape(len(TURNS), -1), STARTS)[1]
    refined = starts.reshape(len(TURNS), -1, 2, 3)[jnp.arange(len(TURNS))[:, None], best]
    refined = refined.reshape(-1, 2, 3)
    for sigma in SIGMAS:
        views = _views(*images, sigma, pixel_step)
        refined = jax.vmap(partial(_refined, views=views))(refined)
    full = _views(*images, SIGMAS[-1], 1)
    scores = jax.vmap(lambda affine: _score(affine, full))(refined)
    affine = refined[jnp.argmax(scores)]
    residuals, overlap = _compared(affine, full)
    correlation = 1 - jnp.sum(residuals**2) / 2
    registered = jnp.max(scores) > -jnp.inf
    return Registration(
        _to_pixels(affine, main_mask.shape, second_mask.shape),
        jnp.where(registered, correlation, jnp.nan),
        overlap,
    )


@checked
def registered_blocks(
    main: Float[Array, "h w 3"],
    main_mask: Float[Array, "h w"],
    second: Float[Array, "k l 3"],
    second_mask: Float[Array, "k l"],
) -> RegisteredBlocks:
    """Register two images and average both over blocks, `BLOCKS` along the longer side.

    Block means tolerate what registration leaves: parallax, and different sharpness. They are
    over pixels that neither mask excludes.

    Args:
      main: linear colours of the main camera, `[h, w, 3]`.
      main_mask: 0 excludes a pixel, `[h, w]`.
      second: linear colours of the second camera, `[k, l, 3]`.
      second_mask: 0 excludes a pixel, `[k, l]`.
    """
    registration = register_images(main, main_mask, second, second_mask)
    layers = jnp.concatenate([second, (second_mask > 0)[..., None].astype(second.dtype)], axis=-1)
    warped = warp_image(layers, registration.homography, main_mask.shape)
    usable = warped.mask & (warped.image[..., 3] > SEEN) & (main_mask > 0)
    factor = max(1, max(main_mask.shape) // BLOCKS)
    seen = usable[..., None].astype(main.dtype)
    both = jnp.concatenate([main, warped.image[..., :3], jnp.ones_like(seen)], axis=-1)
    # A masked pixel may be NaN.
    sums = area_downsample(jnp.where(seen > 0, both, 0), factor).image
    share = sums[..., 6:]
    means = sums[..., :6] / jnp.where(share > 0, share, 1)
    return RegisteredBlocks(
        registration, means[..., :3], means[..., 3:], share[..., 0] >= MIN_SHARE
    )


def _starts() -> Float[np.ndarray, "n 2 3"]:
    """Return the starts, those of a turn side by side."""
    return np.array(
        [
            [[turn * zoom, 0, right], [0, turn * zoom, down]]
            for turn, zoom, right, down in itertools.product(TURNS, ZOOMS, SHIFTS, SHIFTS)
        ],
        np.float32,
    )


def _views(
    main: tuple[Array, Array], second: tuple[Array, Array], sigma: float, pixel_step: int
) -> _Views:
    """Return blurred logarithmic brightness, of the main image at every so many pixels."""
    height, width = main[1].shape
    values = _structure(*main, sigma)
    y, x = jnp.meshgrid(
        jnp.arange(0, height, pixel_step), jnp.arange(0, width, pixel_step), indexing="ij"
    )
    half = max(height, width) / 2
    points = jnp.stack([x.ravel() - (width - 1) / 2, y.ravel() - (height - 1) / 2], axis=1) / half
    weights = (main[1] > 0).astype(values.dtype)
    return _Views(
        points,
        values[::pixel_step, ::pixel_step].ravel(),
        weights[::pixel_step, ::pixel_step].ravel(),
        _structure(*second, sigma),
        (second[1] > 0).astype(values.dtype),
    )


def _structure(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"], sigma: float
) -> Float[Array, "h w"]:
    """Return the blurred logarithm of the brightness; masked pixels have no part in it."""
    seen = (mask > 0).astype(image.dtype)
    brightness = jnp.where(seen > 0, jnp.maximum(jnp.mean(image, axis=-1), 0), 0)
    mean = jnp.sum(brightness) / jnp.maximum(jnp.sum(seen), 1)
    logarithm = jnp.log(brightness / jnp.where(mean > 0, mean, 1) + DARKEST)
    rows, columns = (_gaussian(length, sigma) for length in mask.shape)
    total = matrix_product(rows, matrix_product(seen, columns))
    blurred = matrix_product(rows, matrix_product(logarithm * seen, columns))
    return blurred / jnp.maximum(total, 1e-6)


def _gaussian(length: int, sigma: float) -> Float[np.ndarray, "n n"]:
    apart = np.subtract.outer(np.arange(length), np.arange(length))
    return np.exp(-0.5 * (apart / sigma) ** 2).astype(np.float32)


def _compared(
    affine: Float[Array, "2 3"], views: _Views
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Return differences of standardized values, with a sum of squares of 2 - 2 r, and the overlap.

    r is the correlation over the overlap.
    """
    height, width = views.second.shape
    mapped = matrix_product(views.points, affine[:, :2].T) + affine[:, 2]
    mapped = mapped * (max(height, width) / 2) + jnp.array([(width - 1) / 2, (height - 1) / 2])
    places = [mapped[:, 1], mapped[:, 0]]
    inside = (mapped >= 0) & (mapped <= jnp.array([width - 1, height - 1]))
    seen = map_coordinates(views.second_mask, places, order=1, mode="nearest") > SEEN
    weights = views.weights * (seen & jnp.all(inside, axis=1))
    share = weights / jnp.maximum(jnp.sum(weights), 1)
    sampled = map_coordinates(views.second, places, order=1, mode="nearest")
    difference = _standardized(sampled, share) - _standardized(views.values, share)
    overlap = jnp.sum(weights) / jnp.maximum(jnp.sum(views.weights), 1)
    return jnp.sqrt(share) * difference, overlap


def _standardized(values: Float[Array, "n"], share: Float[Array, "n"]) -> Float[Array, "n"]:
    centered = values - jnp.sum(share * values)
    variance = jnp.sum(share * centered**2)
    return centered / jnp.sqrt(jnp.where(variance > 0, variance, 1))


def _score(affine: Float[Array, "2 3"], views: _Views, power: float = 0.5) -> Float[Array, ""]:
    """Return the correlation times a power of the overlap; minus infinity outside the limits.

    The root of the overlap compares distant maps, whose overlaps differ. A refinement compares
    close ones, by the correlation alone.
    """
    residuals, overlap = _compared(affine, views)
    area = affine[0, 0] * affine[1, 1] - affine[0, 1] * affine[1, 0]
    allowed = (overlap >= MIN_OVERLAP) & (area > 1 / AREA) & (area < AREA)
    allowed &= jnp.sum(affine[:, :2] ** 2) < 2 * STRETCH * area
    correlation = 1 - jnp.sum(residuals**2) / 2
    return jnp.where(allowed, correlation * overlap**power, -jnp.inf)


def _refined(affine: Float[Array, "2 3"], views: _Views) -> Float[Array, "2 3"]:
    """Return the map after Levenberg-Marquardt steps that raise the correlation."""

    def step(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        affine, score, damping = state
        residuals, slopes = _linearized(affine, views)
        rows = jnp.concatenate([slopes, jnp.sqrt(damping) * jnp.eye(6)])
        right = jnp.concatenate([-residuals, jnp.zeros(6)])
        moved = affine + least_squares(rows, right).reshape(2, 3)
        new_score = _score(moved, views, 0)
        better = new_score > score
        return (
            jnp.where(better, moved, affine),
            jnp.where(better, new_score, score),
            jnp.where(better, damping / 4, damping * 4),
        ), None

    state = affine, _score(affine, views, 0), jnp.array(1e-2, affine.dtype)
    return jax.lax.scan(step, state, length=STEPS)[0][0]


def _linearized(
    affine: Float[Array, "2 3"], views: _Views
) -> tuple[Float[Array, "n"], Float[Array, "n 6"]]:
    """Return the residuals and their derivatives by the map's six numbers."""

    def residuals(flat: Float[Array, "6"]) -> Float[Array, "n"]:
        return _compared(flat.reshape(2, 3), views)[0]

    flat = affine.ravel()
    return residuals(flat), jax.jacfwd(residuals)(flat)


def _to_pixels(
    affine: Float[Array, "2 3"], main: tuple[int, int], second: tuple[int, int]
) -> Float[Array, "3 3"]:
    """Return the map of centred coordinates, in half sides, as one of pixels."""

    def centered(shape: tuple[int, int]) -> Float[np.ndarray, "3 3"]:
        height, width = shape
        half = max(height, width) / 2
        return np.array([[half, 0, (width - 1) / 2], [0, half, (height - 1) / 2], [0, 0, 1]])

    homogeneous = jnp.concatenate([affine, jnp.array([[0.0, 0.0, 1.0]], affine.dtype)])
    back = np.linalg.inv(centered(main)).astype(np.float32)
    return matrix_product(matrix_product(np.float32(centered(second)), homogeneous), back)
