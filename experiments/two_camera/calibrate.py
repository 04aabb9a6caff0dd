"""Nets for a phone of one's own, from raw pairs with a colour chart in them.

    python -m experiments two_camera calibrate FOLDER

FOLDER holds `main/` and `second/`, one raw file of each for every pair, of the same name but for
the ending. Both must show a classic chart of 24 patches, evenly lit by the light of the scene. It
is found by itself; where it is not, FOLDER/charts.json places it: by file, such as
"main/IMG_1.dng", the [x, y] of the centres of dark skin, bluish green, black and white.

Every pair's lights are those of its grey patches, its transform is fitted as `estimate` fits it,
with the chart masked. Nets are trained on all scenes but some, in turn, and asked about those; each
training pair is re-illuminated as every other by the charts (two-camera paper, section 3.4). What
the report says of the nets is of scenes that they were not trained on; `estimate` gets all of them.

Scales:
  demo: no data needed: thirty made-up pairs under known lights are written and calibrated on.
  cpu: FOLDER, 3,000 steps.
  paper: FOLDER, 20,000 steps.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from data_pipelines.color.chart import (
    CENTRES,
    NEUTRALS,
    chart_homography,
    chart_mask,
    find_chart,
    place,
    read_chart,
    reference_colors,
)
from data_pipelines.color.chart_scenes import write_chart_pairs
from data_pipelines.color.quasi_real import QuasiReal
from data_pipelines.color.raw import BYTES, RawImage, read_raw
from data_pipelines.errors import DataError
from data_pipelines.files import one_line, read_bytes, read_json
from data_pipelines.writing import written_whole
from everlight.checks import Between
from everlight.color.alignment import area_downsample, fit_homography
from everlight.color.estimators import ESTIMATORS
from everlight.color.reillumination import augment_transforms, chart_transforms
from everlight.color.transform_prior import (
    TransformPrior,
    transform_distance,
    transform_distribution,
)
from everlight.color.transforms import fit_color_transform, scale_free
from everlight.models.illuminant_novelty import Familiarity, calibrate
from everlight.models.illuminant_training import TrainingSettings
from experiments.common.checkpoint import Checkpoints
from experiments.common.progress import progress
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Count, RunSettings, Scale, in_words
from experiments.two_camera import CITATION
from experiments.two_camera.calibrate_report import CalibrationResults, report_sections
from experiments.two_camera.estimate import MAX_CONDITION, align_thumbnails, read_homography
from experiments.two_camera.image_methods import look_at_all
from experiments.two_camera.image_sets import ImageSet
from experiments.two_camera.intervals import Coverage, calibrate_all, cross_coverage
from experiments.two_camera.model_files import LightNets, LoadedModel, save_model
from experiments.two_camera.nus import augmentations_of, camera_pairs
from experiments.two_camera.pair_folds import (
    CHOSEN,
    TRANSFORM,
    Augment,
    CameraPairs,
    CrossValidation,
    Samples,
    cross_validate,
    net_name,
)
from experiments.two_camera.tables import Comparison, angular_errors

LEAST_SCENES = 6
MOST_FOLDS = 12
"""Above as many scenes several are left out together."""
SAME_SCENE = 0.5
"""Degrees between the lights of two pairs, in both cameras, below which they are one scene."""
DEPTH = 5
SAMPLES = 4_096
"""Of a training, re-illuminations among them; the same number in every fold."""
SIDE = 96
"""Longest side of the image that methods of one image see."""
DEMO_PAIRS = 30
TRAINING = {
    "demo": TrainingSettings(3_000, 128, validate_every=50),
    "cpu": TrainingSettings(3_000, 128, validate_every=50),
    "paper": TrainingSettings(20_000, 128, validate_every=50),
}
VIEWS = ("main", "second")
LAYOUT = (
    'Write it into charts.json, {"main/NAME": [[x, y], [x, y], [x, y], [x, y]], ...}: the centres '
    "of dark skin, bluish green, black and white, in pixels of the upright picture."
)


@dataclass(frozen=True)
class CalibrateRun(RunSettings):
    """Nets for a phone of your own, from raw pairs that show a colour chart."""

    folder: tyro.conf.Positional[Path | None] = None
    """Raw files in main/ and second/, and charts.json where charts are to be given."""
    scale: Scale = "cpu"
    """demo: made-up pairs under known lights; cpu, paper: 3,000 or 20,000 steps of every net."""
    homography: Path | None = None
    """From main to second pixels, as `estimate` takes it; by default fitted to all charts."""
    downsample: Annotated[int, Between(1, 100)] = 6
    """Side of the blocks that are averaged before a fit; give `estimate` the same."""
    seeds: Count = 3
    """Trainings of every net, each with its own initial parameters and validation pairs."""


class PairFiles(NamedTuple):
    """One scene's raw files."""

    name: str
    main: Path
    second: Path


