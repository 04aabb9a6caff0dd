"""The 3x3 colour transform between two cameras' views of one scene, by least squares.

Colours are rows: `target ≈ source @ transform` (two-camera paper, eq. 1 and 2).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Normalization = Literal["sum"] | None

# The release divides each pixel by its own R+G+B, floored here (facts of the released code).
SUM_FLOOR = 1e-6


class TransformFit(NamedTuple):
    """A least-squares transform; where `valid` is false the source's colours span no 3-space."""

    transform: Float[Array, "3 3"]
    valid: Bool[Array, ""]


def normalize_sum(pixels: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Each pixel divided by its own R+G+B (at least 1e-6), as the paper's released data are."""
    return pixels / jnp.maximum(jnp.sum(pixels, axis=-1, keepdims=True), SUM_FLOOR)


def fit_color_transform(
    source: Float[Array, "n 3"],
    target: Float[Array, "n 3"],
    weights: Float[Array, "n"] | None = None,
    normalize: Normalization = None,
) -> TransformFit:
    """The 3x3 transform T that minimises the weighted squared error of `source @ T - target`.

    A modified Gram-Schmidt QR of `[source | target]`: three columns make it nine reductions over
    the pixels, which `vmap` turns into plain vector code, and applied to the augmented matrix it
    is as stable as Householder's QR (Björck 1967). No normal equations: those square the
    condition number.

    Args:
      source: colours of the first camera, `[n, 3]`, n >= 3.
      target: colours of the second camera at the same places, `[n, 3]`.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks a pixel out.
      normalize: "sum" divides each pixel of both by its own R+G+B before the fit.

    Returns:
      The transform, `[3, 3]`, and whether the source has rank 3 (false too for input that is not
      finite); an invalid fit's transform is the identity, so that it can flow through a batch.

    Raises:
      ValueError: fewer than three pixels, or an unknown `normalize`.
    """
    if source.shape[0] < 3:
        raise ValueError(f"source has {source.shape[0]} pixels; a 3x3 transform needs at least 3")
    if normalize == "sum":
        source, target = normalize_sum(source), normalize_sum(target)
    elif normalize is not None:
        raise ValueError(f"normalize={normalize!r}; it is None or 'sum'")
    if weights is not None:
        root = jnp.sqrt(weights)[:, None]
        source, target = source * root, target * root

    columns = [*source.T, *target.T]
    # How far rounding may move each column; what it moved an earlier one is handed on, enlarged
    # where the two are nearly parallel. A column no longer than that depends on those before it.
    rounding = 16 * jnp.finfo(source.dtype).eps
    noise = [rounding * jnp.sqrt(jnp.sum(column * column)) for column in columns[:3]]
    triangle = {}
    valid = jnp.array(True)
    for k in range(3):
        length = jnp.sqrt(jnp.sum(columns[k] * columns[k]))
        valid &= length > noise[k]
        triangle[k, k] = jnp.where(length > 0, length, 1)
        unit = columns[k] / triangle[k, k]
        for j in range(k + 1, 6):
            triangle[k, j] = jnp.sum(unit * columns[j])
            columns[j] = columns[j] - triangle[k, j] * unit
        for j in range(k + 1, 3):
            noise[j] = noise[j] + jnp.abs(triangle[k, j]) / triangle[k, k] * noise[k]

    rows: list[Float[Array, "3"]] = [jnp.zeros(3, source.dtype)] * 3
    for k in reversed(range(3)):
        row = jnp.stack([triangle[k, 3], triangle[k, 4], triangle[k, 5]])
        for j in range(k + 1, 3):
            row = row - triangle[k, j] * rows[j]
        rows[k] = row / triangle[k, k]
    transform = jnp.stack(rows)
    valid &= jnp.all(jnp.isfinite(transform))
    return TransformFit(jnp.where(valid, transform, jnp.eye(3, dtype=source.dtype)), valid)


def apply_color_transform(
    pixels: Float[Array, "*n 3"], transform: Float[Array, "3 3"]
) -> Float[Array, "*n 3"]:
    """`pixels @ transform` at the highest matrix precision, so that every device agrees."""
    return jnp.matmul(pixels, transform, precision=jax.lax.Precision.HIGHEST)


def reilluminate_transform(
    transform: Float[Array, "3 3"], first: Float[Array, "3 3"], second: Float[Array, "3 3"]
) -> Float[Array, "3 3"]:
    """The transform of a pair after both of its images are re-illuminated, in closed form.

    With `C1' = C1 A` and `C2' = C2 B`, the least-squares transform between the new images is
    exactly `A⁻¹ T B` (two-camera paper, section 3.4, without touching a pixel). It is exact for
    fits without weights (or with the same weights) on pixels that are not sum-normalised; with
    `normalize="sum"` it is only approximate, because each pixel's divisor changes.

    Args:
      transform: T of the original pair, `[3, 3]`.
      first: A, the first camera's re-illumination, `[3, 3]`, invertible.
      second: B, the second camera's, `[3, 3]`.
    """
    return apply_color_transform(jnp.linalg.solve(first, transform), second)
