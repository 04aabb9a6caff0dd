"""The nets of the radiometric run that `estimate` takes, and how often their intervals hold."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from everlight.color.chromaticity import to_chromaticity
from everlight.color.feature_distribution import FeatureDistribution
from everlight.models.illuminant_interval import COVERAGE
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import TrainingSettings, predict_chromaticity
from everlight.models.out_of_distribution import calibrate_distances
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.report import Column, Table
from everlight_experiments.common.trees import rows_of
from everlight_experiments.illuminant.intervals import (
    Coverage,
    calibrate_all,
    inside,
    intervals,
    uninformed,
)
from everlight_experiments.illuminant.model_files import LightModel, LoadedModel, save_model
from everlight_experiments.illuminant.networks import stack_problems, train_nets
from everlight_experiments.illuminant.radiometric_methods import LIGHTS, Light, PairData

ENSEMBLE = 4
"""Nets that tell one camera's light, trained from different initial parameters."""
DEPTH = 5
NAMES = ("Coverage", "Minimum", "Degrees", "Uninformative")
LEAST_COLORS = 3
"""Of the scenes that intervals and distances are calibrated on: `estimate` refuses fewer."""


class PairCoverage(NamedTuple):
    """One camera pair's intervals of one camera's light, on test scenes of one kind."""

    light: Light
    scenes: str
    coverage: Coverage


def train_models(
    data: Sequence[PairData],
    pairs: Sequence[tuple[str, str]],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
    note: str,
) -> list[LoadedModel]:
    """An ensemble for each camera's light of each pair; distances and intervals are calibrated on
    the validation scenes."""
    problems = [
        pair.problem("T", light) for pair in data for light in LIGHTS for _ in range(ENSEMBLE)
    ]
    trained = train_nets(
        stack_problems(problems), (DEPTH,), optimizer, seed, Checkpoints(checkpoints / "ensembles")
    ).models[DEPTH]
    trained = jax.tree.map(
        lambda leaf: leaf.reshape(len(data), len(LIGHTS), ENSEMBLE, *leaf.shape[1:]), trained
    )
    models = []
    for index, (pair, cameras) in enumerate(zip(data, pairs, strict=True)):
        valid = pair.scenes.valid
        kept = determined(pair, valid)
        known = FeatureDistribution(pair.prior.mean, pair.prior.root)
        familiar = calibrate_distances(known, pair.distances[valid][kept])
        lights = {}
        for place, light in enumerate(LIGHTS):
            members = rows_of(trained, (index, place))
            told = _tell(members, pair.inputs["T"][valid][kept])
            truth = pair.targets(valid, light)[kept]
            scale, alone = calibrate_all(told, truth), uninformed(truth).degrees
            lights[light] = LightModel("T", DEPTH, members, scale, familiar, alone)
        models.append(
            LoadedModel(
                **lights,
                prior=pair.prior,
                fit="probable",
                cameras=cameras,
                trained_on=f"noisy radiometric set of {note}",
            )
        )
    return models


_NET = IlluminantNet(DEPTH)
_tell = jax.jit(
    jax.vmap(lambda member, features: predict_chromaticity(_NET, member, features), (0, None))
)


def determined(pair: PairData, rows: slice) -> Bool[np.ndarray, "k"]:
    """Scenes with a transform and enough colours that it is not the prior's alone."""
    colors = np.array([len(set(row)) for row in pair.scenes.surfaces[rows].tolist()])
    return np.isfinite(np.asarray(pair.distances[rows])) & (colors >= LEAST_COLORS)


def measure_coverage(
    models: Sequence[LoadedModel], tests: Mapping[str, Sequence[PairData]]
) -> list[PairCoverage]:
    """How often the intervals hold: on test scenes that are like the validation's, and others."""
    found = []
    for scenes, photographed in tests.items():
        for model, test in zip(models, photographed, strict=True):
            rows = test.scenes.test
            kept = determined(test, rows)
            if not kept.any():
                continue
            for light in LIGHTS:
                own: LightModel = getattr(model, light)
                told = intervals(own.interval, _tell(own.members, test.inputs["T"][rows][kept]))
                truth = to_chromaticity(getattr(test, light).illuminants[rows][kept])
                silent = told.degrees >= own.uninformed
                means = (inside(told, truth), told.degrees, silent)
                coverage = Coverage(*(float(jnp.mean(each)) for each in means))
                found.append(PairCoverage(light, scenes, coverage))
    return found


def coverage_table(found: Sequence[PairCoverage]) -> Table:
    """By test scenes, the mean over camera pairs and the pair that is covered least."""
    rows = []
    for scenes in dict.fromkeys(each.scenes for each in found):
        row = [scenes]
        for light in LIGHTS:
            own = [each for each in found if (each.scenes, each.light) == (scenes, light)]
            shares, degrees, silent = np.transpose([each.coverage for each in own])
            row += [f"{shares.mean():.1%}", f"{shares.min():.1%}", f"{degrees.mean():.1f}"]
            row.append(f"{silent.mean():.1%}")
        rows.append(row)
    columns = [Column("Test scenes")]
    for light in LIGHTS:
        columns += [Column(name, f"{light} illuminant") for name in NAMES]
    caption = (
        f"Coverage of the intervals of `estimate`, nominally {COVERAGE:.0%}: ensembles of "
        f"{ENSEMBLE} networks of 470 parameters, noisy training scenes with seen illuminants, "
        "calibrated on validation scenes. Mean and minimum over camera pairs, mean angle to the "
        "interval's farthest illuminant, and share of uninformative intervals, which are no "
        "smaller than the interval of the validation illuminants. The nominal coverage holds for "
        "the first row's scenes, which are like those of the calibration."
    )
    return Table(caption, columns, rows)


def save_models(folder: Path, models: Sequence[LoadedModel]) -> None:
    """Each pair's nets under models/, for `estimate --checkpoint`."""
    for model in models:
        name = f"{'+'.join(model.cameras)}-470".replace(" ", "_")
        save_model(folder / "models" / name, model)
