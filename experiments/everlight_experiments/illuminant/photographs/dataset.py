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
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from everlight.color.learned.fourier_constancy import TUNED_HERE
from everlight.illuminant.camera_pairs import Augment, ImageInputs
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.pair_augmentations import IMAGE_AUGMENTATIONS, resampled
from everlight.illuminant.pair_inputs import MOMENTS
from everlight.trees import checksums_of
from everlight_data.color.photographs.camera_images import (
    CameraImages,
    IlluminantImages,
    split_across,
    split_in_folds,
)
from everlight_data.color.photographs.published_folds import FOLDS
from everlight_data.color.raw_files.calibrations import read_calibrations
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_data.progress import progress
from everlight_experiments.illuminant.config import DATASET, MAIN, MIN_IMAGES, SAMPLES
from everlight_experiments.illuminant.core.cross_validation import (
    HELD_OUT,
    OTHER_DEPTHS,
    Estimator,
    cross_validate,
    method_name,
)
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    IlluminantExperiment,
    ResamplingUnits,
    estimate_arrays,
    record_errors,
)
from everlight_experiments.illuminant.core.image_methods import (
    Keep,
    cross_validate_methods,
    learned_methods,
    left_out,
)
from everlight_experiments.illuminant.core.locus_rows import with_tested_locus
from everlight_experiments.illuminant.core.method_inputs import images_fingerprint, moments_of
from everlight_experiments.illuminant.core.networks import NetworkTraining
from everlight_experiments.illuminant.core.report import error_table, publish
from everlight_experiments.illuminant.paper import METHOD_NOTES
from everlight_experiments.illuminant.photographs.corrections import corrections_figure
from everlight_experiments.illuminant.photographs.source import (
    ImageOptions,
    load_cameras,
    suffices,
)
from everlight_experiments.illuminant.published_tables import (
    CROSS_CAMERA_PROTOCOL,
    FFCC_THUMBNAILS,
    TABLE_2_NUS,
    rows_across_cameras,
)
from everlight_experiments.report.cells import counted
from everlight_experiments.run_folder.compilation import release_programs
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import Count, Preset, check_methods

Split = Literal["folds", "cross-camera"]
PROTOCOLS: dict[Split, str] = {
    "folds": f"{FOLDS} folds of each camera; statistics within a fold, averaged over folds",
    "cross-camera": "each camera is tested by methods trained on all others",
}
FIXED = frozenset(
    Estimator(method_name(MOMENTS, depth), augmentation, ensemble).name
    for depth in (None, *OTHER_DEPTHS)
    for augmentation in IMAGE_AUGMENTATIONS
    for ensemble in (False, True)
)
"""Estimators with one augmentation; reports show the augmentation that each fold selects."""
CURVES = (Estimator("Net on moments").name, "FFCC", "APAP (PCA)", "GW", "SoG", "PCA")


@dataclass(frozen=True)
class DatasetOptions(ImageOptions):
    """Compare single-image methods on any photographs with known illuminants (table 2)."""

    preset: Preset = "small"
    """Configuration to run: demo renders images of two cameras, small trains 4,000 steps, paper
    20,000."""
    split: Split = "folds"
    """Cross-validation: three folds within each camera, or each camera held out in turn."""
    tested: tuple[str, ...] = ()
    """Cameras to hold out in turn with --split cross-camera; by default all that have enough
    images. The others only train."""
    folds: Path | None = None
    """File with the fold, 1 to 3, of each image of one camera in the order of the images' names:
    text, or MATLAB with `indices`; or FC4's MATLAB file with `te_split` and `tr_split`. Without it
    the folds are random, from --seed."""
    methods: tuple[str, ...] | None = None
    """Learned methods to run, such as SIIE or 'APAP (GW)'; by default all but those at the authors'
    size. Estimators, networks and regressions on colour moments always run."""
    seeds: Count = 3
    """Number of trainings per network, each with its own initialization and validation images."""

    @property
    def is_across_cameras(self) -> bool:
        """True if each camera is tested by a training on the others."""
        return self.split == "cross-camera"

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

    def check_counts(self, counts: Mapping[str, int]) -> None:
        """Refuse too few images; across cameras a small camera may train that is not tested.

        Raises:
          DataError: a tested camera has too few, or all others together.
        """
        if self.split == "folds":
            super().check_counts(counts)
            return
        tested = self.tested_cameras(counts)
        if not tested:
            sizes = ", ".join(f"{camera} {count}" for camera, count in counts.items())
            raise DataError(
                f"no camera has the {MIN_IMAGES} images that a test needs ({sizes}); add images, "
                "or, if all images are by one camera, name it by --camera"
            )
        for camera in tested:
            others = sum(counts.values()) - counts[camera]
            if not suffices(counts[camera]):
                raise DataError(
                    f"{camera} has {counted(counts[camera], 'image')}; at least {MIN_IMAGES} are "
                    "needed to test it. Leave it out of --tested; then it only trains"
                )
            if not suffices(others):
                raise DataError(
                    f"all cameras but {camera} have {counted(others, 'image')}; at least "
                    f"{MIN_IMAGES} are needed to train. Add images"
                )

    def tested_cameras(self, counts: Mapping[str, int]) -> list[str]:
        """Return the cameras to hold out in turn, by the number of each camera's images."""
        return list(self.tested or (camera for camera in counts if suffices(counts[camera])))