class PairCharts(NamedTuple):
    """One pair's charts, main first."""

    charts: Float[np.ndarray, "2 3 3"]
    colors: Float[np.ndarray, "2 24 3"]
    usable: Bool[np.ndarray, "2 24"]
    shapes: Int[np.ndarray, "2 2"]
    cameras: np.ndarray

    def points(self, view: int) -> Float[np.ndarray, "24 2"]:
        """Centres of the patches in pixels."""
        return place(self.charts[view], CENTRES)

    def light(self, view: int) -> Float[np.ndarray, "3"]:
        """Of the grey patches but black, weighted by their brightness, as (R/G, 1, B/G)."""
        total = self._greys(view).sum(axis=0)
        return total / total[1]

    def grey_spread(self, view: int) -> float:
        """Largest angle between a grey patch and the light, in degrees: shade or glare shows."""
        greys = jnp.asarray(self._greys(view), jnp.float32)
        return float(jnp.max(angular_errors(greys, jnp.asarray(self.light(view), jnp.float32))))

    def _greys(self, view: int) -> Float[np.ndarray, "k 3"]:
        greys = slice(NEUTRALS.start, NEUTRALS.stop - 1)
        return self.colors[view, greys][self.usable[view, greys]].astype(float)


def run_calibrate(
    settings: CalibrateRun, training: Mapping[Scale, TrainingSettings] = TRAINING
) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "calibrate", settings)
    source, note = _source(settings, folder)
    files = find_pairs(source)
    charts = read_charts(source, files, folder)
    homography, residuals = align_cameras(settings, charts)
    quasi, images = measure_pairs(files, charts, homography, settings, folder, note)
    scenes = group_scenes(quasi)
    folds = deal_scenes(scenes, settings.seed)
    quasi, images = quasi._replace(folds=tuple(folds)), images._replace(folds=folds)
    optimizer = training[settings.scale]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    nets, outcomes = {}, {}
    for view in VIEWS:
        outcomes[view] = _validate(quasi, images, view, seeds, optimizer, folder)
        estimates, truth = _held_out(outcomes[view], quasi, view)
        scale = calibrate_all(jnp.asarray(estimates), jnp.asarray(truth))
        nets[view] = LightNets(_members(outcomes[view], len(folds), len(seeds)), scale)
    cameras = tuple(str(name) for name in charts[0].cameras)
    model = LoadedModel(
        nets["main"], nets["second"], familiar_pairs(quasi), DEPTH, "scale", cameras, images.note
    )
    models = folder.path / "models"
    save_model(models / "calibrated", model)
    with written_whole(models / "homography.json") as unfinished:
        unfinished.write_text(json.dumps({"matrix": homography.tolist()}))

    results = CalibrationResults(
        [each.name for each in files],
        scenes,
        compare(quasi, images, outcomes["main"]),
        {view: coverage_of(outcomes[view], quasi, view) for view in VIEWS},
        {view: _ensemble_errors(outcomes[view], quasi, view) for view in VIEWS},
        np.array([[each.grey_spread(view) for view in (0, 1)] for each in charts]),
        residuals,
        settings.homography is None,
        quasi,
        cameras,
    )
    for name, errors in results.compared.errors().items():
        folder.log(method=name, mean_error=np.nanmean(errors, axis=(1, 2)))
    folder.save_results(
        **results.compared.errors(),
        **{f"light/{view}": quasi_lights(quasi, view) for view in VIEWS},
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
            "honest: step and augmentation on 15% of the pairs that teach; of a scene with several "
            "pairs some may teach and some choose",
        ),
        ("Seeds", f"{settings.seeds} a fold from {settings.seed}"),
        ("Training", in_words(optimizer)),
        (
            "To be used, where the verdict below allows it",
            f"two_camera estimate --checkpoint {models / 'calibrated'} --homography "
            f"{models / 'homography.json'} --downsample {settings.downsample}",
        ),
        ("Duration", folder.duration()),
    ]
    title = f"Two-camera illuminant estimation: calibration of {' + '.join(cameras)}"
    report = write_report(folder.path, title, summary, report_sections(folder.path, results))
    print(f"nets: {models / 'calibrated'}")
    return report


