"""An illuminant estimator for your phone, from raw pairs that show a colour chart.

    everlight illuminant calibrate FOLDER

FOLDER holds `main/` and `second/` with one raw file per pair in each, of the same name but for the
ending. Both must show a classic chart of 24 patches under the illuminant of the scene. It is found
automatically; otherwise FOLDER/charts.json places it: by file, such as "main/IMG_1.dng", the [x, y]
of the centres of dark skin, bluish green, black and white.

Linear regressions and networks, on the transform between the cameras, on colour moments of the
camera's own image, and on both, are cross-validated over scenes. Each training pair is
re-illuminated as every other by the charts (two-camera paper, section 3.4). The best for each
camera is kept for `estimate`; the report's errors are of scenes outside training and selection.

Presets:
  demo: thirty synthetic pairs under known illuminants are written and calibrated on.
  small: FOLDER, 3,000 steps of every network.
  paper: FOLDER, 20,000 steps.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

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
from everlight_data.color.chart import reference_colors
from everlight_data.color.chart_pairs import (
    LEAST_PAIRS,
    PairCharts,
    PairFiles,
    align_cameras,
    check_one_kind,
    find_pairs,
    given_charts,
    measure_pair,
    read_chart_pair,
)
from everlight_data.color.chart_scenes import write_chart_pairs
from everlight_data.color.image_sets import ImageSet
from everlight_data.color.quasi_real import QuasiReal
from everlight_data.color.view_pairs import described_view
from everlight_data.errors import DataError
from everlight_data.writing import written_whole
from everlight_experiments.common.progress import progress
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, RunSettings, in_words
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.calibrate_report import Calibration, calibration_sections
from everlight_experiments.illuminant.comparison import (
    Comparison,
    Units,
    angular_errors,
    record_errors,
)
from everlight_experiments.illuminant.config import CALIBRATE
from everlight_experiments.illuminant.cross_validation import (
    CHOSEN,
    VIEWS,
    Augment,
    CameraPairs,
    Samples,
    View,
    calibrate_all,
    uninformative,
)
from everlight_experiments.illuminant.methods import features_of
from everlight_experiments.illuminant.model_files import Given, PairModel, ViewModel, save_model
from everlight_experiments.illuminant.pairs import chart_augmentations, quasi_real_pairs
from everlight_experiments.illuminant.selection import CANDIDATES, NESTED, Choice, by_pair, choose

MOST_FOLDS = 8
"""Maximum number of folds; each two folds are another training."""
SAME_SCENE = 0.5
"""Maximum angle in degrees between the illuminants of two pairs of one scene, in both cameras."""
SAMPLES = 4_096
"""Samples of a training with its re-illuminations, equal in every fold."""
DEMO_PAIRS = 30


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


class Measured(NamedTuple):
    """Measurements of all pairs.

    Attributes:
      quasi: transforms, illuminants and charts.
      images: each camera's small images, with saturated pixels and the chart masked.
      moments: nine colour moments of each camera's images, `[n, 9]`.
    """

    quasi: QuasiReal
    images: Mapping[View, ImageSet]
    moments: Mapping[View, Float[np.ndarray, "n 9"]]


def run_calibrate(
    settings: CalibrateRun, training: Mapping[Preset, TrainingSettings] = CALIBRATE
) -> Path:
    """Calibrate, save the model, and return the report's path."""
    folder = RunFolder("illuminant", "calibrate", settings)
    source, note = _source(settings, folder)
    files = find_pairs(source)
    charts = read_charts(source, files, folder)
    homography, residuals = align_cameras(settings.homography, charts)
    if np.median(residuals) > settings.downsample:
        print(
            f"WARNING: the patches lie {np.median(residuals):.1f} pixels from where the homography "
            f"puts them, more than a block of {settings.downsample}; take pictures from farther "
            "away, or give a greater --downsample"
        )
    measured = measure_pairs(files, charts, homography, settings.downsample, folder, note)
    scenes = group_scenes(measured.quasi)
    folds = draw_scene_folds(scenes, settings.seed)
    quasi = measured.quasi._replace(folds=tuple(folds))
    measured = measured._replace(quasi=quasi)
    cameras = (measured.images["main"].camera, measured.images["second"].camera)
    optimizer = training[settings.preset]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    choices = {}
    for view in VIEWS:
        pairs = quasi_real_pairs(quasi, measured.moments, cameras, note, view)
        augmentations = {
            name: partial(_resampled, augment)
            for name, augment in chart_augmentations(quasi).items()
        }
        choices[view] = choose(pairs, augmentations, seeds, optimizer, folder.checkpoints / view)
    views = {view: view_model(choice, measured) for view, choice in choices.items()}
    models = folder.path / "models"
    model = PairModel(**views, prior=None, fit="scale", cameras=cameras, trained_on=note)
    save_model(models / "calibrated", model)
    with written_whole(models / "homography.json") as unfinished:
        described = {
            view: described_view(*charts[0].shapes[place], charts[0].flips[place])
            for place, view in enumerate(VIEWS)
        }
        unfinished.write_text(json.dumps({"matrix": homography.tolist(), "views": described}))
    comparisons = {
        view: compare(choice, measured.images[view], scenes) for view, choice in choices.items()
    }
    folder.save_results(
        **record_errors(folder, comparisons),
        **{f"illuminant/{view}": choice.data.illuminants for view, choice in choices.items()},
        transforms=quasi.transforms,
        homography=homography,
        scenes=scenes,
    )
    results = Calibration(
        [each.name for each in files],
        scenes,
        choices,
        comparisons,
        {view: float(own.uninformative) for view, own in views.items()},
        np.array([[each.grey_spread(place) for place in (0, 1)] for each in charts]),
        residuals,
        settings.homography is None,
        quasi,
        cameras,
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
            f"illuminant estimate --checkpoint {models / 'calibrated'} --homography "
            f"{models / 'homography.json'} --downsample {settings.downsample}",
        ),
        ("Duration", folder.duration()),
    ]
    title = f"Two-camera illuminant estimation: calibration of {' + '.join(cameras)}"
    first, sections = calibration_sections(folder.path, results, note)
    report = write_report(folder.path, title, summary, sections, first)
    for view, choice in choices.items():
        print(f"{view} illuminant: {choice.kept.name}")
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


