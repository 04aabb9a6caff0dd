"""Alignment of one camera's image to the other's pixel grid by a homography; block means.

Points are pixel coordinates (x, y): x to the right, y down, the centre of the top left pixel at (0,
0). A homography H maps one image's points to another's: `(x', y', 1) ∝ H (x, y, 1)`. Its horizon
`H[2] · (x, y, 1) = 0` bounds the points that the other camera can see: those on the side of pixel
(0, 0). The two-camera paper (section 3.1) aligns with one fixed homography per device and
downsamples by six, which tolerates small misalignment and slight parallax.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Bool, Float

from everlight.checks import NOT_NEGATIVE, NotEmpty, PositiveInt, checked
from everlight.errors import ArgumentError
from everlight.precision import matrix_product

# Below this ratio of singular values, a float32 null vector keeps fewer than three digits.
DEGENERATE = 1e-4


class HomographyFit(NamedTuple):
    """Homography with 1 at its lower right; the identity where `valid` is false."""

    homography: Float[Array, "3 3"]
    valid: Bool[Array, ""]


class MaskedImage(NamedTuple):
    """An image, and the mask of its valid pixels."""

    image: Float[Array, "h w c"]
    mask: Bool[Array, "h w"]


def _homogeneous(
    homography: Float[Array, "3 3"], points: Float[Array, "n 2"]
) -> Float[Array, "n 3"]:
    ones = jnp.ones_like(points[:, :1])
    lifted = jnp.concatenate([points, ones], axis=1)
    return matrix_product(lifted, homography.T)


@checked
def apply_homography(
    homography: Float[Array, "3 3"], points: Float[Array, "n 2"]
) -> Float[Array, "n 2"]:
    """Map `points` by H, `[n, 2]`; not finite on H's horizon.

    Args:
      homography: H, which acts on column vectors (x, y, 1), `[3, 3]`.
      points: positions (x, y), `[n, 2]`.
    """
    mapped = _homogeneous(homography, points)
    return mapped[:, :2] / mapped[:, 2:]


def _conditioner(points: Float[Array, "n 2"], weights: Float[Array, "n"]) -> Float[Array, "3 3"]:
    """Return the similarity that makes the points' mean 0 and their RMS distance from it √2."""
    total = jnp.sum(weights)
    mean = jnp.sum(weights[:, None] * points, axis=0) / total
    spread = jnp.sqrt(jnp.sum(weights[:, None] * (points - mean) ** 2) / total)
    scale = jnp.sqrt(2.0) / spread
    return jnp.array([[scale, 0, -scale * mean[0]], [0, scale, -scale * mean[1]], [0, 0, 1]])


@checked
def fit_homography(
    source_points: Float[Array, "n 2"],
    target_points: Float[Array, "n 2"],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
) -> HomographyFit:
    """Fit the homography from `source_points` to `target_points` by the normalized DLT.

    Least-squares solution of the direct linear transform in normalized coordinates (Hartley 1997,
    "In defense of the eight-point algorithm"; Hartley and Zisserman 2004, algorithm 4.2).

    Args:
      source_points: points (x, y), `[n, 2]`, n >= 4.
      target_points: the corresponding points in the other image, `[n, 2]`.
      weights: non-negative weight of each pair's squared algebraic error, `[n]`; 0 excludes it.

    Returns:
      The homography, `[3, 3]`, and its validity. It is invalid where fewer than four pairs differ,
      too many points are collinear, or input is not finite. A point beyond the horizon, a sign of
      mismatched pairs, also makes it invalid. The gradient is 0 where it is invalid.

    Raises:
      ValueError: there are fewer than four pairs.
    """
    if source_points.shape[0] < 4:
        raise ArgumentError(f"{source_points.shape[0]} point pairs; a homography needs at least 4")
    if weights is None:
        weights = jnp.ones_like(source_points[:, 0])
    correspondences = source_points, target_points, weights
    _, valid = _solve(*map(jax.lax.stop_gradient, correspondences))
    # The derivative of a fit that does not exist is NaN, even where its result is not used. Points
    # on a circle take its place.
    angles = jnp.linspace(0, 2 * jnp.pi, len(source_points), endpoint=False)
    circle = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1).astype(source_points.dtype)
    source, target = (jnp.where(valid, points, circle) for points in correspondences[:2])
    homography, _ = _solve(source, target, jnp.where(valid, weights, 1))
    return HomographyFit(jnp.where(valid, homography, jnp.eye(3, dtype=homography.dtype)), valid)


@jax.custom_jvp
def _null_vector(system: Float[Array, "r 9"]) -> Float[Array, "9"]:
    """Return the right singular vector of the smallest singular value."""
    return jnp.linalg.svd(system, full_matrices=False)[2][-1]


@_null_vector.defjvp
def _null_vector_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    # JAX's own derivative also divides by the gaps between the other singular values, which do not
    # affect this vector and are 0 for the corners of a square.
    (system,), (change,) = primals, tangents
    left, singular, right = jnp.linalg.svd(system, full_matrices=False)
    vector, others = right[-1], right[:-1]
    moved = singular[:-1] * matrix_product(left[:, :-1].T, matrix_product(change, vector))
    moved += singular[-1] * matrix_product(others, matrix_product(change.T, left[:, -1]))
    gaps = singular[-1] ** 2 - singular[:-1] ** 2
    shares = jnp.where(gaps < 0, moved / jnp.where(gaps < 0, gaps, 1), 0)
    return vector, matrix_product(others.T, shares)