def _source(settings: CalibrateRun, folder: RunFolder) -> tuple[Path, str]:
    if settings.scale == "demo":
        if settings.folder is not None:
            raise DataError("--scale demo makes its own pairs; leave the folder or --scale away")
        source = folder.path / "made-up-pairs"
        write_chart_pairs(source, DEMO_PAIRS, settings.seed)
        return source, f"NOT photographs: {DEMO_PAIRS} pairs rendered from colour-science's spectra"
    if settings.folder is None:
        raise DataError("give the folder of raw pairs, or --scale demo")
    return settings.folder, f"raw pairs in {settings.folder}"


def find_pairs(folder: Path) -> list[PairFiles]:
    """The raw files below `main` and `second`, by name.

    Raises:
      DataError: no such folders, a file without its partner, a name twice, or too few pairs.
    """
    found = {}
    for view in VIEWS:
        if not (folder / view).is_dir():
            raise DataError(
                f"{folder / view} is no folder; put the {view} camera's raw files there"
            )
        paths = sorted(each for each in (folder / view).iterdir() if each.is_file())
        paths = [each for each in paths if not each.name.startswith(".")]
        found[view] = {path.stem: path for path in paths}
        if len(found[view]) < len(paths):
            raise DataError(f"{folder / view} has two files of one name but for the ending")
    alone = sorted(found["main"].keys() ^ found["second"].keys())
    if alone:
        raise DataError(
            f"{folder}: {one_line(', '.join(alone))} in one of main and second only; each pair has "
            "one name in both"
        )
    if len(found["main"]) < LEAST_SCENES:
        raise DataError(
            f"{folder} has {len(found['main'])} pairs; {LEAST_SCENES} under different lights are "
            "the least to learn from, and thirty are better"
        )
    return [PairFiles(name, found["main"][name], found["second"][name]) for name in found["main"]]


def given_charts(folder: Path) -> dict[str, Float[np.ndarray, "4 2"]]:
    """The charts' corners that charts.json gives, by file; none where there is no such file.

    Raises:
      DataError: it holds something else, or names a file that is not there.
    """
    path = folder / "charts.json"
    if not path.exists():
        return {}
    content = read_json(path, LAYOUT, 10_000_000)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no charts. {LAYOUT}")
    corners = {}
    for name, points in content.items():
        try:
            corners[name] = np.array(points, np.float32)
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: {one_line(name)} has no corners. {LAYOUT}") from error
        right = corners[name].shape == (4, 2) and np.all(np.isfinite(corners[name]))
        if not right or chart_homography(corners[name]) is None:
            raise DataError(f"{path}: {one_line(name)} has no four corners of a chart. {LAYOUT}")
        if not (folder / name).is_file():
            raise DataError(f"{path}: there is no {folder / one_line(name)}. {LAYOUT}")
    return corners


def read_charts(folder: Path, files: Sequence[PairFiles], run: RunFolder) -> list[PairCharts]:
    """Every pair's charts, each pair once in a run's life.

    Raises:
      DataError: files whose chart is not found or of no use, all of them named.
    """
    given, reference = given_charts(folder), reference_colors()
    corners = [
        [given.get(f"{view}/{getattr(pair, view).name}") for view in VIEWS] for pair in files
    ]

    def read(index: int) -> dict[str, np.ndarray]:
        views = [
            _read_view(getattr(files[index], view), own, reference)
            for view, own in zip(VIEWS, corners[index], strict=True)
        ]
        return {name: np.stack([view[name] for view in views]) for name in PairCharts._fields}

    facts = [
        {"corners": [None if each is None else each.tolist() for each in own]} for own in corners
    ]
    charts = [PairCharts(**each) for each in _once("charts", files, facts, read, run)]
    shapes = np.array([each.shapes for each in charts])
    if np.any(shapes != shapes[0]):
        raise DataError(f"{folder}: photos of one camera differ in size; give one camera's alone")
    return charts


def _once(
    kind: str,
    files: Sequence[PairFiles],
    facts: Sequence[dict],
    measure: Callable[[int], dict[str, np.ndarray]],
    run: RunFolder,
) -> list[dict[str, np.ndarray]]:
    """What is measured of every pair, each a unit of the run; `facts` beside the files' own.

    Raises:
      DataError: those of all pairs, in one.
    """
    found, failures = [], []
    with progress(kind, len(files), unit="pair") as bar:
        for index, pair in enumerate(files):
            name, known = f"{kind}-{pair.name}", _facts(pair) | facts[index]
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


