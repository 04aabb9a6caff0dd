"""Re-illumination: each pair of images as it would look under every other pair's light.

The two-camera paper's augmentation (section 3.4) in closed form: M pairs give the transforms of
M² pairs as products of 3x3 matrices, without touching a pixel.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import checked
from everlight.color.transforms import fit_color_transform, reilluminate_transform


@checked
def chart_transforms(
    charts: Float[Array, "m patches 3"], weights: Float[Array, "m patches"] | None = None
) -> Float[Array, "m m 3 3"]:
    """The transforms A between all charts of one camera, `charts[j] ≈ charts[i] @ A[i, j]`.

    Equations 8 and 9 of the two-camera paper; `A[i, j]` re-illuminates image i as image j.

    Args:
      charts: colours of the chart's patches, 24 of a ColorChecker, in each of m images of one
        camera, `[m, patches, 3]`, in the images' own scale.
      weights: non-negative weight of each patch, `[m, patches]`, 0 where it is saturated; a patch
        counts in `A[i, j]` by the product of its weights in i and j.

    Returns:
      `[m, m, 3, 3]`; NaN where the counted patches of chart i do not span the three channels.
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
    """The diagonal transforms `diag(L[j] / L[i])` between all illuminants of one camera.

    For sets without charts. A common scale of an illuminant scales its row and column of
    transforms: give both cameras' illuminants in scales that agree, such as green = 1 in both.

    Args:
      illuminants: L, `[m, 3]`; not finite where illuminant i has a channel of 0.
    """
    ratios = illuminants[None, :] / illuminants[:, None]
    return jax.vmap(jax.vmap(jnp.diag))(ratios)


@checked
def augment_transforms(
    transforms: Float[Array, "m 3 3"],
    first: Float[Array, "m m 3 3"],
    second: Float[Array, "m m 3 3"],
) -> Float[Array, "m m 3 3"]:
    """The transforms of all pairs under all lights, `A⁻¹ T B` with A `first` and B `second`.

    Entry `[i, j]` is pair i re-illuminated as pair j (equations 10 and 11), so its label is
    illuminant j; `[i, i]` is pair i itself. `reilluminate_transform` says where this is exact.

    Args:
      transforms: T of each pair, first to second camera, `[m, 3, 3]`.
      first: the first camera's re-illuminations, from `chart_transforms` or `von_kries`.
      second: the second camera's.

    Returns:
      `[m, m, 3, 3]`; not finite where `first` is singular or either is not finite.
    """
    as_all = jax.vmap(reilluminate_transform, in_axes=(None, 0, 0))
    return jax.vmap(as_all)(transforms, first, second)
