"""Least-squares 3x3 colour transform between two cameras' views of one scene.

Colours are rows: `target ≈ source @ transform` (two-camera paper, eq. 1 and 2).
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import NOT_NEGATIVE, checked
from everlight.errors import ArgumentError
from everlight.precision import matrix_product

Normalization = Literal["mean", "scale", "sum"] | None

# The released code divides each pixel by its own R+G+B; this is the floor of the divisor.
SUM_FLOOR = 1e-6


class TransformFit(NamedTuple):
    """Least-squares transform; `valid` is false where the source's colours have rank below 3."""

    transform: Float[Array, "3 3"]
    valid: Bool[Array, ""]


@checked
def scale_free(transform: Float[Array, "*n 3 3"]) -> Float[Array, "*n 3 3"]:
    """Divide transforms by their mean row sum, which removes the ratio of two exposures.

    A transform whose mean row sum is not positive becomes NaN. The mean row sum is the second
    camera's response to equal raw red, green and blue of the first. This is a magenta that few
    scenes contain: least squares extrapolates to it, and its response is not positive on 19 to 32
    of the 144 pairs of INTEL-TAU's cameras. `mean_normalized` is defined for all of them.
    """
    mean = jnp.mean(jnp.sum(transform, axis=-1), axis=-1)[..., None, None]
    return jnp.where(mean > 0, transform / jnp.where(mean > 0, mean, 1), jnp.nan)


@checked
def mean_normalized(
    transform: Float[Array, "*n 3 3"], source: Float[Array, "*n 3"], target: Float[Array, "*n 3"]
) -> Float[Array, "*n 3 3"]:
    """Return transforms between images that are divided by their means over pixels and channels.

    This removes both exposures, and exists for every pair of images that are not black. Unlike
    `scale_free`, it keeps the mean row sum, which depends on the scene's mean colours. A
    re-illuminated pair has the mean colours `source @ A` and `target @ B` and the transform
    `A⁻¹ T B`, whose normalization follows without a pixel.

    Args:
      transform: T between the images, `[..., 3, 3]`.
      source: mean colour of the first image in the scale of T, `[..., 3]`.
      target: mean colour of the second image in the scale of T, `[..., 3]`.

    Returns:
      The transforms; NaN where a mean is not positive.
    """
    means = [jnp.mean(colors, axis=-1)[..., None, None] for colors in (source, target)]
    positive = (means[0] > 0) & (means[1] > 0)
    ratio = means[0] / jnp.where(positive, means[1], 1)
    return jnp.where(positive, transform * ratio, jnp.nan)


