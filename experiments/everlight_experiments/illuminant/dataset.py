"""Every single-image method, on any set of photographs with known illuminants.

    everlight illuminant dataset --thumbnails mine.npz
    everlight illuminant dataset --release cube-plus --folder DIR
    everlight illuminant dataset --thumbnails a.npz b.npz --split cross-camera
    everlight illuminant dataset --thumbnails a.npz b.npz c.npz --split cross-camera --tested C
    everlight illuminant dataset --release radiometric --cameras "Canon 600D"

By default the NUS-8 thumbnails below EVERLIGHT_DATA are read; `--preset demo` needs no data.

In folds, two thirds of a camera's images train the methods, and the third is tested. Across
cameras, all images of the other cameras train. Networks and regressions select their step and
augmentation on 15% of the training images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everlight.illuminant.illuminant_training import TrainingSettings
from everlight_data.color.photographs.camera_images import (
    CameraImages,
    IlluminantImages,
    split_across,
    split_within,
)
from everlight_data.color.photographs.published_folds import FOLDS, draw_folds, read_folds
from everlight_data.color.raw_files.calibrations import calibrations_from
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import record_errors
from everlight_experiments.illuminant.config import DATASET
from everlight_experiments.illuminant.image_source import ImageSource, load_cameras
from everlight_experiments.illuminant.methods import learned_methods
from everlight_experiments.illuminant.photographs import Split, compare_cameras, photograph_sections
from everlight_experiments.illuminant.report import Report
from everlight_experiments.report.writer import write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import Count, Preset, check_methods, in_words

PROTOCOLS: dict[Split, str] = {
    "folds": f"{FOLDS} folds of each camera; statistics within a fold, averaged over folds",
    "cross-camera": "each camera is tested by methods trained on all others",
}


@dataclass(frozen=True)
class DatasetRun(ImageSource):
    """Compare single-image methods on any photographs with known illuminants (table 2)."""

    preset: Preset = "small"
    """Configuration to run: demo renders images of two cameras, small trains 4,000 steps, paper
    20,000."""
    split: Split = "folds"
    """Cross-validation: three folds within each camera, or each camera held out in turn."""
    tested: tuple[str, ...] = ()
    """Cameras to hold out in turn with --split cross-camera; by default all. The others only
    train."""
    folds: Path | None = None
    """File with the fold, 1 to 3, of each image of one camera in the order of the images' names:
    text, or MATLAB with `indices`; or FC4's MATLAB file with `te_split` and `tr_split`. Without it
    the folds are random, from --seed."""
    methods: tuple[str, ...] | None = None
    """Learned methods to run, such as SIIE or 'APAP (GW)'; by default all but those at the authors'
    size. Estimators, networks and regressions on colour moments always run."""
    seeds: Count = 3
    """Number of trainings per network, each with its own initialization and validation images."""

    def check_cameras(self, chosen: Sequence[str]) -> None:
        """Refuse options that do not go with the cameras.

        Raises:
          DataError: they do not.
        """
        if self.split == "cross-camera" and len(chosen) < 2:
            raise DataError(
                "--split cross-camera needs two cameras or more; give more --thumbnails"
            )
        if self.tested and self.split == "folds":
            raise DataError("--tested goes with --split cross-camera")
        for camera in self.tested:
            check_name("camera", camera, chosen)
        if self.folds and (len(chosen) > 1 or self.split == "cross-camera"):
            raise DataError("--folds are those of one camera; name it by --cameras")


def run_dataset(
    settings: DatasetRun, training: Mapping[Preset, TrainingSettings] = DATASET
) -> Path:
    """Run the comparison and return the report's path."""
    folder = RunFolder("illuminant", "dataset", settings)
    summary, first, sections = compare_photographs(folder, settings, training[settings.preset])
    title = f"Illuminant estimation from one image ({settings.split})"
    return write_report(folder.path, title, summary, sections, first)


def compare_photographs(
    folder: RunFolder, settings: DatasetRun, training: TrainingSettings
) -> Report:
    """Compare all methods on the images that the settings name, and save their errors."""
    cameras, note = load_cameras(settings)
    known = calibrations_from(settings.matrices, list(cameras))
    sets = {
        camera: data._replace(calibrations=known)
        for camera, data in split_cameras(cameras, settings).items()
    }
    for data in sets.values():
        check_methods(settings.methods, learned_methods(data))
    seeds = range(settings.seed, settings.seed + settings.seeds)
    comparisons = compare_cameras(folder, sets, settings.split, seeds, training, settings.methods)
    folder.save_results(**record_errors(folder, comparisons))
    illuminants = {camera: data.illuminants for camera, data in cameras.items()}
    first, sections = photograph_sections(
        folder.path, sets, comparisons, settings.split, note, illuminants
    )
    summary = [
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
    return summary, first, sections


def split_cameras(
    cameras: Mapping[str, CameraImages], settings: DatasetRun
) -> dict[str, IlluminantImages]:
    """Return each camera's images in folds, or all cameras' images with one camera as the test."""
    if settings.split == "cross-camera":
        all_sets = split_across(cameras)
        return {camera: all_sets[camera] for camera in settings.tested or all_sets}
    sets = {}
    for camera, data in cameras.items():
        count, path = len(data.names), settings.folds
        folds = read_folds(path, count) if path else draw_folds(count, settings.seed)
        sets[camera] = split_within(camera, data, folds)
    return sets