def _facts(pair: PairFiles) -> dict[str, int]:
    """Checksums of the files, so that what was measured of others is not taken for theirs."""
    return {view: zlib.crc32(read_bytes(getattr(pair, view), BYTES, "")) for view in VIEWS}


def _read_view(
    path: Path, corners: Float[np.ndarray, "4 2"] | None, reference: Float[np.ndarray, "24 3"]
) -> dict[str, np.ndarray]:
    photo = read_raw(path)
    if corners is None:
        corners = find_chart(photo.image, reference)
    if corners is None:
        raise DataError(f"{path}: no chart found. {LAYOUT}")
    chart = chart_homography(corners)
    height, width = photo.image.shape[:2]
    outer = place(chart, np.array([[-0.5, -0.5], [5.5, -0.5], [5.5, 3.5], [-0.5, 3.5]]))
    if not np.all((outer >= 0) & (outer <= [width - 1, height - 1])):
        raise DataError(f"{path}: the chart that is given leaves the {width}×{height} picture.")
    seen = read_chart(photo.image, photo.saturated, chart)
    if not seen.usable[NEUTRALS][:-1].any():
        raise DataError(f"{path}: all grey patches are saturated; expose less.")
    if seen.colors[NEUTRALS][:-1].min() <= 0 or seen.usable.sum() < 12:
        raise DataError(f"{path}: the chart is too dark or too saturated; expose otherwise.")
    return {
        "charts": chart,
        "colors": seen.colors,
        "usable": seen.usable,
        "shapes": np.array([height, width]),
        "cameras": np.array(photo.camera or "unnamed camera"),
    }


def align_cameras(
    settings: CalibrateRun, charts: Sequence[PairCharts]
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "n"]]:
    """One homography for the two cameras: the given one, or that of all charts' patches.

    And the root mean square distance, in second pixels, of each pair's patches from where it puts
    them.
    """
    main, second = (np.stack([each.points(view) for each in charts]) for view in (0, 1))
    if settings.homography is not None:
        homography = read_homography(settings.homography)
    else:
        fit = fit_homography(jnp.asarray(main.reshape(-1, 2)), jnp.asarray(second.reshape(-1, 2)))
        if not fit.valid:
            raise DataError(
                "the charts give no homography between the two cameras; give it by --homography"
            )
        homography = np.asarray(fit.homography)
    mapped = place(homography, main.reshape(-1, 2)).reshape(second.shape)
    residuals = np.sqrt(np.mean(np.sum((mapped - second) ** 2, axis=2), axis=1))
    if np.median(residuals) > settings.downsample:
        print(
            f"WARNING: the patches lie {np.median(residuals):.1f} pixels from where the homography "
            f"puts them, more than a block of {settings.downsample}; take pictures from farther "
            "away, or give a greater --downsample"
        )
    return homography, residuals


def measure_pairs(
    files: Sequence[PairFiles],
    charts: Sequence[PairCharts],
    homography: Float[np.ndarray, "3 3"],
    settings: CalibrateRun,
    run: RunFolder,
    note: str,
) -> tuple[QuasiReal, ImageSet]:
    """Transforms and small images with their charts masked, and lights; folds are yet to come.

    Raises:
      DataError: pairs that have no transform, all of them named.
    """

    def measure(index: int) -> dict[str, np.ndarray]:
        return _measure(files[index], charts[index], homography, settings.downsample)

    facts = [
        {
            "homography": homography.tolist(),
            "chart": each.charts[0].tolist(),
            "downsample": settings.downsample,
        }
        for each in charts
    ]
    measured = _once("transforms", files, facts, measure, run)
    lights = [np.stack([each.light(view) for each in charts]).astype(np.float32) for view in (0, 1)]
    quasi = QuasiReal(
        tuple((pair.name, pair.name) for pair in files),
        np.stack([each["transform"] for each in measured]),
        *lights,
        *(np.stack([each.colors[view] for each in charts]).astype(np.float32) for view in (0, 1)),
        np.stack([each.usable.all(axis=0) for each in charts]),
        (),
    )
    camera = str(charts[0].cameras[0])
    images = ImageSet(
        np.stack([each["image"] for each in measured]),
        np.stack([each["mask"] for each in measured]),
        lights[0],
        (),
        dict(zip(VIEWS, lights, strict=True)),
        note,
        camera,
    )
    return quasi, images


