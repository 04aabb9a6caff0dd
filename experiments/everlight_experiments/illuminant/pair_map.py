"""Errors of all pairs of cameras, and the gain of the second camera."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.color.radiometric import RadiometricSettings, draw_scenes
from everlight_data.color.rendered_pairs import REPORTED_NOISE, pair_inputs, prior_of
from everlight_data.color.rendered_views import views_of
from everlight_data.color.spectra import SpectralLibrary, sensitivity_distances
from everlight_data.progress import progress
from everlight_experiments.illuminant.comparison import angular_errors
from everlight_experiments.illuminant.rendered_methods import regress
from everlight_experiments.report.writer import Column, Section, Table


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


def map_of_pairs(library: SpectralLibrary, scenes: int, seed: int) -> PairMap:
    """Fit linear regression to every ordered pair with seen illuminants."""
    drawn = draw_scenes(library, RadiometricSettings(scenes, "random", seed))
    names, count = library.camera_names, len(library.camera_names)
    pairs = list(itertools.permutations(range(count), 2))
    everyone = [(name, name) for name in names]
    exact = views_of(library, everyone, drawn, seed)
    noisy = views_of(library, everyone, drawn, seed, np.full(scenes, REPORTED_NOISE))
    errors, invalid = np.full((3, 2, count, count), np.nan), 0
    for row, column in progress("pair map", unit="pair", values=pairs):
        main, second = names[row], names[column]
        plain = pair_inputs(exact[main], exact[second], drawn)
        both = plain, pair_inputs(noisy[main], noisy[second], drawn, prior_of(plain))
        for index, pair in enumerate(both):
            truth = pair.main.illuminants[drawn.test]
            # Scenes without a transform are neither trained on nor scored.
            errors[:, index, row, column] = [
                np.nanmean(angular_errors(estimates, truth))
                for estimates in regress(pair, pair).values()
            ]
            invalid += int(np.isnan(pair.inputs["T"][:, 0]).sum())
    return PairMap(*errors, sensitivity_distances(library), invalid)


def map_section(pair_map: PairMap, cameras: Sequence[str]) -> Section:
    """Return the report's section on the errors of all pairs."""
    rows = []
    conditions = ("Exact responses", f"{REPORTED_NOISE:.0%} noise")
    for condition, errors, moments, both in zip(conditions, *pair_map[:3], strict=True):
        row = [condition, f"{np.nanmedian(errors):.2f}"]
        for find in (np.nanargmin, np.nanargmax):
            pair = np.unravel_index(find(errors), errors.shape)
            row.append(f"{errors[pair]:.2f} ({' with '.join(cameras[index] for index in pair)})")
        gain = moments - both
        rows.append([*row, f"{np.nanmin(gain):.2f}", f"{np.nanmax(gain):.2f}"])
    columns = [Column("Scenes")]
    columns += [Column(name, "error from T, degrees") for name in ("Median", "Lowest", "Highest")]
    columns += [Column(name, "moments minus both, degrees") for name in ("Lowest", "Highest")]
    caption = (
        f"Linear regression on all {len(cameras) * (len(cameras) - 1)} ordered pairs, seen "
        "illuminants. Moments minus both inputs is the gain of the second camera. Scenes without a "
        f"transform: {pair_map.invalid}, not scored."
    )
    return Section("Errors of all camera pairs", (), [Table(caption, columns, rows)])
