"""Re-illumination: each image pair as it would appear under every other pair's illuminant.

The two-camera paper's augmentation (section 3.4) in closed form: M pairs give the transforms of M²
pairs as products of 3x3 matrices, without touching a pixel.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import NOT_NEGATIVE, checked
from everlight.color.transforms import fit_color_transform, reilluminate_transform


@checked
def chart_transforms(
    charts: Float[Array, "m patches 3"],
    weights: Annotated[Float[Array, "m patches"], NOT_NEGATIVE] | None = None,
) -> Float[Array, "m m 3 3"]:
    """Fit the transforms A between all charts of one camera, `charts[j] ≈ charts[i] @ A[i, j]`.

    Equations 8 and 9 of the two-camera paper; `A[i, j]` re-illuminates image i as image j.

    Args:
      charts: patch colours of the colour chart (24 of a ColorChecker) in each of m images of one
        camera, `[m, patches, 3]`, in the images' own scale.
      weights: non-negative weight of each patch, `[m, patches]`, 0 where it is saturated; `A[i, j]`
        weights a patch by the product of its weights in i and j.

    Returns:
      The transforms, `[m, m, 3, 3]`; NaN where the weighted patches of chart i have rank below 3.
    """
    weights = jnp.ones(charts.shape[:2], charts.dtype) if weights is None else weights

    def transform(
        source: Float[Array, "patches 3"],
        source_weights: Float[Array, "patches"],
        target: Float[Array, "patches 3"],
        target_weights: Float[Array, "patches"],
    ) -> Float[Array, "3 3"]:
        fit = fit_color_transform(source, target, source_weights * target_weights)
        return jnp.where(fit.valid, fit.transform, jnp.nan)

    to_all = jax.vmap(transform, in_axes=(None, None, 0, 0))
    return jax.vmap(to_all, in_axes=(0, 0, None, None))(charts, weights, charts, weights)


@checked
def von_kries(illuminants: Float[Array, "m 3"]) -> Float[Array, "m m 3 3"]:
    """Return the diagonal transforms `diag(L[j] / L[i])` between all illuminants of one camera.

    For data sets without charts. A common scale of an illuminant scales its row and column of
    transforms: normalize both cameras' illuminants alike, such as to green = 1.

    Args:
      illuminants: L, `[m, 3]`; the result is not finite where illuminant i has a channel of 0.
    """
    ratios = illuminants[None, :] / illuminants[:, None]
    return jax.vmap(jax.vmap(jnp.diag))(ratios)


@checked
def augment_transforms(
    transforms: Float[Array, "m 3 3"],
    first: Float[Array, "m m 3 3"],
    second: Float[Array, "m m 3 3"],
) -> Float[Array, "m m 3 3"]:
    """Return the transforms of all pairs under all illuminants, `A⁻¹ T B`.

    A is `first` and B is `second`. Entry `[i, j]` is pair i re-illuminated as pair j (equations 10
    and 11), so its label is illuminant j; `[i, i]` is pair i itself. `reilluminate_transform`
    states where this is exact.

    Args:
      transforms: T of each pair, from the first to the second camera, `[m, 3, 3]`.
      first: re-illuminations of the first camera, from `chart_transforms` or `von_kries`.
      second: re-illuminations of the second camera.

    Returns:
      The transforms, `[m, m, 3, 3]`; NaN where `first` is singular, as where a chart has fewer than
        three independent colours, and not finite where either is not finite.
    """
    as_all = jax.vmap(reilluminate_transform, in_axes=(None, 0, 0))
    return jax.vmap(as_all)(transforms, first, second)