def read_charts(folder: Path, files: Sequence[PairFiles], run: RunFolder) -> list[PairCharts]:
    """Read every pair's charts, each pair once in a run's life.

    Raises:
      DataError: charts are not found or not usable; the message names all files.
    """
    given, reference = given_charts(folder), reference_colors()

    def read(index: int) -> dict[str, np.ndarray]:
        return read_chart_pair(folder, files[index], given, reference)._asdict()

    facts = []
    for pair in files:
        own = [given.get(f"{view}/{getattr(pair, view).name}") for view in VIEWS]
        corners = [None if each is None else each.tolist() for each in own]
        facts.append({"corners": corners, "measured": list(PairCharts._fields)})
    charts = [PairCharts(**each) for each in _once("charts", files, facts, read, run)]
    check_one_kind(folder, files, charts)
    return charts


def _once(
    kind: str,
    files: Sequence[PairFiles],
    facts: Sequence[dict],
    measure: Callable[[int], dict[str, np.ndarray]],
    run: RunFolder,
) -> list[dict[str, np.ndarray]]:
    """Measure every pair and keep the result in the run's folder.

    Raises:
      DataError: the errors of all pairs in one.
    """
    found, failures = [], []
    with progress(kind, len(files), unit="pair") as bar:
        for index, pair in enumerate(files):
            name, known = f"{kind}-{pair.name}", {**pair.checksums} | facts[index]
            arrays = run.read_unit(name, known)
            if arrays is None:
                try:
                    arrays = measure(index)
                except DataError as error:
                    failures.append(str(error))
                else:
                    run.save_unit(name, known, **arrays)
            if arrays is not None:
                found.append(arrays)
            bar.update()
    if failures:
        raise DataError(f"{len(failures)} of {len(files)} pairs: {' '.join(failures)}")
    return found


def measure_pairs(
    files: Sequence[PairFiles],
    charts: Sequence[PairCharts],
    homography: Float[np.ndarray, "3 3"],
    downsample: int,
    run: RunFolder,
    note: str,
) -> Measured:
    """Measure transforms, illuminants, moments and small images with their charts masked.

    Raises:
      DataError: pairs have no transform; the message names all of them.
    """

    def measure(index: int) -> dict[str, np.ndarray]:
        return measure_pair(files[index], charts[index], homography, downsample)

    facts = [
        {
            "homography": homography.tolist(),
            "chart": each.charts[0].tolist(),
            "downsample": downsample,
        }
        for each in charts
    ]
    measured = _once("transforms", files, facts, measure, run)
    every = {name: np.stack([each[name] for each in measured]) for name in measured[0]}
    truth = {
        view: np.stack([each.illuminant(place) for each in charts]).astype(np.float32)
        for place, view in enumerate(VIEWS)
    }
    patches = [np.stack([each.colors[place] for each in charts]) for place in (0, 1)]
    quasi = QuasiReal(
        tuple((pair.name, pair.name) for pair in files),
        every["transform"],
        truth["main"],
        truth["second"],
        *(colors.astype(np.float32) for colors in patches),
        np.stack([each.usable.all(axis=0) for each in charts]),
        (),
    )
    images = {
        view: ImageSet(
            every[f"image_{view}"], every[f"mask_{view}"], truth[view], (), note, str(camera)
        )
        for view, camera in zip(VIEWS, charts[0].cameras, strict=True)
    }
    return Measured(quasi, images, {view: every[f"moments_{view}"] for view in VIEWS})


