"""Rendered scenes seen by pairs of cameras: inputs of networks, and all methods but networks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.color.baselines.chromagenic import chromagenic_estimate, fit_chromagenic
from everlight.color.baselines.gamut import Gamut, fit_gamut, gamut_estimate
from everlight.color.baselines.linear_regression import fit_linear_regression, linear_estimate
from everlight.color.baselines.protocol import ObservedImage
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.estimators import ESTIMATORS
from everlight.color.moments import color_moments
from everlight.color.transform_prior import (
    TransformPrior,
    fit_probable_transform,
    learn_transform_prior,
)
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_training import Problem
from everlight_data.color.radiometric import (
    PATCHES,
    RadiometricSettings,
    Scenes,
    Split,
    draw_color_counts,
    draw_scenes,
    show_colors,
)
from everlight_data.color.rendered_views import BATCH, View, in_pieces, views_of
from everlight_data.color.spectra import SpectralLibrary
from everlight_data.errors import DataError
from everlight_experiments.illuminant.comparison import estimate_all
from everlight_experiments.illuminant.config import Condition
from everlight_experiments.illuminant.cross_validation import View as ViewName

Input = Literal["T", "T with exposure", "T of sum-normalised", "moments", "T and moments"]

MISFIT = 0.05
"""Misfit of noisy scenes' transforms (`TransformPrior`).

Of 0.015, 0.05 and 0.15 it is the best on validation camera pairs and scenes.
"""
REPORTED_NOISE = 0.01
"""Read noise of the noisy test scenes as a share of white."""
TRAINING_NOISE = (0.002, 0.05)
"""Range of the noisy training scenes' read noise, log-uniform, as a share of white."""
SWEEP_SCENES = 1_200
"""Number of test scenes rendered under each of `VARIANTS`."""
LEAST_COLORS = 3
"""Minimum number of colours of calibration scenes; `estimate` refuses fewer."""
SPLITS: tuple[Split, ...] = ("random", "illuminant")


class Variant(NamedTuple):
    """A condition of test scenes; `dominant` is the number of patches in one colour."""

    read_noise: float = REPORTED_NOISE
    colors: int = PATCHES
    dominant: int = 0

    @property
    def name(self) -> str:
        """Name in words."""
        seen = f"{self.colors} colours" if self.colors > 1 else "1 colour"
        if self.dominant:
            seen = f"{self.dominant} of {PATCHES} patches in one colour"
        return f"{seen}, {100 * self.read_noise:g}% noise"


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        *(Variant(read_noise=level) for level in (REPORTED_NOISE, 0.001, 0.003, 0.03, 0.1)),
        *(Variant(colors=count) for count in (1, 2, 3, 4, 8)),
        Variant(dominant=20),
    )
}
REPORTED = Variant().name

all_moments = jax.jit(jax.vmap(color_moments))


class PairData(NamedTuple):
    """One ordered camera pair's views and inputs.

    Inputs are NaN where a scene has no transform. Noisy scenes have a prior of their transforms and
    distances from it.
    """

    main: View
    second: View
    scenes: Scenes
    inputs: Mapping[Input, Float[Array, "n f"]]
    prior: TransformPrior | None
    distances: Float[Array, "n"] | None

    def targets(self, rows: slice, view: ViewName = "main") -> Float[Array, "k 2"]:
        """Return one camera's true chromaticities."""
        return to_chromaticity(getattr(self, view).illuminants[rows])

    def problem(self, given: Input, view: ViewName = "main") -> Problem:
        """Return training and validation samples; scenes without a transform are left out."""
        parts = (self.samples(given, part, view) for part in (self.scenes.train, self.scenes.valid))
        train, valid = parts
        return Problem(*train, *valid)

    def samples(
        self, given: Input, rows: slice, view: ViewName = "main"
    ) -> tuple[Float[np.ndarray, "k f"], Float[np.ndarray, "k 2"]]:
        """Return inputs and targets; samples without an input are replaced, as sizes must agree."""
        inputs = np.asarray(self.inputs[given][rows])
        usable = np.flatnonzero(np.isfinite(inputs).all(axis=1))
        if not len(usable):
            raise DataError(f"no scene determines the input {given!r}")
        chosen = usable[np.arange(len(inputs)) % len(usable)]
        return inputs[chosen], np.asarray(self.targets(rows, view))[chosen]

    def determined(self, rows: slice) -> Bool[np.ndarray, "k"]:
        """Return which scenes have enough colours to determine more than the prior."""
        colors = np.array([len(set(row)) for row in self.scenes.surfaces[rows].tolist()])
        return np.isfinite(np.asarray(self.distances[rows])) & (colors >= LEAST_COLORS)


