"""An illuminant estimator for your phone, from raw pairs that show a colour chart.

    everlight illuminant calibrate FOLDER

FOLDER holds `main/` and `second/` with one raw file per pair in each. The names of a pair differ
only in the extension. Both must show a classic chart of 24 patches under the illuminant of the
scene. It is found automatically; otherwise FOLDER/charts.json places it: by file, such as
"main/IMG_1.dng", the [x, y] of the centres of dark skin, bluish green, black and white.

Linear regressions and networks, on the transform between the cameras, on colour moments of the
camera's own image, and on both, are cross-validated over scenes. Each training pair is
re-illuminated as every other by the charts (two-camera paper, section 3.4). The best for each
camera is kept for `estimate`; the report's errors are of scenes outside training and selection.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float, Int

from everlight.checks import Between
from everlight.color.illuminant_registry import ESTIMATORS
from everlight.illuminant.camera_pairs import charted_camera_pairs
from everlight.illuminant.out_of_distribution import cross_calibrate_distances
from everlight.illuminant.pair_augmentations import (
    chart_augmentations,
    relit_inputs,
    resampled,
)
from everlight.illuminant.pair_inputs import VIEWS
from everlight.illuminant.pair_model import PairModel
from everlight_data.color.charts.chart_pairs import PairCharts, align_cameras
from everlight_data.color.charts.chart_scenes import write_chart_pairs
from everlight_data.color.charts.pair_files import PairFiles, find_pairs
from everlight_data.color.charts.pair_measurements import MeasuredPairs, measure_pairs, read_charts
from everlight_data.color.charts.scene_folds import group_scenes, renumbered_scenes
from everlight_data.color.models.pair_model_files import save_pair_model
from everlight_data.color.pairs.view_pairs import described_view, read_homography, write_homography
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.color.photographs.image_groups import read_group_words
from everlight_data.color.photographs.published_folds import draw_scene_folds
from everlight_data.errors import DataError
from everlight_experiments.illuminant.config import CALIBRATE, SAMPLES
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    ResamplingUnits,
    estimate_arrays,
    record_errors,
)
from everlight_experiments.illuminant.core.method_inputs import features_of
from everlight_experiments.illuminant.core.networks import NetworkTraining
from everlight_experiments.illuminant.core.report import publish
from everlight_experiments.illuminant.phone.report import (
    Calibration,
    calibration_experiment,
)
from everlight_experiments.illuminant.phone.selection import NESTED, ViewChoice, choose
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import Count, ExperimentOptions, Preset

DEMO_PAIRS = 30


@dataclass(frozen=True)
class CalibrateOptions(ExperimentOptions):
    """Choose and train a model for your phone from raw pairs that show a colour chart."""

    folder: tyro.conf.Positional[Path | None] = None
    """Folder with raw files in main/ and second/, and an optional charts.json of chart corners."""
    preset: Preset = "small"
    """Configuration to run: demo makes thirty pairs under known illuminants, small trains 3,000
    steps, paper 20,000."""
    homography: Path | None = None
    """JSON file that maps main to second pixels, as for `estimate`; by default fitted to all
    charts."""
    groups: Path | None = None
    """Text file with a word per pair of the folder, in the order of the names: its scene or
    session. Folds and intervals take whole groups. By default pairs whose illuminants agree within
    half a degree in both cameras are a group."""
    downsample: Annotated[int, Between(1, 100)] = 6
    """Side in pixels of the blocks averaged before a fit; give `estimate` the same."""
    seeds: Count = 3
    """Number of trainings per network, each with its own initialization and validation pairs."""


class PhonePairs(NamedTuple):
    """A phone's raw pairs, whose charts were read and whose views were aligned.

    Attributes:
      files: raw files of each pair.
      charts: charts of each pair.
      homography: matrix from main to second pixels.
      residuals: root mean square residual of each pair's charts, in pixels.
      measured: transforms with the folds of scenes, small images and colour moments.
      scenes: scene number of each pair.
      note: origin of the pairs.
    """

    files: Sequence[PairFiles]
    charts: Sequence[PairCharts]
    homography: Float[np.ndarray, "3 3"]
    residuals: Float[np.ndarray, "n"]
    measured: MeasuredPairs
    scenes: Int[np.ndarray, "n"]
    note: str


def run_calibrate(options: CalibrateOptions) -> Path:
    """Calibrate, save the model, and return the report's path."""
    folder = RunFolder("illuminant", "calibrate", options)
    phone = _measure_phone(options, folder)
    seeds = range(options.seed, options.seed + options.seeds)
    networks = NetworkTraining(CALIBRATE[options.preset], seeds, folder.checkpoints)
    results = _calibrate(phone, networks)
    models = folder.path / "models"
    _save(folder, models, phone, results)
    command = _estimate_command(models, phone.files[0], options.downsample)
    print("tables, pictures and intervals of the report", flush=True)
    report = publish(folder, calibration_experiment(results, networks, command))
    for view, choice in results.choices.items():
        error = np.nanmean(results.comparisons[view].errors()[NESTED])
        print(
            f"{view} illuminant: {choice.selected.name}, mean error {error:.2f} degrees on scenes "
            "outside training and selection"
        )
    print(f"model: {models / 'calibrated'}\nuse it: {command}")
    return report


