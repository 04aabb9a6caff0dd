"""Re-illumination of image pairs of two cameras by the colour charts that both images show."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.color.reillumination import augment_transforms, chart_transforms
from everlight.color.transforms import mean_normalized
from everlight.errors import ArgumentError
from everlight.illuminant.charted_pairs import ChartedPairs
from everlight.illuminant.pair_inputs import VIEWS


class RelitView(NamedTuple):
    """One camera's part of re-illuminated pairs."""

    illuminants: Float[np.ndarray, "n 3"]
    relights: Float[np.ndarray, "n 3 3"]
    """Matrices that re-illuminate the image's colours, as rows."""


class Augmented(NamedTuple):
    """Re-illuminated training pairs."""

    transforms: Float[np.ndarray, "n 3 3"]
    """Colour transforms between the two cameras."""
    normalized: Float[np.ndarray, "n 3 3"]
    """The same between images divided by their means."""
    main: RelitView
    second: RelitView
    sources: Int[np.ndarray, "n"]
    """Original pair of each, a row of `ChartedPairs`."""


class Relit(NamedTuple):
    """Every pair i under every pair j's illuminant."""

    transforms: Float[Array, "n n 3 3"]
    """Colour transforms between the two cameras."""
    normalized: Float[Array, "n n 3 3"]
    """The same between images divided by their means."""
    main: Float[Array, "n n 3 3"]
    """Matrices that re-illuminate the main image's colours, as rows."""
    second: Float[Array, "n n 3 3"]
    """Matrices that re-illuminate the second image's colours, as rows."""


def reilluminate_training(
    pairs: ChartedPairs, train: Int[np.ndarray, "k"], seed: int, reilluminations: int = 99
) -> Augmented:
    """Return training pairs, each unchanged and re-illuminated as randomly chosen others.

    The closed form is `T' = A⁻¹ T B` with A and B from the charts. It equals re-illuminating the
    pixels if T was fitted without normalization, and is approximate with "sum". The others are
    distinct training pairs, so no test illuminant is seen.

    Args:
      pairs: pairs with their charts.
      train: training pairs, rows of `pairs`.
      seed: random seed of the choice.
      reilluminations: number per pair; the paper's is 99.

    Returns:
      `1 + reilluminations` rows per training pair, the pair itself first.

    Raises:
      ValueError: there are too few training pairs, or a chart determines no transform.
    """
    if reilluminations > len(train) - 1:
        raise ArgumentError(
            f"reilluminations={reilluminations}, but there are {len(train)} training pairs; give "
            f"at most {len(train) - 1}, the number of other pairs."
        )
    relit = relight_by_charts(pairs, train)
    rng = np.random.default_rng(seed)
    rows = np.arange(len(train))
    targets = np.stack(
        [[i, *rng.choice(np.delete(rows, i), reilluminations, replace=False)] for i in rows]
    )
    chosen = np.asarray(relit.transforms)[rows[:, None], targets]
    faulty = ~np.isfinite(chosen).all(axis=(1, 2, 3))
    if faulty.any():
        names = ", ".join(pairs.names[i][0] for i in train[faulty])
        raise ArgumentError(
            f"Too few unsaturated patches to re-illuminate {names}; remove these pairs."
        )
    views = {}
    for view in VIEWS:
        relights = np.asarray(getattr(relit, view))[rows[:, None], targets]
        views[view] = RelitView(
            illuminants=getattr(pairs, view).illuminants[train][targets].reshape(-1, 3),
            relights=relights.reshape(-1, 3, 3),
        )
    return Augmented(
        transforms=chosen.reshape(-1, 3, 3),
        normalized=np.asarray(relit.normalized)[rows[:, None], targets].reshape(-1, 3, 3),
        **views,
        sources=np.repeat(train, targets.shape[1]),
    )


def relight_by_charts(pairs: ChartedPairs, rows: Int[np.ndarray, "n"]) -> Relit:
    """Return some pairs under each other's illuminants; NaN where charts have too few patches."""
    weights = jnp.asarray(pairs.usable[rows], jnp.float32)
    main, second = (
        chart_transforms(jnp.asarray(view.charts[rows]), weights)
        for view in (pairs.main, pairs.second)
    )
    transforms = augment_transforms(jnp.asarray(pairs.transforms[rows]), main, second)
    means = (
        jnp.einsum("ic,ijcd->ijd", jnp.asarray(view.means[rows]), relights, precision="highest")
        for view, relights in ((pairs.main, main), (pairs.second, second))
    )
    normalized = mean_normalized(transforms, *means)
    return Relit(transforms=transforms, normalized=normalized, main=main, second=second)
