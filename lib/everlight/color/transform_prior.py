"""The colour transform of a noisy scene, or of one with few colours: most probable, not best fit.

Three colours and no noise determine a transform, one or two do not, and of noisy near-grey ones
least squares makes much of little. A camera pair's transforms, however, lie close together: the
light has two or three degrees of freedom, not nine. So their distribution over training scenes is
taken as a Gaussian prior, and the transform as the most probable one given the scene's colours.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import ABOVE_ZERO, PositiveFloat, checked
from everlight.color.feature_distribution import fit_feature_distribution
from everlight.color.transforms import fit_color_transform, scale_free

Misfit = PositiveFloat | Annotated[Float[Array, ""], ABOVE_ZERO]


class TransformPrior(NamedTuple):
    """Distribution of one camera pair's transforms between images divided by their means.

    Attributes:
      mean: `[9]`, row by row.
      root: a root of the precision, `root.T @ root` is the inverse covariance, `[9, 9]`.
      misfit: standard deviation that a scene's colours have around their transform, as a share of
        the image's mean: how much a scene counts against the prior.
    """

    mean: Float[Array, "9"]
    root: Float[Array, "9 9"]
    misfit: Float[Array, ""]


class ProbableTransform(NamedTuple):
    """A transform; where `valid` is false there is none, and it is the identity.

    Attributes:
      transform: `[3, 3]`, divided by its mean row sum.
      distance: root of what was made least: how far colours and transform together are from what
        the prior expects.
      valid: whether the image has light and every value is finite.
    """

    transform: Float[Array, "3 3"]
    distance: Float[Array, ""]
    valid: Bool[Array, ""]


@checked
def learn_transform_prior(
    main: Float[Array, "m n 3"], second: Float[Array, "m n 3"], misfit: Misfit
) -> TransformPrior:
    """The prior from scenes that determine their transform, of any exposure.

    Args:
      main: colours of the main camera, as free of noise as can be had, `[m, n, 3]`.
      second: colours of the second camera at the same places, `[m, n, 3]`.
      misfit: see `TransformPrior`; chosen on validation scenes.

    Returns:
      The prior; scenes whose colours do not span 3-space have no part in it.
    """
    fit = jax.vmap(fit_color_transform)(*(jax.vmap(_at_mean_one)(view) for view in (main, second)))
    known = fit_feature_distribution(fit.transform.reshape(-1, 9), fit.valid)
    return TransformPrior(*known, jnp.asarray(misfit, fit.transform.dtype))


@checked
def fit_probable_transform(
    source: Float[Array, "n 3"],
    target: Float[Array, "n 3"],
    prior: TransformPrior,
    weights: Float[Array, "n"] | None = None,
) -> ProbableTransform:
    """The most probable transform, divided by its mean row sum (`scale_free`).

    Both images are divided by their means, which takes their exposures out; then
    mean |source T - target|² / misfit² + |root (T - mean)|² is least. The mean over pixels, not
    their sum: what colours are off by is mostly that no 3x3 transform fits them all, which more
    pixels do not average away, so a photograph counts as much as 24 patches.

    Args:
      source: colours of the first camera, `[n, 3]`.
      target: colours of the second camera at the same places, `[n, 3]`.
      prior: of this pair of cameras.
      weights: non-negative weight of each pixel's squared error, `[n]`; 0 masks it out, whatever
        stands there.

    Returns:
      The transform, its distance from what the prior expects, and whether it exists.
    """
    weights = jnp.ones(len(source), source.dtype) if weights is None else weights
    seen = (weights > 0)[:, None]
    share = weights / jnp.sum(weights)
    source, target = (
        _at_mean_one(jnp.where(seen, view, 0), share[:, None]) for view in (source, target)
    )
    root = jnp.sqrt(share)[:, None] / prior.misfit
    identity = jnp.eye(3, dtype=source.dtype)
    # Row k, c of the design holds pixel k's colour where the target's channel c is made.
    design = jnp.einsum("ki,cd->kcid", source * root, identity).reshape(-1, 9)
    rows = jnp.concatenate([design, prior.root])
    right = jnp.concatenate(
        [(target * root).ravel(), jnp.matmul(prior.root, prior.mean, precision="highest")]
    )
    entries = _least_squares(rows, right)
    transform = scale_free(entries.reshape(3, 3))
    left = right - jnp.matmul(rows, entries, precision="highest")
    valid = jnp.all(jnp.isfinite(transform)) & jnp.all(weights >= 0)
    return ProbableTransform(
        jnp.where(valid, transform, identity), jnp.sqrt(jnp.sum(left**2)), valid
    )


def _least_squares(rows: Float[Array, "m k"], right: Float[Array, "m"]) -> Float[Array, "k"]:
    """The solution of least error, by modified Gram-Schmidt of `[rows | right]`.

    Written out, since XLA on CPU runs a program's independent batches of library factorisations
    at once on one pool of threads: with two threads, two such batches (the blocks of a map and its
    rest) waited for each other for ever (jaxlib 0.10.2).
    """
    columns, triangle = jnp.concatenate([rows, right[:, None]], axis=1), []
    for _ in range(rows.shape[1]):
        length = jnp.sqrt(jnp.sum(columns[:, 0] ** 2))
        unit = columns[:, 0] / length
        along = jnp.matmul(unit, columns[:, 1:], precision="highest")
        columns = columns[:, 1:] - unit[:, None] * along
        triangle.append((length, along))
    entries: list[Array] = []
    for length, along in reversed(triangle):
        known = sum((a * e for a, e in zip(along, entries, strict=False)), jnp.zeros(()))
        entries.insert(0, (along[-1] - known) / length)
    return jnp.stack(entries)


def _at_mean_one(
    colors: Float[Array, "n 3"], share: Float[Array, "n 1"] | float | None = None
) -> Float[Array, "n 3"]:
    """Colours divided by their weighted mean over pixels and channels; NaN without light."""
    mean = jnp.mean(colors) if share is None else jnp.sum(colors * share) / 3
    return colors / jnp.where(mean > 0, mean, jnp.nan)
