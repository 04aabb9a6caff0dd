"""What tells the lights of a phone of one's own, from raw pairs with a colour chart in them.

    everlight two_camera calibrate FOLDER

FOLDER holds `main/` and `second/`, one raw file of each for every pair, of the same name but for
the ending. Both must show a classic chart of 24 patches, evenly lit by the light of the scene. It
is found by itself; where it is not, FOLDER/charts.json places it: by file, such as
"main/IMG_1.dng", the [x, y] of the centres of dark skin, bluish green, black and white.

Linear regressions and nets, on the transform between the cameras, on colour moments of the light's
own image, and on both, are trained on all scenes but some, in turn, and asked about those; each
training pair is re-illuminated as every other by the charts (two-camera paper, section 3.4). Of
each camera's light the best is kept for `estimate`. What the report says of it is of scenes that
neither trained nor chose it.

Presets:
  demo: no data needed: thirty made-up pairs under known lights are written and calibrated on.
  small: FOLDER, 3,000 steps of every net.
  paper: FOLDER, 20,000 steps.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components

from everlight.checks import Between
from everlight.color.chromaticity import from_chromaticity
from everlight.color.estimators import ESTIMATORS
from everlight.color.feature_distribution import (
    FeatureDistribution,
    feature_distance,
    fit_feature_distribution,
)
from everlight.color.moments import reilluminate_moments
from everlight.color.reillumination import augment_transforms, chart_transforms
from everlight.color.transforms import scale_free
from everlight.models.illuminant_training import TrainingSettings
from everlight.models.out_of_distribution import DistanceCalibration, calibrate_distances
from everlight_data.color.chart_scenes import write_chart_pairs
from everlight_data.color.quasi_real import QuasiReal
from everlight_data.errors import DataError
from everlight_data.writing import written_whole
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, RunSettings, in_words
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.calibrate_choice import CANDIDATES, Choice, by_pair, choose
from everlight_experiments.illuminant.calibrate_pairs import (
    LEAST_PAIRS,
    VIEWS,
    Measured,
    align_cameras,
    find_pairs,
    measure_pairs,
    read_charts,
)
from everlight_experiments.illuminant.calibrate_report import (
    NESTED,
    CalibrationResults,
    report_sections,
)
from everlight_experiments.illuminant.estimate import described_view
from everlight_experiments.illuminant.image_methods import look_at_all
from everlight_experiments.illuminant.image_sets import ImageSet
from everlight_experiments.illuminant.intervals import calibrate_all, uninformed
from everlight_experiments.illuminant.model_files import Given, LightModel, LoadedModel, save_model
from everlight_experiments.illuminant.nus import augmentations_of, camera_pairs
from everlight_experiments.illuminant.pair_folds import CHOSEN, Augment, CameraPairs, Samples
from everlight_experiments.illuminant.radiometric_methods import LIGHTS, Light
from everlight_experiments.illuminant.tables import Comparison, angular_errors

MOST_FOLDS = 8
"""Above as many scenes several are left out together; every two folds are a training too."""
SAME_SCENE = 0.5
"""Degrees between the lights of two pairs, in both cameras, below which they are one scene."""
SAMPLES = 4_096
"""Of a training, re-illuminations among them; the same number in every fold."""
DEMO_PAIRS = 30
TRAINING = {
    "demo": TrainingSettings(3_000, 128, validate_every=50),
    "small": TrainingSettings(3_000, 128, validate_every=50),
    "paper": TrainingSettings(20_000, 128, validate_every=50),
}


@dataclass(frozen=True)
class CalibrateRun(RunSettings):
    """Choose and train a model for your phone from raw pairs that show a colour chart."""

    folder: tyro.conf.Positional[Path | None] = None
    """Folder with raw files in main/ and second/, and an optional charts.json of chart corners."""
    preset: Preset = "small"
    """Configuration to run: demo makes pairs under known illuminants, small trains 3,000 steps,
    paper 20,000."""
    homography: Path | None = None
    """JSON file that maps main to second pixels, as for `estimate`; by default fitted to all
    charts."""
    downsample: Annotated[int, Between(1, 100)] = 6
    """Side in pixels of the blocks averaged before a fit; give `estimate` the same."""
    seeds: Count = 3
    """Number of trainings per network, each with its own initialization and validation pairs."""


def run_calibrate(
    settings: CalibrateRun, training: Mapping[Preset, TrainingSettings] = TRAINING
) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "calibrate", settings)
    source, note = _source(settings, folder)
    files = find_pairs(source)
    charts = read_charts(source, files, folder)
    homography, residuals = align_cameras(settings.homography, charts, settings.downsample)
    measured = measure_pairs(files, charts, homography, settings.downsample, folder, note)
    scenes = group_scenes(measured.quasi)
    folds = deal_scenes(scenes, settings.seed)
    quasi = measured.quasi._replace(folds=tuple(folds))
    measured = measured._replace(quasi=quasi)
    cameras = (measured.images["main"].camera, measured.images["second"].camera)
    optimizer = training[settings.preset]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    choices = {}
    for light in LIGHTS:
        pairs = camera_pairs(quasi, measured.moments, cameras, note, light)
        augmentations = {
            name: partial(_evened, augment) for name, augment in augmentations_of(quasi).items()
        }
        own = folder.checkpoints / light
        choices[light] = choose(pairs, augmentations, seeds, optimizer, own)
    lights = {light: light_model(choice, measured) for light, choice in choices.items()}
    model = LoadedModel(**lights, prior=None, fit="scale", cameras=cameras, trained_on=note)
    models = folder.path / "models"
    save_model(models / "calibrated", model)
    with written_whole(models / "homography.json") as unfinished:
        views = {
            view: described_view(*charts[0].shapes[place], charts[0].flips[place])
            for place, view in enumerate(VIEWS)
        }
        unfinished.write_text(json.dumps({"matrix": homography.tolist(), "views": views}))

    results = CalibrationResults(
        [each.name for each in files],
        scenes,
        choices,
        {light: compare(choice, measured.images[light]) for light, choice in choices.items()},
        {light: choice.coverage() for light, choice in choices.items()},
        {light: float(own.uninformed) for light, own in lights.items()},
        np.array([[each.grey_spread(view) for view in (0, 1)] for each in charts]),
        residuals,
        settings.homography is None,
        quasi,
        {view: each.images for view, each in measured.images.items()},
        cameras,
    )
    arrays = {}
    for light, compared in results.compared.items():
        for name, errors in compared.errors().items():
            arrays[f"{light}/{name}"] = errors
            folder.log(light=light, method=name, mean_error=np.nanmean(errors, axis=(1, 2)))
    folder.save_results(
        **arrays,
        **{f"light/{light}": choice.data.lights for light, choice in choices.items()},
        transforms=quasi.transforms,
        homography=homography,
        scenes=scenes,
    )
    summary = [
        ("Paper", CITATION),
        ("Data", note),
        ("Cameras", " + ".join(cameras)),
        ("Scenes", f"{len(files)} pairs in {scenes.max() + 1} scenes"),
        ("Protocol", f"scenes left out in turn, {len(folds)} folds"),
        (
            "Selection rule",
            "held-out selection: step and augmentation on 15% of the training pairs (pairs of a "
            "scene may be divided); method and inputs by nested cross-validation over scenes, so "
            "that errors are on scenes outside the selection",
        ),
        ("Seeds", f"{settings.seeds} per fold, from {settings.seed}; one for the nested trainings"),
        ("Training", in_words(optimizer)),
        (
            "Command to use it, if its accuracy below suffices",
            f"two_camera estimate --checkpoint {models / 'calibrated'} --homography "
            f"{models / 'homography.json'} --downsample {settings.downsample}",
        ),
        ("Duration", folder.duration()),
    ]
    title = f"Two-camera illuminant estimation: calibration of {' + '.join(cameras)}"
    report = write_report(folder.path, title, summary, report_sections(folder.path, results))
    for light, choice in choices.items():
        print(f"{light} illuminant: {choice.kept.name}")
    print(f"model: {models / 'calibrated'}")
    return report


def _source(settings: CalibrateRun, folder: RunFolder) -> tuple[Path, str]:
    if settings.preset == "demo":
        if settings.folder is not None:
            raise DataError("--preset demo makes its own pairs; leave the folder or --preset away")
        source = folder.path / "made-up-pairs"
        write_chart_pairs(source, DEMO_PAIRS, settings.seed)
        return source, f"NOT photographs: {DEMO_PAIRS} pairs rendered from colour-science's spectra"
    if settings.folder is None:
        raise DataError("give the folder of raw pairs, or --preset demo")
    return settings.folder, f"raw pairs in {settings.folder}"


def group_scenes(quasi: QuasiReal) -> Int[np.ndarray, "n"]:
    """A number for each pair, the same for those that a chain of like lights connects.

    Raises:
      DataError: too few scenes.
    """
    alike = np.ones((len(quasi.names),) * 2, bool)
    for own in (quasi.illuminants_main, quasi.illuminants_second):
        lights = jnp.asarray(own)
        alike &= np.asarray(angular_errors(lights[:, None], lights[None])) < SAME_SCENE
    scenes = connected_components(alike)[1]
    if scenes.max() + 1 < LEAST_PAIRS:
        raise DataError(
            f"{len(scenes)} pairs show {scenes.max() + 1} lights that differ by {SAME_SCENE} "
            f"degrees; {LEAST_PAIRS} are the least. Add pairs under other lights."
        )
    return scenes


def deal_scenes(scenes: Int[np.ndarray, "n"], seed: int) -> list[Int[np.ndarray, "k"]]:
    """Folds of whole scenes; a shorter one names rows twice, to be as long as the others."""
    order = np.random.default_rng(seed).permutation(scenes.max() + 1)
    count = min(len(order), MOST_FOLDS)
    rows = [np.flatnonzero(np.isin(scenes, order[fold::count])) for fold in range(count)]
    longest = max(map(len, rows))
    return [np.resize(each, longest) for each in rows]


def _evened(augment: Augment, data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    """Some of the samples, or each several times: `SAMPLES`, whatever the fold's size."""
    samples = augment(data, train, key)
    drawn = np.random.default_rng(len(train)).permutation(len(samples.targets))
    rows = np.resize(drawn, SAMPLES)
    inputs = {name: np.asarray(values)[rows] for name, values in samples.inputs.items()}
    return Samples(inputs, np.asarray(samples.targets)[rows])


