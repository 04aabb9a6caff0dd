"""Ensembles of networks on rendered scenes for `estimate`, and the coverage of their intervals."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

from everlight.color.feature_distribution import FeatureDistribution
from everlight.illuminant.illuminant_interval import COVERAGE, IntervalCoverage, interval_coverage
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.out_of_distribution import calibrate_distances
from everlight.illuminant.pair_model import (
    VIEWS,
    PairModel,
    View,
    ViewModel,
    calibrated_view,
    members_estimates,
)
from everlight.trees import rows_of
from everlight_data.color.rendered.rendered_pairs import RenderedPair
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.illuminant.networks import train_networks
from everlight_experiments.report.writer import Column, Table

ENSEMBLE = 4
"""Number of saved networks per camera's illuminant, with different initial parameters."""
DEPTH = 5
"""Hidden layers of the saved networks."""


def train_models(
    data: Sequence[RenderedPair],
    pairs: Sequence[tuple[str, str]],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
    note: str,
) -> list[PairModel]:
    """Train an ensemble for each camera of each pair, calibrated on the validation scenes."""
    problems = [pair.problem("T", view) for pair in data for view in VIEWS for _ in range(ENSEMBLE)]
    trained = train_networks(
        problems, (DEPTH,), optimizer, seed, Checkpoints(checkpoints / "ensembles")
    ).models[DEPTH]
    numbers = np.arange(len(problems)).reshape(len(data), len(VIEWS), ENSEMBLE)
    models = []
    for index, (pair, cameras) in enumerate(zip(data, pairs, strict=True)):
        valid = pair.scenes.valid
        determined = pair.determined(valid)
        known = FeatureDistribution(pair.prior.mean, pair.prior.root)
        distances = calibrate_distances(known, pair.distances[valid][determined])
        views = {}
        for place, view in enumerate(VIEWS):
            members = rows_of(trained, numbers[index, place])
            predicted = _predict(members, pair.inputs["T"][valid][determined])
            truth = pair.targets(valid, view)[determined]
            views[view] = calibrated_view("T", DEPTH, members, predicted, truth, distances)
        trained_on = f"noisy radiometric set of {note}"
        model = PairModel(
            views["main"], views["second"], pair.prior, "probable", cameras, trained_on
        )
        models.append(model)
    return models


_predict = jax.jit(partial(members_estimates, DEPTH))


def measure_coverage(
    models: Sequence[PairModel], tests: Mapping[str, Sequence[RenderedPair]]
) -> Table:
    """Return the intervals' coverage by kind of test scenes and by camera.

    Pairs whose scenes determine no transform are left out.
    """
    coverage: dict[str, dict[View, list[IntervalCoverage]]] = {}
    for kind, pairs in tests.items():
        for model, test in zip(models, pairs, strict=True):
            rows = test.scenes.test
            determined = test.determined(rows)
            for view in VIEWS if determined.any() else ():
                part: ViewModel = getattr(model, view)
                estimates = _predict(part.members, test.inputs["T"][rows][determined])
                truth = test.targets(rows, view)[determined]
                measured = interval_coverage(part.interval, estimates, truth, part.uninformative)
                coverage.setdefault(kind, {}).setdefault(view, []).append(measured)
    return coverage_table(
        coverage,
        f"ensembles of {ENSEMBLE} networks of 470 parameters, noisy training scenes with seen "
        "illuminants, calibrated on validation scenes. Mean and minimum over camera pairs. The "
        "nominal coverage holds for the first row's test scenes, which are like those of the "
        "calibration.",
    )


def coverage_table(
    coverage: Mapping[str, Mapping[View, Sequence[IntervalCoverage]]], caption: str
) -> Table:
    """Return the mean and minimum coverage, by name of a row and by camera."""
    rows = []
    for name, by_view in coverage.items():
        row = [name]
        for pairs in by_view.values():
            shares, degrees, wide = np.transpose(pairs)
            finite = np.isfinite(degrees).all()
            row += [f"{shares.mean():.1%}", f"{shares.min():.1%}" if len(pairs) > 1 else "–"]
            row.append(f"{degrees.mean():.1f}" if finite else "too few pairs for an interval")
            row.append(f"{wide.mean():.1%}")
        rows.append(row)
    columns = [Column("Tested")]
    for view in next(iter(coverage.values())):
        names = ("Coverage", "Minimum", "Degrees", "Uninformative")
        columns += [Column(name, f"{view} illuminant") for name in names]
    caption = (
        f"Coverage of the intervals of `estimate`, nominally {COVERAGE:.0%}: {caption} Degrees: "
        "mean radius. Uninformative: share of intervals no smaller than the interval of the "
        "calibration's illuminants only; `estimate` warns of these."
    )
    return Table(caption, columns, rows)