def _measure(
    pair: PairFiles, chart: PairCharts, homography: Float[np.ndarray, "3 3"], factor: int
) -> dict[str, np.ndarray]:
    main, second = read_raw(pair.main), read_raw(pair.second)
    thumbnails = align_thumbnails(main, second, homography, factor)
    free = chart_mask(thumbnails.mask.shape, _in_blocks(factor) @ chart.charts[0])
    mask = thumbnails.mask & free
    colors = thumbnails.main[mask]
    fit = fit_color_transform(
        jnp.asarray(thumbnails.main.reshape(-1, 3)),
        jnp.asarray(thumbnails.second.reshape(-1, 3)),
        jnp.asarray(mask.ravel(), jnp.float32),
        "scale",
    )
    if not fit.valid or np.linalg.cond(colors) > MAX_CONDITION:
        raise DataError(
            f"{pair.main}: beside the chart are fewer than three independent colours, too few for "
            "a transform; take the pair out, or photograph a more colourful scene."
        )
    image, small_mask = _small(main, chart)
    return {"transform": np.asarray(fit.transform), "image": image, "mask": small_mask}


def _in_blocks(factor: int) -> Float[np.ndarray, "3 3"]:
    """From pixels to blocks of `factor` pixels."""
    shift = (1 - factor) / (2 * factor)
    return np.array([[1 / factor, 0, shift], [0, 1 / factor, shift], [0, 0, 1]])


