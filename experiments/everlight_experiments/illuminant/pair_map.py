"""Errors of all pairs of cameras, and the gain of the second camera."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.baselines.linear_regression import fit_linear_regression, linear_estimate
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.transform_prior import fit_probable_transform, learn_transform_prior
from everlight.color.transforms import fit_color_transform
from everlight_data.color.radiometric import RadiometricSettings, draw_scenes
from everlight_data.color.rendered_pairs import MISFIT, all_moments
from everlight_data.color.rendered_views import BATCH, View, view_scenes
from everlight_data.color.spectra import SpectralLibrary, sensitivity_distances
from everlight_experiments.common.progress import progress
from everlight_experiments.common.report import Figure, Section
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.comparison import angular_errors


class PairMap(NamedTuple):
    """Mean test errors of linear regression in degrees by main camera (row) and second (column).

    The leading axis is "exact" and "noisy" scenes. `distance` is the residual of the second
    camera's sensitivities from the best 3x3 transform of the main camera's, as a share of their
    norm. `invalid` counts scenes without a transform.
    """

    transform: Float[np.ndarray, "2 c c"]
    moments: Float[np.ndarray, "2 c c"]
    both: Float[np.ndarray, "2 c c"]
    distance: Float[np.ndarray, "c c"]
    invalid: int


def map_of_pairs(library: SpectralLibrary, scenes: int, seed: int, read_noise: float) -> PairMap:
    """Fit linear regression to every ordered pair with seen illuminants."""
    drawn = draw_scenes(library, RadiometricSettings(scenes, "random", seed))
    names, count = library.camera_names, len(library.camera_names)
    exact = [view_scenes(library, name, drawn, seed) for name in names]
    noise = np.full(scenes, read_noise)
    noisy = [view_scenes(library, name, drawn, seed, noise) for name in names]

    @jax.jit
    def mean_errors(main: View, second: View) -> tuple[Array, Array]:
        if main.read_noise is None:
            fit = jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="scale"))
            fitted = fit(main.colors, second.colors)
        else:
            prior = learn_transform_prior(
                main.exact[drawn.train], second.exact[drawn.train], MISFIT
            )
            fitted = jax.lax.map(
                lambda one: fit_probable_transform(*one, prior),
                (main.colors, second.colors),
                batch_size=BATCH,
            )
        transforms, moments = fitted.transform.reshape(-1, 9), all_moments(main.colors)
        errors = []
        for inputs in (transforms, moments, jnp.concatenate([transforms, moments], axis=1)):
            model = fit_linear_regression(
                inputs[drawn.train], to_chromaticity(main.illuminants[drawn.train])
            )
            estimate = from_chromaticity(linear_estimate(model, inputs[drawn.test]))
            wrong = angular_errors(estimate, main.illuminants[drawn.test])
            # An invalid fit is the identity: it is trained on, but not scored.
            errors.append(jnp.nanmean(jnp.where(fitted.valid[drawn.test], wrong, jnp.nan)))
        return jnp.stack(errors), jnp.sum(~fitted.valid)

    errors, invalid = np.full((3, 2, count, count), np.nan), 0
    with progress("pair map", 2 * count * (count - 1), unit="pair") as bar:
        for index, views in enumerate((exact, noisy)):
            for row, column in itertools.permutations(range(count), 2):
                errors[:, index, row, column], lost = mean_errors(views[row], views[column])
                invalid += int(lost)
                bar.update()
    return PairMap(*errors, sensitivity_distances(library), invalid)


def map_section(folder: Path, pair_map: PairMap, cameras: Sequence[str]) -> Section:
    """Return the report's section on the errors of all pairs; figures are written into `folder`."""
    sentences, figures = [], []
    for index, (condition, errors) in enumerate(
        zip(("exact responses", "1% noise"), pair_map.transform, strict=True)
    ):
        gain = pair_map.moments[index] - pair_map.both[index]
        best, worst = (
            " with ".join(cameras[place] for place in np.unravel_index(row, errors.shape))
            for row in (np.nanargmin(errors), np.nanargmax(errors))
        )
        sentences.append(
            f"With {condition}: the median error from T is {np.nanmedian(errors):.2f} degrees, the "
            f"lowest {np.nanmin(errors):.2f} ({best}), the highest {np.nanmax(errors):.2f} "
            f"({worst}). The second camera reduces the error of moments by {np.nanmin(gain):.2f} "
            f"to {np.nanmax(gain):.2f} degrees."
        )
        path = folder / f"pair_map_{'exact' if index == 0 else 'noisy'}.png"
        caption = f"Mean angular error by main and second camera, {condition}."
        figures.append(Figure(caption, plots.plot_pair_map(path, errors, cameras)))
    count = len(cameras) * (len(cameras) - 1)
    intro = (
        f"Linear regression on all {count} ordered pairs, seen illuminants. Scenes without a "
        f"transform: {pair_map.invalid}, not scored."
    )
    return Section("Errors of all camera pairs", (intro, *sentences), figures)