def prepare_data(
    library: SpectralLibrary, pairs: Sequence[tuple[str, str]], count: int, seed: int
) -> dict[tuple[Condition, Split], list[PairData]]:
    """Render the scenes for every pair under both conditions and splits."""
    data: dict[tuple[Condition, Split], list[PairData]] = {}
    for split in SPLITS:
        scenes = draw_scenes(library, RadiometricSettings(count, split, seed))
        views = views_of(library, pairs, scenes, seed)
        exact = [pair_exact(views[main], views[second], scenes) for main, second in pairs]
        generator = np.random.default_rng((seed, 2))
        fewer = show_colors(scenes, draw_color_counts(generator, count))
        low, high = TRAINING_NOISE
        noise = low * (high / low) ** generator.random(count)
        views = views_of(library, pairs, fewer, seed, noise)
        data["exact", split] = exact
        data["noisy", split] = [
            pair_noisy(views[main], views[second], fewer, prior_of(whole))
            for (main, second), whole in zip(pairs, exact, strict=True)
        ]
    return data


def render_variants(
    library: SpectralLibrary,
    pairs: Sequence[tuple[str, str]],
    data: Mapping[tuple[Condition, Split], Sequence[PairData]],
    split: Split,
    seed: int,
) -> dict[str, list[PairData]]:
    """Render the first test scenes under every variant for every pair."""
    scenes = data["exact", split][0].scenes
    rows = slice(scenes.test.start, min(scenes.test.start + SWEEP_SCENES, scenes.test.stop))
    count = rows.stop - rows.start
    some = Scenes(
        scenes.illuminant[rows],
        scenes.surfaces[rows],
        scenes.clusters[rows],
        *(slice(0, 0), slice(0, 0), slice(0, count)),
    )
    rendered = {}
    for number, (name, variant) in enumerate(VARIANTS.items(), start=1):
        shown = show_colors(some, np.full(count, variant.colors), variant.dominant)
        noise = np.full(count, variant.read_noise)
        views = views_of(library, pairs, shown, seed + 1_000 * number, noise)
        rendered[name] = [
            pair_noisy(views[main], views[second], shown, trained.prior)
            for (main, second), trained in zip(pairs, data["noisy", split], strict=True)
        ]
    return rendered


def pair_exact(main: View, second: View, scenes: Scenes) -> PairData:
    """Return least-squares transforms, as in the paper, and moments."""
    inputs = {
        "T": _least_squares(main, second, "scale"),
        "T with exposure": _least_squares(main, second, None),
        "T of sum-normalised": _least_squares(main, second, "sum"),
        "moments": all_moments(main.colors),
    }
    inputs["T and moments"] = jnp.concatenate([inputs["T"], inputs["moments"]], axis=1)
    return PairData(main, second, scenes, inputs, None, None)


def pair_noisy(main: View, second: View, scenes: Scenes, prior: TransformPrior) -> PairData:
    """Return the most probable transforms under the prior, and moments."""
    fit = in_pieces(
        lambda rows: _probable(main.colors[rows], second.colors[rows], prior), len(main.colors)
    )
    transforms = jnp.where(fit.valid[:, None, None], fit.transform, jnp.nan).reshape(-1, 9)
    inputs = {
        "T": transforms,
        "T of sum-normalised": _least_squares(main, second, "sum"),
        "moments": all_moments(main.colors),
    }
    inputs["T and moments"] = jnp.concatenate([transforms, inputs["moments"]], axis=1)
    return PairData(main, second, scenes, inputs, prior, fit.distance)