def light_model(choice: Choice, measured: Measured) -> LightModel:
    """What is kept, with its interval and what is familiar to it."""
    given, depth = choice.kept
    truth = jnp.asarray(choice.data.targets(np.arange(len(choice.data.lights))))
    return LightModel(
        given,
        depth,
        choice.members(),
        calibrate_all(jnp.asarray(choice.held_out(choice.kept)), truth),
        familiar_pairs(measured, given, choice.data.asked),
        uninformed(truth).degrees,
    )


def compare(choice: Choice, images: ImageSet) -> Comparison:
    """Every method on every pair, by what the pair's scene had no part in, in one fold."""
    data, estimates = choice.data, choice.outcome.estimates
    lights = {
        name: np.asarray(look_at_all(ESTIMATORS[name], images))[None] for name in ("GW", "SoG")
    }
    lights[NESTED] = choice.nested()[None]
    for candidate in CANDIDATES:
        lights[candidate.name] = _lights(estimates[f"{candidate.name}, {CHOSEN}"], data)
        # Regressions of other validation pairs are hardly others: no ensemble of them.
        if candidate.depth is not None:
            ensemble = estimates[f"{candidate.name}, {CHOSEN}, ensemble"]
            lights[f"{candidate.name}, ensemble"] = _lights(ensemble, data)
    return Comparison({name: told[:, None] for name, told in lights.items()}, data.lights[None])


