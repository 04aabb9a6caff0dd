"""The radiometric experiment's data of one camera pair, and every method but the nets on it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.color.chromagenic import (
    chromagenic_estimate,
    fit_chromagenic,
    fit_linear_regression,
    linear_estimate,
)
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.estimators import ESTIMATORS
from everlight.color.gamut import fit_gamut, gamut_estimate
from everlight.color.moments import color_moments
from everlight.color.radiometry import Sensor, patch_means, patch_thumbnail, take_photograph
from everlight.color.transform_prior import (
    TransformPrior,
    fit_probable_transform,
    learn_transform_prior,
)
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_training import Problem
from everlight_data.color.radiometric import PATCHES, Scenes, photograph
from everlight_data.color.spectra import SpectralLibrary
from everlight_data.errors import DataError
from everlight_experiments.illuminant.tables import estimate_all

# What a net or a regression is given.
Input = Literal["T", "T with exposure", "T of sum-normalised", "moments", "T and moments"]
WIDTHS: dict[Input, int] = {
    "T": 9,
    "T with exposure": 9,
    "T of sum-normalised": 9,
    "moments": 9,
    "T and moments": 18,
}

Light = Literal["main", "second"]
"""Whose light is told."""
LIGHTS: tuple[Light, ...] = ("main", "second")

MISFIT = 0.05
"""Of noisy scenes' transforms (`TransformPrior`); of .015, .05 and .15 the best on camera pairs
and scenes that are not reported (BUILD_NOTES.md)."""

REPORTED_NOISE = 0.01
"""Read noise of the noisy test scenes, as a share of white."""


class Variant(NamedTuple):
    """Test scenes photographed in one way."""

    read_noise: float = REPORTED_NOISE
    colors: int = PATCHES
    dominant: int = 0
    """How many of the patches are in one color; 0 is as it comes."""

    @property
    def name(self) -> str:
        """In words."""
        seen = f"{self.colors} colours" if self.colors > 1 else "1 colour"
        if self.dominant:
            seen = f"{self.dominant} of {PATCHES} patches in one colour"
        return f"{seen}, {100 * self.read_noise:g}% noise"


_NOISES = (REPORTED_NOISE, 0.001, 0.003, 0.03, 0.1)
VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        *(Variant(read_noise=level) for level in _NOISES),
        *(Variant(colors=count) for count in (1, 2, 3, 4, 8)),
        Variant(dominant=20),
    )
}
REPORTED = Variant().name

thumbnails = jax.jit(jax.vmap(patch_thumbnail))
all_moments = jax.jit(jax.vmap(color_moments))


PIECE = 1_200
"""Scenes that are made or looked at at once, so that programs are compiled for one number."""
BATCH = 60
"""Of scenes in a step; one that does not divide their number is compiled again for the rest."""


def _in_pieces(of_rows: Callable[[slice], PyTree], count: int) -> PyTree:
    """What a function gives of `PIECE` scenes at a time, put together."""
    pieces = [of_rows(slice(start, start + PIECE)) for start in range(0, count, PIECE)]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *pieces)


def _photographs(
    keys: PRNGKeyArray,
    colors: Float[Array, "n 24 3"],
    read_noise: Float[Array, "n"],
    means: bool,
) -> Float[Array, "n ..."]:
    return _in_pieces(
        lambda rows: _take_piece(keys[rows], colors[rows], read_noise[rows], means), len(colors)
    )


@partial(jax.jit, static_argnums=3)
def _take_piece(
    keys: PRNGKeyArray,
    colors: Float[Array, "n 24 3"],
    read_noise: Float[Array, "n"],
    means: bool,
) -> Float[Array, "n ..."]:
    def one(scene: tuple) -> Array:
        key, exact, noise = scene
        image = take_photograph(key, exact, Sensor(read_noise=noise))
        return patch_means(image) if means else image

    return jax.lax.map(one, (keys, colors, read_noise), batch_size=BATCH)


class View(NamedTuple):
    """One camera's view of all scenes; without `read_noise` exactly as it falls on the sensor."""

    exact: Float[Array, "n 24 3"]
    colors: Float[Array, "n 24 3"]
    illuminants: Float[Array, "n 3"]
    keys: PRNGKeyArray
    read_noise: Float[Array, "n"] | None

    def images(self, rows: slice) -> Float[Array, "k h w 3"]:
        """Thumbnails of some scenes, whose patches' means are `colors`."""
        if self.read_noise is None:
            return thumbnails(self.exact[rows])
        return _photographs(self.keys[rows], self.exact[rows], self.read_noise[rows], False)


def view_scenes(
    library: SpectralLibrary,
    camera: str,
    scenes: Scenes,
    seed: int,
    read_noise: Float[np.ndarray, "n"] | None = None,
) -> View:
    """What a camera measures of every scene.

    Args:
      library: holds the camera.
      camera: its name.
      scenes: from `draw_scenes`.
      seed: of exposures and noise, which differ from camera to camera.
      read_noise: of each scene, as a share of white; None for exact responses at one exposure.
    """
    exact = photograph(library, camera, scenes)
    key = jax.random.fold_in(jax.random.key(seed), library.camera_names.index(camera))
    keys = jax.random.split(key, len(exact.colors))
    colors, illuminants = jnp.asarray(exact.colors), jnp.asarray(exact.illuminants)
    if read_noise is None:
        return View(colors, colors, illuminants, keys, None)
    noise = jnp.asarray(read_noise, jnp.float32)
    return View(colors, _photographs(keys, colors, noise, True), illuminants, keys, noise)


