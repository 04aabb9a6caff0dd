"""Every single-image method, on any set of photographs with known illuminants.

    everlight illuminant dataset --thumbnails mine.npz
    everlight illuminant dataset --release cube-plus --folder DIR
    everlight illuminant dataset --thumbnails a.npz b.npz --split cross-camera
    everlight illuminant dataset --release radiometric --cameras "Canon 600D"

By default the NUS-8 thumbnails below EVERLIGHT_DATA are read; `--preset demo` needs no data.

In folds, two thirds of a camera's images train the methods, and the third is tested. Across
cameras, all images of the other cameras train. Networks and regressions select their step and
augmentation on 15% of the training images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from everlight.checks import Between
from everlight.models.illuminant_training import TrainingSettings
from everlight_data.color.constancy_sets import RELEASES, SATURATION, ConstancySet
from everlight_data.color.image_sets import (
    CameraImages,
    ImageSet,
    check_edges,
    draw_folds,
    read_folds,
    read_images,
    split_across,
    split_within,
    thumbnail_cameras,
)
from everlight_data.color.nus import CAMERAS, thumbnail_files
from everlight_data.color.quasi_real import FOLDS
from everlight_data.color.rendered_views import render_thumbnails
from everlight_data.color.spectra import embedded_library, measured_library
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import record_errors
from everlight_experiments.illuminant.config import DATASET
from everlight_experiments.illuminant.methods import learned_methods
from everlight_experiments.illuminant.photographs import Split, compare_cameras, photograph_sections
from everlight_experiments.illuminant.report import Report
from everlight_experiments.report.writer import write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import (
    Count,
    Preset,
    RunSettings,
    check_methods,
    in_words,
)

Release = Literal["gehler-shi", "cube-plus", "intel-tau", "nus8", "radiometric"]

RENDERED = 162
"""Number of rendered scenes, each by every camera."""
LEAST_IMAGES = 45
"""Minimum number of images: two thirds, less the validation part, must determine 20 numbers."""
PROTOCOLS: dict[Split, str] = {
    "folds": f"{FOLDS} folds of each camera; statistics within a fold, averaged over folds",
    "cross-camera": "each camera is tested by methods trained on all others",
}


@dataclass(frozen=True)
class DatasetRun(RunSettings):
    """Compare single-image methods on any photographs with known illuminants (table 2)."""

    preset: Preset = "small"
    """Configuration to run: demo renders images of two cameras, small trains 4,000 steps, paper
    20,000."""
    thumbnails: tuple[Path, ...] = ()
    """Your own images: .npz files of linear thumbnails with their illuminants, each of one or more
    cameras (docs/guide/data.md). Without this and --release, NUS-8's thumbnails are taken."""
    camera: str = ""
    """Camera of all images in --thumbnails, where the names of the images do not say it."""
    release: Release | None = None
    """Released data set to use in place of thumbnails. It is read from --folder, except
    radiometric, which renders the paper's scenes from the spectra below EVERLIGHT_DATA."""
    folder: Path | None = None
    """Folder with the unpacked files of the release; needed by every release but radiometric."""
    cameras: tuple[str, ...] = ()
    """Names of the cameras to use; by default all."""
    split: Split = "folds"
    """Cross-validation: three folds within each camera, or each camera held out in turn."""
    folds: Path | None = None
    """File with the fold, 1 to 3, of each image of one camera in the order of the images' names:
    text, or MATLAB with `indices`; or FC4's MATLAB file with `te_split` and `tr_split`. Without it
    the folds are random, from --seed."""
    side: Annotated[int, Between(32, 2_000)] = 64
    """Longest side in pixels; larger images are averaged down to it."""
    methods: tuple[str, ...] | None = None
    """Learned methods to run, such as SIIE or 'APAP (GW)'; by default all. Estimators, networks
    and regressions on colour moments always run."""
    seeds: Count = 3
    """Number of trainings per network, each with its own initialization and validation images."""


def run_dataset(
    settings: DatasetRun, training: Mapping[Preset, TrainingSettings] = DATASET
) -> Path:
    """Run the comparison and return the report's path."""
    folder = RunFolder("illuminant", "dataset", settings)
    facts, first, sections = compare_photographs(folder, settings, training[settings.preset])
    title = f"Illuminant estimation from one image ({settings.split})"
    return write_report(folder.path, title, facts, sections, first)