def _small(photo: RawImage, chart: PairCharts) -> tuple[np.ndarray, np.ndarray]:
    """The main image without its chart and what is saturated, `SIDE` pixels wide."""
    factor = max(1, -(-max(photo.image.shape) // SIDE))
    small = area_downsample(jnp.asarray(photo.image), factor, jnp.asarray(~photo.saturated))
    mask = np.asarray(small.mask)
    mask = mask & chart_mask(mask.shape, _in_blocks(factor) @ chart.charts[0])
    image = np.maximum(np.asarray(small.image), 0) * mask[..., None]
    return image, mask.astype(np.float32)


def quasi_lights(quasi: QuasiReal, view: str) -> Float[np.ndarray, "n 3"]:
    """One camera's lights."""
    return getattr(quasi, f"illuminants_{view}")


def group_scenes(quasi: QuasiReal) -> Int[np.ndarray, "n"]:
    """A number for each pair, the same for those that a chain of like lights connects.

    Raises:
      DataError: too few scenes.
    """
    alike = np.ones((len(quasi.names),) * 2, bool)
    for view in VIEWS:
        lights = jnp.asarray(quasi_lights(quasi, view))
        alike &= np.asarray(angular_errors(lights[:, None], lights[None])) < SAME_SCENE
    scenes = connected_components(alike)[1]
    if scenes.max() + 1 < LEAST_SCENES:
        raise DataError(
            f"{len(scenes)} pairs show {scenes.max() + 1} lights that differ by {SAME_SCENE} "
            f"degrees; {LEAST_SCENES} are the least. Add pairs under other lights."
        )
    return scenes


def deal_scenes(scenes: Int[np.ndarray, "n"], seed: int) -> list[Int[np.ndarray, "k"]]:
    """Folds of whole scenes; a shorter one names rows twice, to be as long as the others."""
    order = np.random.default_rng(seed).permutation(scenes.max() + 1)
    count = min(len(order), MOST_FOLDS)
    rows = [np.flatnonzero(np.isin(scenes, order[fold::count])) for fold in range(count)]
    longest = max(map(len, rows))
    return [np.resize(each, longest) for each in rows]


def _validate(
    quasi: QuasiReal,
    images: ImageSet,
    view: str,
    seeds: Sequence[int],
    optimizer: TrainingSettings,
    folder: RunFolder,
) -> CrossValidation:
    """Nets for one camera's light; what the main image says alone is asked of its own light."""
    if view == "second":
        quasi = quasi._replace(illuminants_main=quasi.illuminants_second)
    whole = camera_pairs(quasi, images)
    pairs = whole
    if view == "second":
        pairs = whole._replace(inputs={TRANSFORM: whole.inputs[TRANSFORM]})
    augmentations = {
        name: partial(_evened, augment, whole) for name, augment in augmentations_of(quasi).items()
    }
    return cross_validate(
        pairs,
        augmentations,
        "honest",
        seeds,
        optimizer,
        Checkpoints(folder.checkpoints / view),
        {TRANSFORM: (DEPTH,)},
    )


def _evened(
    augment: Augment, whole: CameraPairs, data: CameraPairs, train: np.ndarray, key: jax.Array
) -> Samples:
    """Some of the samples, or each several times: `SAMPLES`, whatever the fold's size.

    Re-illumination is of all inputs, `whole`; those of `data` are kept.
    """
    samples = augment(whole, train, key)
    drawn = np.random.default_rng(len(train)).permutation(len(samples.targets))
    rows = np.resize(drawn, SAMPLES)
    inputs = {name: np.asarray(samples.inputs[name])[rows] for name in data.inputs}
    return Samples(inputs, np.asarray(samples.targets)[rows])


def _by_pair(
    estimates: Float[np.ndarray, "runs folds k c"], quasi: QuasiReal
) -> Float[np.ndarray, "runs n c"]:
    """Each pair's, from the fold that left it out."""
    rows = np.stack(quasi.folds)
    pooled = np.full((len(estimates), len(quasi.names), estimates.shape[-1]), np.nan, np.float32)
    pooled[:, rows] = estimates
    return pooled


def _held_out(
    outcome: CrossValidation, quasi: QuasiReal, view: str
) -> tuple[Float[np.ndarray, "seeds n 2"], Float[np.ndarray, "n 2"]]:
    estimates = outcome.estimates[f"{net_name(TRANSFORM, DEPTH)}, {CHOSEN}"]
    lights = quasi_lights(quasi, view)
    return _by_pair(estimates, quasi), lights[:, ::2] / lights[:, 1:2]


def coverage_of(outcome: CrossValidation, quasi: QuasiReal, view: str) -> Coverage:
    """How often the intervals hold on left-out scenes, calibrated on the others."""
    return cross_coverage(*_held_out(outcome, quasi, view), [np.unique(f) for f in quasi.folds])


def _ensemble_errors(
    outcome: CrossValidation, quasi: QuasiReal, view: str
) -> Float[np.ndarray, "n"]:
    lights = outcome.lights()[f"{net_name(TRANSFORM, DEPTH)}, {CHOSEN}, ensemble"]
    return np.asarray(angular_errors(_by_pair(lights, quasi)[0], quasi_lights(quasi, view)))


def _members(outcome: CrossValidation, folds: int, seeds: int):
    """Every fold's and seed's net, of the augmentation that its fold has chosen."""
    losses = outcome.validation[net_name(TRANSFORM, DEPTH)]
    best = np.argmin(list(losses.values()), axis=0)
    rows = np.concatenate(
        [(folds * best[fold] + fold) * seeds + np.arange(seeds) for fold in range(folds)]
    )
    return jax.tree.map(lambda leaf: leaf[rows], outcome.nets[TRANSFORM].models[DEPTH])


def compare(quasi: QuasiReal, images: ImageSet, outcome: CrossValidation) -> Comparison:
    """Every method on every pair, by what the pair's scene had no part in, in one fold."""
    lights = {
        name: np.asarray(look_at_all(ESTIMATORS[name], images))[None] for name in ("GW", "SoG")
    }
    for name, told in outcome.lights().items():
        # Regressions of other validation pairs are hardly others: no ensemble of them.
        if CHOSEN in name and not (name.startswith("Linear") and name.endswith("ensemble")):
            lights[name.replace(f", {CHOSEN}", "")] = _by_pair(told, quasi)
    return Comparison(
        {name: told[:, None] for name, told in lights.items()}, quasi.illuminants_main[None]
    )


def familiar_pairs(quasi: QuasiReal) -> Familiarity:
    """All pairs' transforms and their re-illuminations, and each fold's distances from the rest."""
    weights = jnp.asarray(quasi.usable, jnp.float32)
    charts = (
        chart_transforms(jnp.asarray(each), weights)
        for each in (quasi.charts_main, quasi.charts_second)
    )
    transforms = scale_free(augment_transforms(jnp.asarray(quasi.transforms), *charts))

    def distribution(rows: Int[np.ndarray, "k"]) -> TransformPrior:
        own = transforms[rows][:, rows].reshape(-1, 3, 3)
        return transform_distribution(own, jnp.ones(len(own), bool), misfit=1.0)

    everything, distances = np.arange(len(quasi.names)), []
    for fold in map(np.unique, quasi.folds):
        prior = distribution(np.setdiff1d(everything, fold))
        held = jnp.stack([transforms[row, row] for row in fold])
        distances.append(jax.vmap(transform_distance, (None, 0))(prior, held))
    return calibrate(distribution(everything), jnp.concatenate(distances))