class PairData(NamedTuple):
    """One ordered camera pair under one split.

    `inputs` are NaN where a scene has no transform; `distances` are those of the probable
    transforms from their prior, which there is for noisy scenes only.
    """

    main: View
    second: View
    scenes: Scenes
    inputs: Mapping[Input, Float[Array, "n f"]]
    prior: TransformPrior | None
    distances: Float[Array, "n"] | None

    def targets(self, rows: slice, light: Light = "main") -> Float[Array, "k 2"]:
        """One camera's true chromaticities."""
        return to_chromaticity(getattr(self, light).illuminants[rows])

    def problem(self, given: Input, light: Light = "main") -> Problem:
        """Training and validation part for the nets; scenes without a transform are left out."""
        train, valid = (
            _whole(self, given, part, light) for part in (self.scenes.train, self.scenes.valid)
        )
        return Problem(*train, *valid)


def _whole(
    pair: PairData, given: Input, rows: slice, light: Light = "main"
) -> tuple[Float[np.ndarray, "k f"], Float[np.ndarray, "k 2"]]:
    """Inputs and targets; a row without an input repeats one that has one, as sizes must agree."""
    inputs, targets = np.asarray(pair.inputs[given][rows]), np.asarray(pair.targets(rows, light))
    usable = np.flatnonzero(np.isfinite(inputs).all(axis=1))
    if not len(usable):
        raise DataError(f"no scene determines the input {given!r}")
    chosen = usable[np.arange(len(inputs)) % len(usable)]
    return inputs[chosen], targets[chosen]


def pair_exact(main: View, second: View, scenes: Scenes) -> PairData:
    """Transforms by least squares, as the paper has them, and moments."""
    inputs = {
        "T": _least_squares(main, second, "scale"),
        "T with exposure": _least_squares(main, second, None),
        "T of sum-normalised": _least_squares(main, second, "sum"),
        "moments": all_moments(main.colors),
    }
    inputs["T and moments"] = jnp.concatenate([inputs["T"], inputs["moments"]], axis=1)
    return PairData(main, second, scenes, inputs, None, None)


def pair_noisy(main: View, second: View, scenes: Scenes, prior: TransformPrior) -> PairData:
    """The most probable transforms given the prior, and moments."""
    fit = _in_pieces(
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
    """The distribution of the training scenes' exact transforms."""
    train = exact.scenes.train
    return _learn_prior(exact.main.exact[train], exact.second.exact[train], MISFIT)


_learn_prior = jax.jit(learn_transform_prior)


@jax.jit
def _probable(main: Array, second: Array, prior: TransformPrior):
    return jax.lax.map(
        lambda one: fit_probable_transform(*one, prior), (main, second), batch_size=BATCH
    )


def _least_squares(main: View, second: View, normalize: str | None) -> Float[Array, "n 9"]:
    fit = _fit_all(main.colors, second.colors, normalize)
    return jnp.where(fit.valid[:, None, None], fit.transform, jnp.nan).reshape(-1, 9)


@partial(jax.jit, static_argnums=2)
def _fit_all(main: Array, second: Array, normalize: str | None):
    return jax.vmap(partial(fit_color_transform, normalize=normalize))(main, second)


def _estimates(
    estimator: Callable, images: Float[Array, "n h w 3"], *fitted: Any
) -> Float[Array, "n 3"]:
    def of_rows(rows: slice) -> Float[Array, "k 3"]:
        piece = images[rows]
        return estimate_all(estimator, piece, jnp.ones(piece.shape[:3]), *fitted)

    return _in_pieces(of_rows, len(images))


REGRESSIONS: dict[str, Input] = {
    "Linear regression": "T",
    "Linear regression on moments": "moments",
    "Linear regression on T and moments": "T and moments",
}


def compare_methods(
    pair: PairData, test: PairData, rows: slice
) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Lights of some scenes; methods that learn do so on the training scenes of `pair`.

    Args:
      pair: whose training scenes teach.
      test: the same pair, perhaps photographed again, whose `rows` are estimated.
      rows: test scenes.
    """
    train = pair.scenes.train
    images = test.main.images(rows)
    estimates = {name: _estimates(method, images) for name, method in ESTIMATORS.items()}
    # A gamut is a hull; a tenth of the scenes holds 26,000 colours, enough to find its corners.
    sample = slice(train.start, train.stop, 10)
    examples = pair.main.images(sample)
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        gamut = fit_gamut(
            examples, jnp.ones(examples.shape[:3]), pair.main.illuminants[sample], order
        )
        estimates[name] = _estimates(gamut_estimate, images, gamut)
    for name, given in REGRESSIONS.items():
        inputs, targets = _whole(pair, given, train)
        linear = fit_linear_regression(jnp.asarray(inputs), jnp.asarray(targets))
        estimates[name] = from_chromaticity(linear_estimate(linear, test.inputs[given][rows]))
    estimates["Chromagenic"] = _chromagenic(pair, test, rows)
    return {name: np.asarray(value) for name, value in estimates.items()}


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
    return _choose_lights(model, at_mean_one(test.main, rows), at_mean_one(test.second, rows))


_fit_transforms = jax.jit(fit_chromagenic)
_choose_lights = jax.jit(jax.vmap(chromagenic_estimate, (None, 0, 0)))


def views_of(
    library: SpectralLibrary,
    pairs: Sequence[tuple[str, str]],
    scenes: Scenes,
    seed: int,
    read_noise: Float[np.ndarray, "n"] | None = None,
) -> dict[str, View]:
    """Every camera's view, each rendered once."""
    cameras = sorted({camera for pair in pairs for camera in pair})
    return {camera: view_scenes(library, camera, scenes, seed, read_noise) for camera in cameras}