def run_dataset(options: DatasetOptions) -> Path:
    """Run the comparison and return the report's path."""
    folder = RunFolder("illuminant", "dataset", options)
    return publish(folder, compare_photographs(folder, options, DATASET[options.preset]))


def compare_photographs(
    folder: RunFolder, options: DatasetOptions, training: TrainingSettings
) -> IlluminantExperiment:
    """Compare all methods on the images that the options name, and save their errors."""
    loaded = load_cameras(options)
    cameras = loaded.cameras
    known = read_calibrations(options.matrices, list(cameras))
    sets = {
        camera: data._replace(calibrations=known)
        for camera, data in split_cameras(cameras, options).items()
    }
    for data in sets.values():
        check_methods(options.methods, learned_methods(data))
    seeds = range(options.seed, options.seed + options.seeds)
    networks = NetworkTraining(training, seeds, folder.checkpoints)
    comparisons = compare_cameras(folder, sets, options, networks)
    folder.save_results(**record_errors(folder, comparisons), **estimate_arrays(comparisons))
    shown = {camera: reported(compared) for camera, compared in comparisons.items()}
    first, *others = shown
    together = pooled(shown, options.split) if others else shown[first]
    examples = sets[first]
    if examples.groups is not None:
        examples = examples._replace(folds=[np.unique(np.concatenate(examples.folds))])
    return IlluminantExperiment(
        title=f"Illuminant estimation from one image ({options.split})",
        question="Which single-image method has the lowest mean angular error?",
        data=loaded.note,
        comparisons={options.split: together._replace(title=options.split)},
        protocol={
            "Cameras": ", ".join(sets),
            "Protocol": protocol_words(options),
            **training_only(cameras, sets),
            **folds_row(options),
        },
        selection_rule=f"{HELD_OUT} of the training images",
        seeds=f"{options.seeds} per network, from {options.seed}",
        illuminants={
            " + ".join(cameras): {camera: images.illuminants for camera, images in cameras.items()}
        },
        training=training,
        curves=CURVES,
        notes=(*METHOD_NOTES, *omission_notes(sets, shown)),
        tables=[error_table(c) for c in ([together] if others else []) + list(shown.values())],
        figures=[corrections_figure(folder.path, examples, shown[first].estimates)],
    )


def split_cameras(
    cameras: Mapping[str, CameraImages], options: DatasetOptions
) -> dict[str, IlluminantImages]:
    """Return each camera's images in folds, or all cameras' images with one camera as the test."""
    if options.split == "folds":
        return split_in_folds(cameras, options.seed, options.folds)
    sets = split_across(cameras)
    counts = {camera: len(images.names) for camera, images in cameras.items()}
    return {camera: sets[camera] for camera in options.tested_cameras(counts)}


def protocol_words(options: DatasetOptions) -> str:
    """Return the protocol of a report."""
    if options.groups is None and not options.are_scenes_found:
        return PROTOCOLS[options.split]
    if options.split == "folds":
        return (
            f"{FOLDS} folds of whole groups of each camera; selection on images drawn singly from "
            "the other folds; statistics over all images"
        )
    return f"{PROTOCOLS[options.split]}; intervals over groups"


def folds_row(options: DatasetOptions) -> dict[str, str]:
    """Return the row of a report on the folds, empty across cameras, where no seed draws any."""
    if options.split == "cross-camera":
        return {}
    return {"Folds": str(options.folds or f"drawn by seed {options.seed}")}


def training_only(
    cameras: Mapping[str, CameraImages], sets: Mapping[str, IlluminantImages]
) -> dict[str, str]:
    """Return the row of a report on cameras that are not tested, empty without any."""
    small = [
        f"{camera} ({counted(len(images.names), 'image')})"
        for camera, images in cameras.items()
        if camera not in sets
    ]
    return {"Only in training": ", ".join(small)} if small else {}