@checked
def normalize_sum(pixels: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Divide each pixel by its own R+G+B (at least 1e-6), as in the paper's released data.

    Values below black count as 0: a total near 0 would otherwise make such a pixel the largest.

    Args:
      pixels: linear colours, `[..., 3]`.
    """
    pixels = jnp.maximum(pixels, 0)
    total = pixels[..., 0] + pixels[..., 1] + pixels[..., 2]
    return pixels / jnp.maximum(total, SUM_FLOOR)[..., None]


@checked
def fit_color_transform(
    source: Float[Array, "n 3"],
    target: Float[Array, "n 3"],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
    normalize: Normalization = None,
) -> TransformFit:
    """Fit the 3x3 transform T that minimizes the weighted squared error of `source @ T - target`.

    Modified Gram-Schmidt on `[source | target]` is as stable as Householder QR (Björck 1967).
    Normal equations would square the condition number. A batch of images is read three times, and
    no array of its size is written (`_pivot_products`).

    Args:
      source: colours of the first camera, `[n, 3]`, n >= 3.
      target: colours of the second camera at the same points, `[n, 3]`.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks a pixel, whose
        colours must be finite all the same: `jnp.where(weights[:, None] > 0, source, 0)` where
        they are not. A mask is `mask.astype(float)`.
      normalize: "mean" fits the transform between the images divided by their weighted means over
        pixels and channels (`mean_normalized`). "sum" divides each pixel of both images by its own
        R+G+B before the fit, as in the authors' code; "scale" divides the transform by its mean row
        sum (`scale_free`), which some real pairs do not allow. Each makes the result independent of
        both exposures.

    Returns:
      The transform, `[3, 3]`, and its validity. It is invalid where the source has rank below 3,
        where input is not finite, or where "mean" or "scale" has no positive divisor. An invalid
        transform is the identity, and its gradient by finite input is 0, so that a batch stays
        finite.

    Raises:
      ValueError: there are fewer than three pixels, or `normalize` is unknown.
    """
    if source.shape[0] < 3:
        raise ArgumentError(
            f"source has {source.shape[0]} pixels; a 3x3 transform needs at least 3"
        )

    # The bound has to know that NumPy's float64 is computed in float32, unless 64 bits are enabled.
    source, target = jnp.asarray(source), jnp.asarray(target)
    # Bound on the rounding error of each column, including the propagated error of earlier ones,
    # which grows where columns are nearly parallel. A shorter column is linearly dependent.
    rounding = 16 * jnp.finfo(source.dtype).eps
    noise, squares, factors = [], [], []
    valid = jnp.array(True) if weights is None else jnp.all(weights >= 0)
    pixels = (source, target, weights)
    for k in range(3):
        # The barrier makes each pass recompute its columns from the input: shared between passes,
        # they would be written to memory, which takes most of the time of a large batch.
        pixels = jax.lax.optimization_barrier(pixels)
        square, *products = _pivot_products(*pixels, normalize, factors)
        above = [factors[i][k - i - 1] for i in range(k)]
        norm = jnp.sqrt(square + sum(f * f * s for f, s in zip(above, squares, strict=True)))
        noise.append(
            rounding * norm + sum(jnp.abs(f) * moved for f, moved in zip(above, noise, strict=True))
        )
        independent = jnp.sqrt(square) > noise[k]
        valid &= independent
        squares.append(square)
        # A square that is rounding alone would make the gradient of an invalid fit infinite.
        factors.append(jnp.stack(products) / jnp.where(independent, square, 1))

    rows: list[Float[Array, "3"]] = []
    for factor in reversed(factors):
        known = sum(f * row for f, row in zip(factor, rows, strict=False))
        rows = [factor[-3:] - known, *rows]
    transform = jnp.stack(rows)
    if normalize == "scale":
        transform = scale_free(transform)
    elif normalize == "mean":
        transform = mean_normalized(transform, *_mean_colors(source, target, weights))
    valid &= jnp.all(jnp.isfinite(transform))
    return TransformFit(jnp.where(valid, transform, jnp.eye(3, dtype=source.dtype)), valid)


def _pivot_products(
    source: Float[Array, "n 3"],
    target: Float[Array, "n 3"],
    weights: Float[Array, "n"] | None,
    normalize: Normalization,
    factors: list[Float[Array, "_"]],
) -> list[Float[Array, ""]]:
    """Return the next pivot column's products with itself and with the columns after it.

    Earlier pivots are first subtracted from all columns; `factors` are their multiples. One
    reduction with many operands computes all products in one pass over the pixels.
    """
    if normalize == "sum":
        source, target = normalize_sum(source), normalize_sum(target)
    columns = [_split_into_lanes(column) for column in (*source.T, *target.T)]
    for factor in factors:
        pivot, *columns = columns
        columns = [c - f * pivot for f, c in zip(factor, columns, strict=True)]
    pivot = columns[0] if weights is None else columns[0] * _split_into_lanes(weights)
    zeros = (jnp.zeros((), source.dtype),) * len(columns)
    sums = jax.lax.reduce(tuple(pivot * c for c in columns), zeros, _add_operands, (1,))
    return [jnp.sum(lanes) for lanes in sums]


def _mean_colors(
    source: Float[Array, "n 3"], target: Float[Array, "n 3"], weights: Float[Array, "n"] | None
) -> list[Float[Array, "3"]]:
    """Return the weighted mean colours of both images."""
    share = 1 / source.shape[0] if weights is None else (weights / jnp.sum(weights))[:, None]
    return [jnp.sum(colors * share, axis=0) for colors in (source, target)]


def _split_into_lanes(column: Float[Array, "n"]) -> Float[Array, "blocks rows 8"]:
    """Reshape into eight lanes of at most 512 pixels, to fill a vector unit and sum accurately."""
    blocks = -(-column.shape[0] // 4096)
    return jnp.pad(column, (0, -column.shape[0] % (8 * blocks))).reshape(blocks, -1, 8)


def _add_operands(first: tuple[Array, ...], second: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))


@checked
def apply_color_transform(
    pixels: Float[Array, "*n 3"], transform: Float[Array, "3 3"]
) -> Float[Array, "*n 3"]:
    """Return `pixels @ transform` in full precision on all devices."""
    return matrix_product(pixels, transform)


def inverse_transform(transform: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Return the inverse by cofactors, which needs no factorization."""
    first, second, third = transform
    cofactors = jnp.stack(
        [jnp.cross(second, third), jnp.cross(third, first), jnp.cross(first, second)], axis=1
    )
    return cofactors / jnp.sum(first * cofactors[:, 0])


def is_inverse(matrix: Float[Array, "3 3"], inverse: Float[Array, "3 3"]) -> Bool[Array, ""]:
    """Return False where an inverse from a factorization is rounding alone.

    That is where the condition number, with the matrix's rows scaled to a greatest entry of 1,
    exceeds 1 / (16 eps), which is 524,288 in float32; or where it is NaN.
    """
    scale = jnp.max(jnp.abs(matrix), axis=1)
    condition = jnp.linalg.norm(matrix / scale[:, None]) * jnp.linalg.norm(inverse * scale)
    return condition <= 1 / (16 * jnp.finfo(inverse.dtype).eps)


@checked
def reilluminate_transform(
    transform: Float[Array, "3 3"], first: Float[Array, "3 3"], second: Float[Array, "3 3"]
) -> Float[Array, "3 3"]:
    """Return the transform of a pair after both of its images are re-illuminated, in closed form.

    With `C1' = C1 A` and `C2' = C2 B`, the least-squares transform between the new images is
    exactly `A⁻¹ T B` (two-camera paper, section 3.4, without touching a pixel). It is exact for
    fits without weights (or with the same weights) on pixels that are not sum-normalized. With
    `normalize="sum"` it is approximate, because each pixel's divisor changes.

    Args:
      transform: T of the original pair, `[3, 3]`.
      first: A, the re-illumination of the first camera, `[3, 3]`, invertible.
      second: B, the re-illumination of the second camera, `[3, 3]`.

    Returns:
      The transform; NaN where A is singular within rounding (a condition number above about 5e5 in
        float32), and not finite where one of the three is not.
    """
    relit = apply_color_transform(jnp.linalg.solve(first, transform), second)
    return jnp.where(is_inverse(first, jnp.linalg.inv(first)), relit, jnp.nan)