def _measure_phone(options: CalibrateOptions, folder: RunFolder) -> PhonePairs:
    """Read the charts, align the cameras, measure the pairs, and draw folds of whole scenes."""
    if options.homography is not None:
        # Damage is known before the charts are searched, which takes longest.
        read_homography(options.homography)
    source, note = _source(options, folder)
    pair_files = find_pairs(source)
    groups = options.groups and read_group_words(options.groups, len(pair_files), "pair")
    measured_charts = read_charts(source, pair_files, folder)
    homography, residuals = align_cameras(options.homography, measured_charts.charts)
    if np.median(residuals) > options.downsample:
        print(
            f"WARNING: the patches lie {np.median(residuals):.1f} pixels from where the homography "
            f"puts them, more than a block of {options.downsample}; take pictures from farther "
            "away, or give a greater --downsample"
        )
    measured = measure_pairs(measured_charts, homography, options.downsample, folder, note)
    files, charts = measured_charts.subset(measured.indices)
    residuals = residuals[measured.indices]
    if groups is None:
        scenes = group_scenes(measured.charted)
    else:
        names = {pair.name for pair in files}
        scenes = renumbered_scenes(groups[[pair.name in names for pair in pair_files]])
    folds = draw_scene_folds(scenes, options.seed)
    measured = measured._replace(charted=measured.charted._replace(folds=tuple(folds)))
    return PhonePairs(files, charts, homography, residuals, measured, scenes, note)


def _calibrate(phone: PhonePairs, networks: NetworkTraining) -> Calibration:
    """Select and train each camera's estimator."""
    measured = phone.measured
    charted, images, moments = measured.charted, measured.images, measured.moments
    cameras = (images["main"].camera, images["second"].camera)
    augmentations = {
        name: resampled(augment, SAMPLES) for name, augment in chart_augmentations(charted).items()
    }
    choices, views, comparisons = {}, {}, {}
    for view in VIEWS:
        pairs = charted_camera_pairs(charted, moments[view], cameras, phone.note, view)
        choice = choose(pairs, augmentations, networks.below(view))
        print(f"{view} camera: intervals and errors of the kept model", flush=True)
        relit = relit_inputs(charted, moments[view], view)[choice.selected.input_name]
        rows = [np.unique(fold) for fold in charted.folds]
        distances = cross_calibrate_distances(jnp.asarray(relit), rows)
        choices[view], views[view] = choice, choice.view_model(distances)
        comparisons[view] = compare(choice, images[view], phone.scenes)
    model = PairModel(**views, prior=None, fit="mean", cameras=cameras, trained_on=phone.note)
    return Calibration(
        charted, phone.charts, phone.residuals, phone.scenes, choices, comparisons, model
    )


def _save(folder: RunFolder, models: Path, phone: PhonePairs, results: Calibration) -> None:
    """Save the model with its homography, and the errors and measurements of the run."""
    save_pair_model(models / "calibrated", results.model)
    charts = phone.charts[0]._asdict()
    views = {view: described_view(*chart.shape, chart.flip) for view, chart in charts.items()}
    write_homography(models / "homography.json", phone.homography, views)
    folder.save_results(
        **record_errors(folder, results.comparisons),
        **estimate_arrays(results.comparisons),
        transforms=results.charted.transforms,
        homography=phone.homography,
        scenes=phone.scenes,
    )


def _estimate_command(models: Path, pair: PairFiles, downsample: int) -> str:
    """Return the command line that estimates a pair's illuminants by the saved model."""
    return shlex.join(
        [
            *("everlight", "illuminant", "estimate", str(pair.main), str(pair.second)),
            *("--model", str(models / "calibrated")),
            *("--homography", str(models / "homography.json")),
            *("--downsample", str(downsample)),
        ]
    )


def _source(options: CalibrateOptions, folder: RunFolder) -> tuple[Path, str]:
    if options.preset == "demo":
        if options.folder is not None:
            raise DataError("--preset demo makes its own pairs; leave out the folder or --preset")
        source = folder.path / "synthetic-pairs"
        write_chart_pairs(source, DEMO_PAIRS, options.seed)
        return source, f"NOT photographs: {DEMO_PAIRS} pairs rendered from colour-science's spectra"
    if options.folder is None:
        raise DataError("give the folder of raw pairs, or --preset demo")
    return options.folder, f"raw pairs in {options.folder}"


def compare(
    choice: ViewChoice, images: IlluminantImages, scenes: Int[np.ndarray, "n"]
) -> Comparison:
    """Return every method's estimates, by trainings without the pair's scene, in one fold."""
    data = choice.data
    estimates = {
        name: np.asarray(features_of(ESTIMATORS[name], images))[None] for name in ("GW", "SoG")
    }
    estimates |= choice.illuminants()
    camera = data.cameras[VIEWS.index(data.view)]
    return Comparison(
        {name: estimate[:, None] for name, estimate in estimates.items()},
        data.illuminants[None],
        f"{data.view} camera",
        f"Illuminant of {camera} ({data.view}) for {len(scenes)} pairs in {scenes.max() + 1} "
        f"scenes, each by models trained without its scene. '{NESTED}': the method and its inputs "
        "were selected without it too; the lowest of the other rows is optimistic.",
        units=ResamplingUnits("scenes", scenes[None]),
        names=np.array(images.names)[None],
    )
