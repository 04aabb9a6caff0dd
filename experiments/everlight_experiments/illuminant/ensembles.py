"""Ensembles of networks on rendered scenes for `estimate`, and the coverage of their intervals."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

from everlight.color.feature_distribution import FeatureDistribution
from everlight.models.illuminant_interval import COVERAGE, IntervalCoverage, interval_coverage
from everlight.models.illuminant_training import TrainingSettings
from everlight.models.out_of_distribution import calibrate_distances
from everlight.models.pair_model import (
    VIEWS,
    PairModel,
    View,
    ViewModel,
    calibrated_view,
    members_estimates,
)
from everlight.trees import rows_of
from everlight_data.checkpoints import Checkpoints
from everlight_data.color.rendered_pairs import RenderedPair
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
        kept = pair.determined(valid)
        known = FeatureDistribution(pair.prior.mean, pair.prior.root)
        distances = calibrate_distances(known, pair.distances[valid][kept])
        views = {}
        for place, view in enumerate(VIEWS):
            members = rows_of(trained, numbers[index, place])
            predicted = _predict(members, pair.inputs["T"][valid][kept])
            truth = pair.targets(valid, view)[kept]
            views[view] = calibrated_view("T", DEPTH, members, predicted, truth, distances)
        trained_on = f"noisy radiometric set of {note}"
        models.append(
            PairModel(
                **views, prior=pair.prior, fit="probable", cameras=cameras, trained_on=trained_on
            )
        )
    return models


_predict = jax.jit(partial(members_estimates, DEPTH))


Coverages = dict[str, dict[View, list[IntervalCoverage]]]
"""Coverage of each camera pair's intervals by kind of test scenes and by camera."""


def measure_coverage(
    models: Sequence[PairModel], tests: Mapping[str, Sequence[RenderedPair]]
) -> Coverages:
    """Return the intervals' coverage, without pairs whose scenes determine no transform."""
    found: Coverages = {}
    for kind, pairs in tests.items():
        for model, test in zip(models, pairs, strict=True):
            rows = test.scenes.test
            kept = test.determined(rows)
            for view in VIEWS if kept.any() else ():
                own: ViewModel = getattr(model, view)
                estimates = _predict(own.members, test.inputs["T"][rows][kept])
                truth = test.targets(rows, view)[kept]
                measured = interval_coverage(own.interval, estimates, truth, own.uninformative)
                found.setdefault(kind, {}).setdefault(view, []).append(measured)
    return found


def coverage_table(found: Coverages) -> Table:
    """Return the mean coverage over camera pairs, and the minimum, by kind of test scenes."""
    rows = []
    for kind, by_view in found.items():
        row = [kind]
        for view in VIEWS:
            shares, degrees, wide = np.transpose(by_view[view])
            row += [f"{shares.mean():.1%}", f"{shares.min():.1%}", f"{degrees.mean():.1f}"]
            row.append(f"{wide.mean():.1%}")
        rows.append(row)
    columns = [Column("Test scenes")]
    for view in VIEWS:
        names = ("Coverage", "Minimum", "Degrees", "Uninformative")
        columns += [Column(name, f"{view} illuminant") for name in names]
    caption = (
        f"Coverage of the intervals of `estimate`, nominally {COVERAGE:.0%}: ensembles of "
        f"{ENSEMBLE} networks of 470 parameters, noisy training scenes with seen illuminants, "
        "calibrated on validation scenes. Mean and minimum over camera pairs, mean radius, and "
        "share of uninformative intervals, which are no smaller than the interval of the "
        "validation illuminants. The nominal coverage holds for the first row's scenes, which are "
        "like those of the calibration."
    )
    return Table(caption, columns, rows)