def _solve(
    source_points: Float[Array, "n 2"],
    target_points: Float[Array, "n 2"],
    weights: Float[Array, "n"],
) -> tuple[Float[Array, "3 3"], Bool[Array, ""]]:
    """Return the fitted homography, and whether it is one."""
    to_source = _conditioner(source_points, weights)
    to_target = _conditioner(target_points, weights)
    source = _homogeneous(to_source, source_points) * jnp.sqrt(weights)[:, None]
    target = apply_homography(to_target, target_points)

    zeros = jnp.zeros_like(source)
    rows_x = jnp.concatenate([source, zeros, -target[:, :1] * source], axis=1)
    rows_y = jnp.concatenate([zeros, source, -target[:, 1:] * source], axis=1)
    # Four pairs give eight rows; a ninth lets the thin decomposition include the null vector.
    system = jnp.concatenate([rows_x, rows_y, jnp.zeros_like(rows_x[:1])])
    singular = jax.lax.stop_gradient(jnp.linalg.svd(system, compute_uv=False))
    normalized = _null_vector(system).reshape(3, 3)
    scales = jnp.linalg.svd(normalized, compute_uv=False)

    product = matrix_product(normalized, to_source)
    homography = jnp.linalg.solve(to_target, product)
    homography = homography / homography[2, 2]
    in_front = _homogeneous(homography, source_points)[:, 2] > 0
    valid = singular[7] > DEGENERATE * singular[0]
    valid &= scales[2] > DEGENERATE * scales[0]
    valid &= jnp.all(in_front | (weights == 0))
    valid &= jnp.all(jnp.isfinite(homography))
    return homography, valid


@checked
def warp_image(
    image: Annotated[Float[Array, "h w c"], NotEmpty],
    homography: Float[Array, "3 3"],
    shape: tuple[PositiveInt, PositiveInt],
) -> MaskedImage:
    """Resample the image on another pixel grid: output pixel p is the image, bilinearly, at H(p).

    If H maps main-camera pixels to second-camera pixels, this brings the second camera's image onto
    the main camera's grid.

    Args:
      image: image, `[h, w, c]`.
      homography: H, from output pixels to the image's pixels, `[3, 3]`.
      shape: (height, width) of the output.

    Returns:
      The warped image, `[*shape, c]`, and its mask, `[*shape]`. A pixel is valid where H(p) lies
        between pixel centres of the image and on this side of the horizon, and is 0 elsewhere.
        Pixels of the image that are not finite are not excluded from it. A NaN in the homography
        leaves no pixel valid; results of an infinite one have no meaning.
    """
    height, width = image.shape[:2]
    y, x = jnp.meshgrid(jnp.arange(shape[0]), jnp.arange(shape[1]), indexing="ij")
    grid = jnp.stack([x.ravel(), y.ravel()], axis=1).astype(image.dtype)
    mapped = _homogeneous(homography, grid)
    column, row = mapped[:, 0] / mapped[:, 2], mapped[:, 1] / mapped[:, 2]
    inside = mapped[:, 2] * homography[2, 2] > 0
    inside &= (column >= 0) & (column <= width - 1) & (row >= 0) & (row <= height - 1)
    where = [jnp.where(inside, row, 0), jnp.where(inside, column, 0)]

    def sample(channel: Float[Array, "h w"]) -> Float[Array, "n"]:
        return map_coordinates(channel, where, order=1, mode="nearest")

    warped = jax.vmap(sample, in_axes=-1, out_axes=-1)(image)
    warped = jnp.where(inside[:, None], warped, 0)
    return MaskedImage(warped.reshape(*shape, -1), inside.reshape(shape))


@checked
def area_downsample(
    image: Float[Array, "h w c"], factor: PositiveInt = 6, mask: Bool[Array, "h w"] | None = None
) -> MaskedImage:
    """Return means over blocks of `factor` × `factor` pixels; the paper's factor is 6.

    Rows and columns at the bottom and right that fill no block are cropped.

    Args:
      image: image, `[h, w, c]`.
      factor: side of a block, in pixels.
      mask: mask of valid pixels, `[h, w]`; all by default.

    Returns:
      The means, `[h // factor, w // factor, c]`, and the mask of blocks whose pixels are all valid.
        The mean of a block with a NaN or infinite pixel is not finite; the mask does not exclude
        that block.

    Raises:
      ValueError: the image is smaller than one block.
    """
    height, width, channels = image.shape
    rows, columns = height // factor, width // factor
    if rows == 0 or columns == 0:
        raise ArgumentError(
            f"an image of {height}×{width} pixels is smaller than a block of {factor}×{factor}; "
            "give a smaller factor"
        )
    if mask is None:
        mask = jnp.ones((height, width), bool)
    blocks = (rows, factor, columns, factor)
    cropped = image[: rows * factor, : columns * factor].reshape(*blocks, channels)
    counted = mask[: rows * factor, : columns * factor].reshape(blocks)
    return MaskedImage(jnp.mean(cropped, axis=(1, 3)), jnp.all(counted, axis=(1, 3)))
