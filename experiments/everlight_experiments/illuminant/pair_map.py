"""Errors of all pairs of cameras, and the gain of the second camera."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.color.radiometric import RadiometricSettings, draw_scenes
from everlight_data.color.rendered_pairs import pair_inputs, prior_of
from everlight_data.color.rendered_views import views_of
from everlight_data.color.spectra import SpectralLibrary, sensitivity_distances
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.comparison import angular_errors
from everlight_experiments.illuminant.rendered_methods import regress
from everlight_experiments.report.writer import Figure, Section
from everlight_experiments.run_folder.progress import progress


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
    pairs = list(itertools.permutations(range(count), 2))
    everyone = [(name, name) for name in names]
    exact = views_of(library, everyone, drawn, seed)
    noisy = views_of(library, everyone, drawn, seed, np.full(scenes, read_noise))
    errors, invalid = np.full((3, 2, count, count), np.nan), 0
    bar = progress("pair map", len(pairs), unit="pair")
    for row, column in pairs:
        main, second = names[row], names[column]
        plain = pair_inputs(exact[main], exact[second], drawn)
        both = plain, pair_inputs(noisy[main], noisy[second], drawn, prior_of(plain))
        for index, pair in enumerate(both):
            truth = pair.main.illuminants[drawn.test]
            # Scenes without a transform are neither trained on nor scored.
            for kind, estimates in enumerate(regress(pair, pair).values()):
                wrong = angular_errors(estimates, truth)
                errors[kind, index, row, column] = np.nanmean(wrong)
            invalid += int(np.isnan(pair.inputs["T"][:, 0]).sum())
        bar.update()
    bar.close()
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
