"""Maximum a posteriori colour transform for scenes with noise or few colours.

Least squares needs at least three independent colours and amplifies noise of near-grey ones. The
transforms of one camera pair lie close together, since illuminants have two or three degrees of
freedom, not nine. Their distribution over training scenes is therefore a Gaussian prior, and the
transform is the most probable one given the scene's colours.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import NOT_NEGATIVE, POSITIVE, PositiveFloat, checked
from everlight.color.feature_distribution import fit_feature_distribution
from everlight.color.transforms import fit_color_transform
from everlight.precision import full_precision, matrix_product

Misfit = PositiveFloat | Annotated[Float[Array, ""], POSITIVE]


class TransformPrior(NamedTuple):
    """Gaussian prior of one camera pair's transforms between images divided by their means.

    Attributes:
      mean: mean transform, flattened row by row, `[9]`.
      root: square root of the precision, `[9, 9]`; `root.T @ root` is the inverse covariance.
      misfit: standard deviation of a scene's colours around their transform, as a fraction of the
        image's mean. It weighs the scene against the prior.
    """

    mean: Float[Array, "9"]
    root: Float[Array, "9 9"]
    misfit: Float[Array, ""]


class ProbableTransform(NamedTuple):
    """Maximum a posteriori transform; the identity where `valid` is false.

    Attributes:
      transform: the transform between the images divided by their means, `[3, 3]`.
      distance: square root of the minimized objective: deviation of colours and transform from the
        prior's expectation.
      valid: true if the image is not black and every value is finite.
    """

    transform: Float[Array, "3 3"]
    distance: Float[Array, ""]
    valid: Bool[Array, ""]


@checked
def learn_transform_prior(
    main: Float[Array, "m n 3"], second: Float[Array, "m n 3"], misfit: Misfit
) -> TransformPrior:
    """Fit the prior to scenes whose colours determine their transforms, at any exposure.

    Args:
      main: colours of the main camera, with as little noise as possible, `[m, n, 3]`.
      second: colours of the second camera at the same points, `[m, n, 3]`.
      misfit: residual deviation, described in `TransformPrior`; to be selected on validation
        scenes.

    Returns:
      The prior, without the scenes whose colours have rank below 3 or are not finite. It is NaN
        where no scene remains, and its root is not finite where one does, so that no transform is
        valid.
    """
    fit = jax.vmap(fit_color_transform)(
        *(jax.vmap(_normalize_mean)(view) for view in (main, second))
    )
    known = fit_feature_distribution(fit.transform.reshape(-1, 9), fit.valid)
    return TransformPrior(*known, jnp.asarray(misfit, fit.transform.dtype))


@checked
@full_precision
def fit_probable_transform(
    source: Float[Array, "n 3"],
    target: Float[Array, "n 3"],
    prior: TransformPrior,
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE] | None = None,
) -> ProbableTransform:
    """Return the maximum a posteriori transform between both images divided by their means.

    This scale, of `mean_normalized`, removes the exposures. The minimized objective
    is mean |source T - target|² / misfit² + |root (T - mean)|². It has the mean over pixels, not
    the sum, because residuals come mostly from model error, which more pixels do not average away.
    A photograph therefore has the same weight as 24 patches.

    Args:
      source: colours of the first camera, `[n, 3]`.
      target: colours of the second camera at the same points, `[n, 3]`.
      prior: prior of this pair of cameras.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks a pixel, even a
        NaN.

    Returns:
      The transform, its distance from the prior's expectation, and whether it is valid.
    """
    weights = jnp.ones(len(source), source.dtype) if weights is None else weights
    seen = (weights > 0)[:, None]
    share = weights / jnp.sum(weights)
    source, target = (
        _normalize_mean(jnp.where(seen, view, 0), share[:, None]) for view in (source, target)
    )
    root = jnp.sqrt(share)[:, None] / prior.misfit
    identity = jnp.eye(3, dtype=source.dtype)
    # Row (k, c) of the design matrix holds pixel k's colour in the columns of target channel c.
    design = jnp.einsum("ki,cd->kcid", source * root, identity).reshape(-1, 9)
    rows = jnp.concatenate([design, prior.root])
    right = jnp.concatenate([(target * root).ravel(), matrix_product(prior.root, prior.mean)])
    entries = least_squares(rows, right)
    transform = entries.reshape(3, 3)
    left = right - matrix_product(rows, entries)
    valid = jnp.all(jnp.isfinite(transform)) & jnp.all(weights >= 0)
    return ProbableTransform(
        jnp.where(valid, transform, identity), jnp.sqrt(jnp.sum(left**2)), valid
    )


def least_squares(rows: Float[Array, "m k"], right: Float[Array, "m"]) -> Float[Array, "k"]:
    """Solve a least-squares problem by modified Gram-Schmidt of `[rows | right]`.

    No library's factorization is used. XLA on CPU runs independent batches of them at once on one
    thread pool. With two threads, two such batches (the blocks of a map and its remainder)
    deadlocked (jaxlib 0.10.2).
    """
    columns, triangle = jnp.concatenate([rows, right[:, None]], axis=1), []
    for _ in range(rows.shape[1]):
        length = jnp.sqrt(jnp.sum(columns[:, 0] ** 2))
        unit = columns[:, 0] / length
        along = matrix_product(unit, columns[:, 1:])
        columns = columns[:, 1:] - unit[:, None] * along
        triangle.append((length, along))
    entries: list[Array] = []
    for length, along in reversed(triangle):
        known = sum((a * e for a, e in zip(along, entries, strict=False)), jnp.zeros(()))
        entries.insert(0, (along[-1] - known) / length)
    return jnp.stack(entries)


def _normalize_mean(
    colors: Float[Array, "n 3"], share: Float[Array, "n 1"] | float | None = None
) -> Float[Array, "n 3"]:
    """Divide colours by their weighted mean over pixels and channels; NaN for a black image."""
    mean = jnp.mean(colors) if share is None else jnp.sum(colors * share) / 3
    return colors / jnp.where(mean > 0, mean, jnp.nan)