def _lights(estimates: Float[np.ndarray, "runs folds k 2"], data: CameraPairs) -> np.ndarray:
    return np.asarray(from_chromaticity(jnp.asarray(by_pair(estimates, data))))


def familiar_pairs(measured: Measured, given: Given, light: Light) -> DistanceCalibration:
    """All pairs' inputs and their re-illuminations, and each fold's distances from the rest."""
    inputs = relit_inputs(measured, light)
    features = jnp.concatenate([inputs[name] for name in given.split(" and ")], axis=2)

    def distribution(rows: Int[np.ndarray, "k"]) -> FeatureDistribution:
        own = features[rows][:, rows].reshape(len(rows) ** 2, -1)
        return fit_feature_distribution(own, jnp.ones(len(own), bool))

    everything, distances = np.arange(len(features)), []
    for fold in map(np.unique, measured.quasi.folds):
        known = distribution(np.setdiff1d(everything, fold))
        held = jnp.stack([features[row, row] for row in fold])
        distances.append(jax.vmap(feature_distance, (None, 0))(known, held))
    return calibrate_distances(distribution(everything), jnp.concatenate(distances))


def relit_inputs(measured: Measured, light: Light) -> dict[str, Float[jax.Array, "n n 9"]]:
    """Transforms, and moments of the light's own image, of every pair under every pair's light."""
    quasi = measured.quasi
    weights = jnp.asarray(quasi.usable, jnp.float32)
    relights = {
        "main": chart_transforms(jnp.asarray(quasi.charts_main), weights),
        "second": chart_transforms(jnp.asarray(quasi.charts_second), weights),
    }
    transforms = augment_transforms(jnp.asarray(quasi.transforms), *relights.values())
    relight_all = jax.vmap(jax.vmap(reilluminate_moments, (None, 0)))
    return {
        "T": scale_free(transforms).reshape(*transforms.shape[:2], 9),
        "moments": relight_all(jnp.asarray(measured.moments[light]), relights[light]),
    }