def compare_cameras(
    folder: RunFolder,
    sets: Mapping[str, IlluminantImages],
    options: DatasetOptions,
    training: NetworkTraining,
) -> dict[str, Comparison]:
    """Compare all methods on every camera's images; finished cameras and methods are read back."""
    comparisons = {}
    for camera, data in progress("cameras", unit="camera", values=sets.items()):
        # Stored runs of one camera have the checksum of no names.
        several = data.taken_by if len(data.camera_names) > 1 else ()
        identity = asdict(training.settings) | images_fingerprint(data, data.folds)
        identity |= {
            "seeds": len(training.seeds),
            "seed": training.seeds[0],
            "camera": data.camera,
            "taken_by": checksums_of(np.array(several, dtype=np.str_)),
            "left_out": sorted(left_out(data)),
        }
        if data.groups is not None:
            identity["groups"] = checksums_of(data.groups)
        keep = partial(folder.computed, fingerprint=identity)
        compute = partial(compare_images, data, training.below(camera), keep, options.methods)
        caption, published = f"{data.note}.", published_rows(camera, options.split)
        if options.split == "cross-camera" and published:
            caption += f" {CROSS_CAMERA_PROTOCOL}"
        compared = Comparison(
            with_tested_locus(keep(camera, compute=compute), data, FIXED),
            data.illuminants[np.stack(data.folds)],
            camera,
            caption,
            published=published,
            names=np.array(data.names)[np.stack(data.folds)],
        )
        if data.groups is not None:
            compared = compared.by_groups(data.folds, data.groups)
        comparisons[camera] = compared
        # Every camera's numbers of images have programs of their own.
        release_programs()
    return comparisons


def compare_images(
    data: IlluminantImages,
    training: NetworkTraining,
    keep: Keep | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
    """Return the estimates of all methods, and of networks and regressions on colour moments."""
    inputs = ImageInputs({MOMENTS: moments_of(data)}, data.illuminants, np.stack(data.folds))
    outcome = cross_validate(inputs, _augmentations(data), "held-out", training)
    return cross_validate_methods(data, keep, names) | outcome.illuminants()


def _augmentations(data: IlluminantImages) -> Mapping[str, Augment]:
    """Return the augmentations, with equally many samples where folds differ in size."""
    if all(len(np.unique(fold)) == len(fold) for fold in data.folds):
        return IMAGE_AUGMENTATIONS
    count = max(SAMPLES, len(data.images))
    return {name: resampled(augment, count) for name, augment in IMAGE_AUGMENTATIONS.items()}


def published_rows(camera: str, split: Split) -> dict[str, tuple[float, ...]]:
    """Return published statistics of one camera's images; FFCC's in folds are of its authors."""
    if split == "cross-camera":
        return rows_across_cameras({camera})
    rows = dict(TABLE_2_NUS) if camera == MAIN else {}
    if camera in FFCC_THUMBNAILS:
        rows[TUNED_HERE] = (FFCC_THUMBNAILS[camera],)
    return rows


def reported(compared: Comparison) -> Comparison:
    """Return the comparison without methods of a fixed augmentation."""
    estimates = {
        name: estimate for name, estimate in compared.estimates.items() if name not in FIXED
    }
    return compared._replace(estimates=estimates)


def omission_notes(
    sets: Mapping[str, IlluminantImages], comparisons: Mapping[str, Comparison]
) -> list[str]:
    """Return a sentence for each method without a row, with the reason and the cameras."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for camera, data in sets.items():
        for name, reason in left_out(data).items():
            if name not in comparisons[camera].estimates:
                reasons.setdefault((name, reason), []).append(camera)
    return [
        f"{name} has no row for {', '.join(cameras)}: {reason}."
        for (name, reason), cameras in reasons.items()
    ]


def pooled(comparisons: Mapping[str, Comparison], split: Split) -> Comparison:
    """Return all cameras' images in one fold, with the methods that every camera has.

    Published numbers across cameras stand next to all cameras of a data set.
    """
    cameras = list(comparisons.values())

    def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
        flat = [part.reshape(*part.shape[:-3], 1, -1, 3) for part in parts]
        return np.concatenate(flat, axis=-2)

    estimates = {
        name: joined([camera.estimates[name] for camera in cameras])
        for name in cameras[0].estimates
        if all(name in camera.estimates for camera in cameras)
    }
    caption = f"All {len(cameras)} cameras' images together."
    published = rows_across_cameras(comparisons) if split == "cross-camera" else {}
    if published:
        caption += f" {CROSS_CAMERA_PROTOCOL}"
    truth = joined([camera.truth for camera in cameras])
    units = None
    if all(camera.units is not None for camera in cameras):
        groups = np.concatenate([camera.units.of_images.ravel() for camera in cameras])
        units = ResamplingUnits("groups", groups[None])
    return Comparison(estimates, truth, caption=caption, published=published, units=units)
