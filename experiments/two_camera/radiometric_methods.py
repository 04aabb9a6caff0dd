"""The radiometric experiment's data of one camera pair, and every method but the nets on it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from data_pipelines.errors import DataError
from data_pipelines.radiometric import CameraView, Scenes, photograph
from data_pipelines.spectra import SpectralLibrary
from everlight.color.chromagenic import (
    chromagenic_estimate,
    fit_chromagenic,
    fit_linear_regression,
    linear_estimate,
)
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.estimators import ESTIMATORS
from everlight.color.gamut import fit_gamut, gamut_estimate
from everlight.color.radiometry import patch_thumbnail
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_training import Problem
from experiments.two_camera.tables import estimate_all

fit_transforms = jax.jit(jax.vmap(fit_color_transform))
thumbnails = jax.jit(jax.vmap(patch_thumbnail))


class PairData(NamedTuple):
    """One ordered camera pair under one split."""

    transforms: Float[Array, "n 3 3"]
    main: CameraView
    second: CameraView
    scenes: Scenes

    def features(self, rows: slice) -> Float[Array, "k 9"]:
        """Transforms flattened row by row."""
        return self.transforms[rows].reshape(-1, 9)

    def targets(self, rows: slice) -> Float[Array, "k 2"]:
        """The main camera's true chromaticities."""
        return to_chromaticity(self.main.illuminants[rows])

    def problem(self) -> Problem:
        """Training and validation part for the nets."""
        train, valid = self.scenes.train, self.scenes.valid
        return Problem(
            self.features(train), self.targets(train), self.features(valid), self.targets(valid)
        )


def prepare_pairs(
    library: SpectralLibrary, pairs: Sequence[tuple[str, str]], scenes: Scenes
) -> list[PairData]:
    """The same scenes seen by every camera, with the transform of every pair.

    Raises:
      DataError: a light under which the main camera's colours do not span 3-space.
    """
    views = {
        camera: jax.tree.map(jnp.asarray, photograph(library, camera, scenes))
        for camera in {camera for pair in pairs for camera in pair}
    }
    prepared = []
    for main, second in pairs:
        fit = fit_transforms(views[main].colors, views[second].colors)
        if not np.all(fit.valid):
            lights = sorted({int(i) for i in scenes.illuminant[~np.asarray(fit.valid)]})
            raise DataError(
                f"{main}: no transform exists under the library's lights "
                f"{[library.illuminant_names[i] for i in lights]}; leave them out of it"
            )
        prepared.append(PairData(fit.transform, views[main], views[second], scenes))
    return prepared


def compare_methods(pair: PairData) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Lights of the test scenes; methods that learn do so on the training scenes."""
    train, test = pair.scenes.train, pair.scenes.test
    images = thumbnails(pair.main.colors[test])
    whole = jnp.ones(images.shape[:3])
    estimates = {name: estimate_all(method, images, whole) for name, method in ESTIMATORS.items()}
    # A gamut is a hull; a tenth of the scenes holds 26,000 colours, enough to find its corners.
    sample = slice(train.start, train.stop, 10)
    examples = thumbnails(pair.main.colors[sample])
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        gamut = fit_gamut(
            examples, jnp.ones(examples.shape[:3]), pair.main.illuminants[sample], order
        )
        estimates[name] = estimate_all(gamut_estimate, images, whole, gamut)
    linear = fit_linear_regression(pair.transforms[train], pair.targets(train))
    chromaticity = jax.vmap(linear_estimate, (None, 0))(linear, pair.transforms[test])
    estimates["Linear regression"] = from_chromaticity(chromaticity)
    estimates["Chromagenic"] = _chromagenic(pair)
    return {name: np.asarray(value) for name, value in estimates.items()}


def _chromagenic(pair: PairData) -> Float[Array, "n 3"]:
    train, test = pair.scenes.train, pair.scenes.test
    _, first, labels = np.unique(
        pair.scenes.illuminant[train], return_index=True, return_inverse=True
    )
    candidates = pair.main.illuminants[train][first]
    model = fit_chromagenic(
        pair.main.colors[train], pair.second.colors[train], jnp.asarray(labels), candidates
    )
    estimate = jax.jit(jax.vmap(lambda main, second: chromagenic_estimate(model, main, second)))
    return estimate(pair.main.colors[test], pair.second.colors[test])