def group_scenes(quasi: QuasiReal) -> Int[np.ndarray, "n"]:
    """Return a scene number for each pair; chains of similar illuminants are one scene.

    Raises:
      DataError: there are too few scenes.
    """
    alike = np.ones((len(quasi.names),) * 2, bool)
    for own in (quasi.illuminants_main, quasi.illuminants_second):
        illuminants = jnp.asarray(own)
        alike &= np.asarray(angular_errors(illuminants[:, None], illuminants[None])) < SAME_SCENE
    scenes = connected_components(alike)[1]
    if scenes.max() + 1 < LEAST_PAIRS:
        raise DataError(
            f"{len(scenes)} pairs show {scenes.max() + 1} illuminants that differ by {SAME_SCENE} "
            f"degrees; {LEAST_PAIRS} are the least. Add pairs under other illuminants."
        )
    return scenes


def draw_scene_folds(scenes: Int[np.ndarray, "n"], seed: int) -> list[Int[np.ndarray, "k"]]:
    """Draw folds of whole scenes; shorter folds repeat rows, so that all have one length."""
    order = np.random.default_rng(seed).permutation(scenes.max() + 1)
    count = min(len(order), MOST_FOLDS)
    rows = [np.flatnonzero(np.isin(scenes, order[fold::count])) for fold in range(count)]
    longest = max(map(len, rows))
    return [np.resize(each, longest) for each in rows]


def _resampled(augment: Augment, data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    """Draw or repeat `SAMPLES` samples, whatever the fold's size."""
    samples = augment(data, train, key)
    drawn = np.random.default_rng(len(train)).permutation(len(samples.targets))
    rows = np.resize(drawn, SAMPLES)
    inputs = {name: np.asarray(values)[rows] for name, values in samples.inputs.items()}
    return Samples(inputs, np.asarray(samples.targets)[rows])


def view_model(choice: Choice, measured: Measured) -> ViewModel:
    """Return the kept candidate with its interval and the distribution of its inputs."""
    given, depth = choice.kept
    truth = jnp.asarray(choice.data.targets(np.arange(len(choice.data.illuminants))))
    return ViewModel(
        given,
        depth,
        choice.members(),
        calibrate_all(jnp.asarray(choice.held_out(choice.kept)), truth),
        calibrated_distances(measured, given, choice.data.view),
        uninformative(truth).degrees,
    )


def compare(choice: Choice, images: ImageSet, scenes: Int[np.ndarray, "n"]) -> Comparison:
    """Return every method's estimates, by trainings without the pair's scene, in one fold."""
    data, estimates = choice.data, choice.outcome.estimates
    found = {
        name: np.asarray(features_of(ESTIMATORS[name], images))[None] for name in ("GW", "SoG")
    }
    found[NESTED] = choice.nested()[None]
    for candidate in CANDIDATES:
        found[candidate.name] = _illuminants(estimates[f"{candidate.name}, {CHOSEN}"], data)
        # Regressions of other validation pairs hardly differ, so their ensemble is left out.
        if candidate.depth is not None:
            ensemble = estimates[f"{candidate.name}, {CHOSEN}, ensemble"]
            found[f"{candidate.name}, ensemble"] = _illuminants(ensemble, data)
    camera = data.cameras[VIEWS.index(data.view)]
    return Comparison(
        {name: each[:, None] for name, each in found.items()},
        data.illuminants[None],
        f"{data.view} camera",
        f"Illuminant of {camera} ({data.view}) for {len(scenes)} pairs in {scenes.max() + 1} "
        f"scenes, each by models trained without its scene. '{NESTED}': the method and its inputs "
        "were selected without it too; the lowest of the other rows is optimistic.",
        units=Units("scenes", scenes[None]),
    )


def _illuminants(
    estimates: Float[np.ndarray, "runs folds k 2"], data: CameraPairs
) -> Float[np.ndarray, "runs n 3"]:
    return np.asarray(from_chromaticity(jnp.asarray(by_pair(estimates, data))))


def calibrated_distances(measured: Measured, given: Given, view: View) -> DistanceCalibration:
    """Return the distribution of all re-illuminated inputs, and each fold's distances from it."""
    inputs = relit_inputs(measured, view)
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


def relit_inputs(measured: Measured, view: View) -> dict[str, Float[jax.Array, "n n 9"]]:
    """Return transforms, and the view's moments, of every pair under every pair's illuminant."""
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
        "moments": relight_all(jnp.asarray(measured.moments[view]), relights[view]),
    }