def compare_photographs(
    folder: RunFolder, settings: DatasetRun, training: TrainingSettings
) -> Report:
    """Compare all methods on the images that the settings name, and save their errors."""
    cameras, note = load_cameras(settings)
    sets = split_cameras(cameras, settings)
    for data in sets.values():
        check_methods(settings.methods, learned_methods(data))
    seeds = range(settings.seed, settings.seed + settings.seeds)
    comparisons = compare_cameras(folder, sets, settings.split, seeds, training, settings.methods)
    folder.save_results(**record_errors(folder, comparisons))
    illuminants = {camera: data.illuminants for camera, data in cameras.items()}
    first, sections = photograph_sections(
        folder.path, sets, comparisons, settings.split, note, illuminants
    )
    facts = [
        ("Paper", CITATION),
        ("Data", note),
        ("Cameras", ", ".join(sets)),
        ("Protocol", PROTOCOLS[settings.split]),
        ("Folds", str(settings.folds or f"drawn by seed {settings.seed}")),
        (
            "Selection rule",
            "held-out selection: step and augmentation on 15% of the training images",
        ),
        ("Seeds", f"{settings.seeds} per network, from {settings.seed}"),
        ("Training of networks", in_words(training)),
        ("Duration", folder.duration()),
    ]
    return facts, first, sections


def load_cameras(settings: DatasetRun) -> tuple[dict[str, CameraImages], str]:
    """Return images by camera, and a note on the data.

    Raises:
      DataError: options contradict each other, a camera is unknown, or one has too few images or
        none with edges.
    """
    _check_options(settings)
    if settings.preset == "demo" or settings.release == "radiometric":
        library = embedded_library() if settings.preset == "demo" else measured_library()
        chosen = _chosen(settings, library.camera_names)
        note = f"NOT photographs: {RENDERED} rendered thumbnails (32x48); {library.note}"
        return render_thumbnails(library, chosen, RENDERED, settings.seed), note
    sets, note = _read_sets(settings)
    chosen = _chosen(settings, list(sets))
    # All counts are known before the first image is read.
    for camera in chosen:
        count = len(sets[camera].names)
        if count < LEAST_IMAGES:
            raise DataError(
                f"{camera} has {count} images; at least {LEAST_IMAGES} are needed to train and to "
                "test. Leave it out by --cameras, add images, or, if all images are by one camera, "
                "name it by --camera."
            )
    found = {camera: read_images(sets[camera], settings.side) for camera in chosen}
    for camera, data in found.items():
        check_edges(camera, data)
    return found, note


def _check_options(settings: DatasetRun) -> None:
    if (settings.release in (None, "radiometric")) != (settings.folder is None):
        raise DataError(
            "--release and --folder belong together: which set, and where it lies; radiometric is "
            "rendered, and has no folder"
        )
    if settings.release and settings.thumbnails:
        raise DataError("--thumbnails and --release are two sets; give one")
    if settings.camera and not settings.thumbnails:
        raise DataError("--camera names the camera of --thumbnails; give the files too")
    if settings.camera and settings.cameras:
        raise DataError("--camera names all images' camera, and --cameras selects; give one")
    if settings.preset == "demo" and (settings.release or settings.thumbnails):
        raise DataError("--preset demo renders its own images; leave the data or --preset away")


def _chosen(settings: DatasetRun, known: Sequence[str]) -> Sequence[str]:
    """Return the names of the cameras to use."""
    for camera in settings.cameras:
        check_name("camera", camera, known)
    chosen = settings.cameras or known
    if settings.split == "cross-camera" and len(chosen) < 2:
        raise DataError("--split cross-camera needs two cameras or more; give more --thumbnails")
    if settings.folds and (len(chosen) > 1 or settings.split == "cross-camera"):
        raise DataError("--folds are those of one camera; name it by --cameras")
    return chosen


def _read_sets(settings: DatasetRun) -> tuple[dict[str, ConstancySet], str]:
    if settings.release and settings.folder:
        sets = RELEASES[settings.release](settings.folder)
        return sets, f"{settings.release} as released, averaged down to {settings.side} pixels"
    files, names = settings.thumbnails, ", ".join(file.name for file in settings.thumbnails)
    sets = thumbnail_cameras(files or thumbnail_files(), settings.camera)
    if not files:
        sets, names = {name: sets[name] for name in sets if name in CAMERAS}, "NUS-8"
    return sets, (
        f"linear thumbnails: {names}; masked are what is 0 (charts) and pixels from {SATURATION} "
        "of an image's maximum on"
    )


def split_cameras(cameras: Mapping[str, CameraImages], settings: DatasetRun) -> dict[str, ImageSet]:
    """Return each camera's images in folds, or all cameras' images with one camera as the test."""
    if settings.split == "cross-camera":
        return split_across(cameras)
    sets = {}
    for camera, data in cameras.items():
        count, path = len(data.names), settings.folds
        folds = read_folds(path, count) if path else draw_folds(count, settings.seed)
        sets[camera] = split_within(camera, data, folds)
    return sets