def prior_of(exact: PairData) -> TransformPrior:
    """Return the distribution of the training scenes' exact transforms."""
    train = exact.scenes.train
    return _learn_prior(exact.main.exact[train], exact.second.exact[train], MISFIT)


_learn_prior = jax.jit(learn_transform_prior)


@jax.jit
def _probable(main: Array, second: Array, prior: TransformPrior) -> Any:
    return jax.lax.map(
        lambda one: fit_probable_transform(*one, prior), (main, second), batch_size=BATCH
    )


def _least_squares(main: View, second: View, normalize: str | None) -> Float[Array, "n 9"]:
    fit = _fit_all(main.colors, second.colors, normalize)
    return jnp.where(fit.valid[:, None, None], fit.transform, jnp.nan).reshape(-1, 9)


@partial(jax.jit, static_argnums=2)
def _fit_all(main: Array, second: Array, normalize: str | None) -> Any:
    return jax.vmap(partial(fit_color_transform, normalize=normalize))(main, second)


def _estimates(
    estimator: Callable, images: Float[Array, "n h w 3"], *fitted: Any
) -> Float[Array, "n 3"]:
    def of_rows(rows: slice) -> Float[Array, "k 3"]:
        piece = images[rows]
        return estimate_all(estimator, piece, jnp.ones(piece.shape[:3]), *fitted)

    return in_pieces(of_rows, len(images))


REGRESSIONS: dict[str, Input] = {
    "Linear regression": "T",
    "Linear regression on moments": "moments",
    "Linear regression on T and moments": "T and moments",
}


def compare_methods(
    pair: PairData, test: PairData, rows: slice
) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Return all methods' estimates of some test scenes, networks excepted.

    Args:
      pair: pair whose training scenes train the methods.
      test: the same pair, perhaps under other conditions.
      rows: test scenes.
    """
    train = pair.scenes.train
    images = test.main.images(rows)
    estimates = {name: _estimates(method, images) for name, method in ESTIMATORS.items()}
    # The corners of the gamut's hull are found among 26,000 colours of a tenth of the scenes.
    sample = slice(train.start, train.stop, 10)
    examples = pair.main.images(sample)
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        seen = ObservedImage(examples, jnp.ones(examples.shape[:3]))
        gamut = fit_gamut(seen, pair.main.illuminants[sample], order=order)
        estimates[name] = _estimates(_gamut_estimate, images, gamut)
    for name, given in REGRESSIONS.items():
        inputs, targets = pair.samples(given, train)
        linear = fit_linear_regression(jnp.asarray(inputs), jnp.asarray(targets))
        estimates[name] = from_chromaticity(linear_estimate(linear, test.inputs[given][rows]))
    estimates["Chromagenic"] = _chromagenic(pair, test, rows)
    return {name: np.asarray(value) for name, value in estimates.items()}


def _gamut_estimate(gamut: Gamut, *seen: Array) -> Float[Array, "3"]:
    return gamut_estimate(gamut, ObservedImage(*seen))


def _chromagenic(pair: PairData, test: PairData, rows: slice) -> Float[Array, "n 3"]:
    train = pair.scenes.train
    _, first, labels = np.unique(
        pair.scenes.illuminant[train], return_index=True, return_inverse=True
    )
    candidates = pair.main.illuminants[train][first]

    def at_mean_one(view: View, rows: slice) -> Array:
        colors = view.colors[rows]
        return colors / jnp.mean(colors, axis=(1, 2), keepdims=True)

    model = _fit_transforms(
        at_mean_one(pair.main, train),
        at_mean_one(pair.second, train),
        jnp.asarray(labels),
        candidates,
    )
    return _choose_candidates(model, at_mean_one(test.main, rows), at_mean_one(test.second, rows))


_fit_transforms = jax.jit(fit_chromagenic)
_choose_candidates = jax.jit(jax.vmap(chromagenic_estimate, (None, 0, 0)))
