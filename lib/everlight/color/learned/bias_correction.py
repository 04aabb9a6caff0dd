"""Learned corrections of single-image estimates: corrected moments, colour homography, APAP.

An estimate, or moments of the image, are mapped linearly to the illuminant. Every image has a free
scale, since an illuminant's brightness is irrelevant. The same function fits corrected moments
(Finlayson 2013, ICCV) and, on estimates of a statistical method, the colour homography (Finlayson,
Gong and Fisher 2019, PAMI). As-projective-as-possible (APAP; Afifi, Punnappurath, Finlayson and
Brown 2019, JOSA A) fits a homography for every estimate.
"""

from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import (
    NOT_NEGATIVE,
    NotEmpty,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    checked,
)
from everlight.color.estimators.minkowski import GRAY_WORLD, SHADES_OF_GRAY
from everlight.color.estimators.principal_direction import BRIGHT_DARK_PCA
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, images_alone
from everlight.color.illuminants import Illuminant, unit_illuminant
from everlight.color.moments import edge_moments, pixel_moments
from everlight.metrics.angular import angular_error
from everlight.precision import matrix_product

ITERATIONS = 100
"""Iterations of alternating least squares. The authors' code stops at 1,000: on NUS's D5200 that
changes the mean errors of homographies by 0.01 degrees and those of moments by up to 0.17, in
either direction."""


class TrainingEstimates(NamedTuple):
    """Model of APAP, which fits to all training images for every estimate.

    Attributes:
      estimates: unit estimates of the training images by a statistical method; rows that are not
        finite are ignored.
      illuminants: true illuminants of the training images, any scale; rows of 0 are ignored.
    """

    estimates: Float[Array, "n 3"]
    illuminants: Float[Array, "n 3"]


@checked
def fit_bias_correction(
    features: Annotated[Float[Array, "n f"], NotEmpty],
    illuminants: Annotated[Float[Array, "n 3"], NOT_NEGATIVE],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
    iterations: PositiveInt = ITERATIONS,
) -> Float[Array, "f 3"]:
    """Fit the matrix M with `features @ M` parallel to the illuminants.

    Alternating least squares reduces the sum of `weights * |d_i * (features_i @ M) -
    illuminant_i|²` over M and over each image's scale d_i in turn (Finlayson 2013, equations 9 to
    11). Illuminants are normalized to unit length.

    Args:
      features: moments, or unit estimates of another method, `[n, f]`; rows that are not finite are
        ignored.
      illuminants: true illuminants, any scale, `[n, 3]`; rows of 0, which have no direction, are
        ignored.
      weights: non-negative weight of each image, `[n]`.
      iterations: number of alternations.

    Returns:
      The matrix, `[f, 3]`, with arbitrary scale; the minimum-norm solution if it is not unique.
    """
    finite = jnp.all(jnp.isfinite(features), axis=1)
    inputs = jnp.where(finite[:, None], features, 0)
    black = jnp.all(illuminants == 0, axis=1)
    illuminants = jnp.where(black[:, None], 1, illuminants)
    normalized = illuminants / jnp.linalg.norm(illuminants, axis=1, keepdims=True)
    root = (finite & ~black).astype(features.dtype)
    if weights is not None:
        root = root * jnp.sqrt(jnp.where(weights > 0, weights, 0))

    def solve(scales: Float[Array, "n"]) -> Float[Array, "f 3"]:
        rows = inputs * (root * scales)[:, None]
        return jnp.linalg.lstsq(rows, normalized * root[:, None])[0]

    def alternate(_: Array, matrix: Float[Array, "f 3"]) -> Float[Array, "f 3"]:
        mapped = matrix_product(inputs, matrix)
        length = jnp.sum(mapped * mapped, axis=1)
        along = jnp.sum(mapped * normalized, axis=1)
        return solve(jnp.where(length > 0, along / jnp.where(length > 0, length, 1), 0))

    return jax.lax.fori_loop(0, iterations, alternate, solve(jnp.ones_like(root)))


@checked
def correct_bias(matrix: Float[Array, "f 3"], features: Float[Array, "f"]) -> Illuminant:
    """Return the corrected unit illuminant; NaN for NaN features or without a positive channel.

    Args:
      matrix: matrix from `fit_bias_correction`.
      features: features of the same kind as in the fit, `[f]`.
    """
    illuminant = jnp.maximum(matrix_product(features, matrix), 0)
    return unit_illuminant(jnp.where(jnp.max(illuminant) > 0, illuminant, jnp.nan))


@checked
def correct_bias_locally(
    model: TrainingEstimates,
    estimate: Illuminant,
    width: PositiveFloat = 3.0,
    floor: UnitInterval = 0.065,
) -> Illuminant:
    """Correct an estimate by a homography fitted mostly to nearby training estimates (APAP).

    Afifi et al. 2019: a training image at an angle of θ degrees has the factor max(exp(-θ /
    width²), floor) in the least squares. The kernel is linear in θ, and the defaults are those of
    the authors' code.

    Args:
      model: estimates of the training images by the same method.
      estimate: estimate of the same method on the image to correct, `[3]`.
      width: width of the kernel.
      floor: smallest factor; 1 gives one homography for all images.

    Returns:
      The unit illuminant; NaN where the estimate is not finite.
    """
    angles = jax.vmap(angular_error, (0, None))(model.estimates, estimate)
    kernel = jnp.maximum(jnp.exp(-angles / width**2), floor)
    # Rows that are not finite are ignored in the fit, but their weights must be finite.
    matrix = fit_bias_correction(*model, weights=jnp.where(kernel > 0, kernel, 0) ** 2)
    return correct_bias(matrix, estimate)


@images_alone
@jax.jit
def _fit(images: LabelledImages) -> Float[Array, "f 3"]:
    return fit_bias_correction(images.features, images.illuminants)


@images_alone
def _training_estimates(images: LabelledImages) -> TrainingEstimates:
    return TrainingEstimates(images.features, images.illuminants)


_MOMENTS = {
    "9 of colours": pixel_moments,
    "19 of colours": partial(pixel_moments, degree=3),
    "9 of edges": edge_moments,
    "19 of edges": partial(edge_moments, degree=3),
}
METHODS = (
    *(
        IlluminantMethod(f"Corrected moments, {kind}", moments, _fit, correct_bias)
        for kind, moments in _MOMENTS.items()
    ),
    *(
        IlluminantMethod(f"Homography ({row.name})", row.features, _fit, correct_bias)
        for row in (SHADES_OF_GRAY, BRIGHT_DARK_PCA)
    ),
    *(
        IlluminantMethod(
            f"APAP ({row.name})", row.features, _training_estimates, correct_bias_locally
        )
        for row in (GRAY_WORLD, SHADES_OF_GRAY, BRIGHT_DARK_PCA)
    ),
)
