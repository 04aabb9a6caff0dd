"""Fit one single-image method to photographs with known illuminants, and keep it for `estimate`.

    everlight illuminant train --thumbnails mine.npz --camera "My camera" --method c5 --out model
    everlight illuminant estimate photo.dng --model model

Errors and intervals are of images outside the training: of three folds for one camera; of each
camera in turn, by training on the others, for several; with `--split groups` of three folds of
whole groups of all cameras, such as contributors or sessions.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, PyTree

from everlight.color import (
    ESTIMATORS,
    IlluminantMethod,
    estimate_folds,
    methods_for,
)
from everlight.color.illuminant_method import ADDITIONAL_IMAGES
from everlight.illuminant.image_model import ImageModel, calibrate_errors
from everlight.trees import rows_of
from everlight_data.color.models.image_model_files import save_image_model
from everlight_data.color.models.model_files import refuse_other_contents
from everlight_data.color.photographs.camera_images import (
    CameraImages,
    IlluminantImages,
    split_across,
    split_by_groups,
    split_in_folds,
)
from everlight_data.color.photographs.thumbnails import LUX
from everlight_data.color.raw_files.calibrations import read_calibrations
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_experiments.illuminant.config import MIN_IMAGES
from everlight_experiments.illuminant.core.experiment import BASELINES as SHOWN_BASELINES
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    IlluminantExperiment,
    estimate_arrays,
    record_errors,
)
from everlight_experiments.illuminant.core.image_methods import full_name, spread_rows
from everlight_experiments.illuminant.core.locus_rows import CAMERA, locus_sections, with_locus
from everlight_experiments.illuminant.core.method_inputs import (
    features_of,
    images_fingerprint,
    labelled,
    moments_of,
    side_of,
)
from everlight_experiments.illuminant.core.report import fold_statistics, publish
from everlight_experiments.illuminant.paper import METHOD_NOTES
from everlight_experiments.illuminant.photographs.source import (
    ImageOptions,
    load_cameras,
    suffices,
)
from everlight_experiments.report.cells import counted
from everlight_experiments.report.writer import Section
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.terminal import aligned_rows

BASELINES = ("GW", "SoG")
"""Statistics in the report's table in addition to the method."""


@dataclass(frozen=True)
class IlluminantTrainOptions(ImageOptions):
    """Fit a single-image method to photographs with known illuminants, for `estimate`."""

    preset: Literal["demo", "small"] = "small"
    """Images to train on: demo renders images of two cameras, small reads photographs."""
    split: Literal["cross-camera", "groups"] = "cross-camera"
    """Test of a method for several cameras: each camera in turn by a training on the others, or
    three folds of whole --groups of all cameras' images. A camera or group may be small where the
    other images suffice to train. With groups, methods that read other images by the camera, or its
    calibration, are refused."""
    method: str = "FFCC"
    """Method to fit, by its name in the reports of `dataset` or that name's first word: c5, ffcc,
    siie, 'APAP (GW)'. C5 reads six other images by the camera of a photo: trained on one camera,
    the model holds six of its training images; trained on several, `estimate` takes them from the
    photos that it is given. CCMNet trained on several cameras reads the calibration matrices of the
    photo's camera, which may be another one."""
    out: Path | None = None
    """Folder of the model; a model there is replaced. Its name is the run's --tag where none is
    given. By default models/ in the run's folder."""

    @property
    def is_across_cameras(self) -> bool:
        """True if each of several cameras is tested by a training on the others."""
        return self.split == "cross-camera"

    def check_cameras(self, chosen: Sequence[str]) -> None:
        """Refuse folds of groups without groups."""
        if self.split == "groups" and self.groups is None:
            raise DataError("--split groups needs the group of each image; give --groups")

    def check_counts(self, counts: Mapping[str, int]) -> None:
        """Refuse too few images; a camera may be small where the others suffice to train."""
        total = sum(counts.values())
        if self.split == "groups":
            if not suffices(total):
                raise DataError(
                    f"all cameras together have {counted(total, 'image')}; at least {MIN_IMAGES} "
                    "are needed to train and to test. Add images."
                )
        elif len(counts) == 1:
            super().check_counts(counts)
        else:
            largest = max(counts, key=counts.__getitem__)
            if not suffices(others := total - counts[largest]):
                raise DataError(
                    f"all cameras but {largest} have {counted(others, 'image')}; at least "
                    f"{MIN_IMAGES} are needed to train for it. Add images, or name one by --cameras"
                )


def run_train(options: IlluminantTrainOptions) -> Path:
    """Train, save the model, and return the report's path."""
    if options.out is not None:
        refuse_other_contents(options.out)
        # Trainings of other models would meet in one folder.
        options = replace(options, tag=options.tag or options.out.name)
    folder = RunFolder("illuminant", "train", options)
    loaded = load_cameras(options)
    cameras = loaded.cameras
    sets = _held_out_sets(cameras, options)
    # Each set has all images of several cameras.
    data = next(iter(sets.values()))
    method = _method_for(options.method, data, options.split)
    features = method.describe(data.images, data.masks, side_of(data))
    held_out = _held_out(folder, method, features, sets)
    model = _fit_model(method, features, held_out, sets, loaded.note)
    out = options.out or folder.path / "models"
    save_image_model(out, model, len(data.images))
    baselines = {other: np.asarray(features_of(ESTIMATORS[other], data)) for other in BASELINES}
    by_row = with_locus({method.name: held_out, **baselines}, data)
    comparison = _compared(by_row, sets)
    comparisons = {"held-out": comparison}
    folder.save_results(**record_errors(folder, comparisons), **estimate_arrays(comparisons))
    command = _estimate_command(out, model, data)
    folds = f"folds by seed {options.seed}" if len(sets) == 1 else "each camera is a fold"
    experiment = _experiment(model, comparison, cameras, folds, command)
    # Every image is tested once; only groups are units, and their comparison has the images' order.
    after = locus_sections(comparison, by_row, data)
    report = publish(folder, replace(experiment, after=after))
    if data.tunings:
        print("\n".join(_printed_rows(comparison, after)))
    statistics = fold_statistics(comparison.errors()[method.name])
    print(
        f"{method.name} on images outside its training: mean error "
        f"{statistics['mean'][0]:.2f} degrees, median {statistics['median'][0]:.2f}"
    )
    print(f"model: {out}\nuse it: {command}")
    return report


def _estimate_command(out: Path, model: ImageModel, data: IlluminantImages) -> str:
    """Return the command that uses a model, with the files and numbers that it reads of a photo."""
    words = ["everlight illuminant estimate PHOTO_OR_FOLDER", "--model", shlex.quote(str(out))]
    if model.captures:
        words += ["--lux", "LUX"]
    files = {shlex.quote(str(tuning.path)) for tuning in data.tunings.values()}
    if files:
        words += ["--tuning", *(files if len(files) == 1 else ["TUNING_FILE_OF_THE_CAMERA"])]
    return " ".join(words)


def _printed_rows(comparison: Comparison, sections: Sequence[Section]) -> list[str]:
    """Return lines of every method's mean errors, in mired too where the report has them."""
    by_method = {
        row[0]: [f"{row[place]} ({row[place + 1]})" for place in (1, 3)]
        for section in sections
        for table in section.items
        for row in table.rows
    }
    columns = ["degrees", *(["mired", "degrees at 5,000 K"] if by_method else [])]
    lines = [["mean errors (95% intervals)", *columns]]
    for name, errors in comparison.errors().items():
        interval = comparison.interval_in_words(errors, " to ")
        mean = fold_statistics(errors)["mean"][0]
        lines.append([name, f"{mean:.2f} ({interval})", *by_method.get(name, ())])
    return aligned_rows(lines)


def _held_out_sets(
    cameras: Mapping[str, CameraImages], options: IlluminantTrainOptions
) -> dict[str, IlluminantImages]:
    """Return one camera's images in folds; of several, all images with each camera as the test."""
    known = read_calibrations(options.matrices, list(cameras))
    if options.split == "groups":
        sets = {" + ".join(cameras): split_by_groups(cameras, options.seed)}
    elif len(cameras) > 1:
        sets = split_across(cameras)
    else:
        sets = split_in_folds(cameras, options.seed)
    return {
        camera: data.on_canvas(options.side)._replace(calibrations=known)
        for camera, data in sets.items()
    }


def _method_for(name: str, data: IlluminantImages, split: str) -> IlluminantMethod:
    """Return the method of that name, which may be its first word.

    Raises:
      DataError: there is no such method, it cannot run on these images, or a model of it cannot be
        kept.
    """
    side = side_of(data)
    offered = methods_for(side)
    method = offered[full_name(name, list(offered))]
    if method.features is None:
        raise DataError(
            f"{method.name} reads more than a photo's pixels, and a model of it cannot be kept; "
            "give another --method"
        )
    if method.reads_capture and data.captures is not None and data.captures.sources != (LUX,):
        raise DataError(
            f"{method.name} reads {', '.join(data.captures.sources)} of these images, and "
            f"`estimate` takes {LUX} of a photo alone; give thumbnails without the others, or "
            "another --method"
        )
    several = len(data.camera_names) > 1
    if several and method.is_camera_specific:
        raise DataError(
            f"{method.name} is for one camera; name it by --cameras, or give another method"
        )
    if several and split == "groups" and (method.reads_others or method.calibrate is not None):
        raise DataError(
            f"{method.name} reads more of a camera than one image, which folds of several cameras' "
            "groups do not give; leave out --split groups, or give another method"
        )
    if reason := method.incompatibility(side):
        raise DataError(f"{method.name} cannot run: {reason}")
    return method


def _held_out(
    folder: RunFolder,
    method: IlluminantMethod,
    features: PyTree,
    sets: Mapping[str, IlluminantImages],
) -> Float[np.ndarray, "n 3"]:
    """Return every image's estimate by a training without its fold; finished folds are read."""

    def estimate(number: int, data: IlluminantImages, fold: np.ndarray) -> Float[np.ndarray, "k 3"]:
        def compute() -> dict[str, np.ndarray]:
            images = labelled(features, data)
            return {"estimates": estimate_folds(method, images, [fold], side_of(data))[0]}

        read = data if method.reads_capture else data._replace(captures=None)
        identity = images_fingerprint(read, [fold]) | {
            "method": method.name,
            "side": data.masks.shape[1],
            "cameras": _trained_cameras(data),
        }
        return folder.computed(f"held-out-{number}", identity, compute)["estimates"]

    folds = [(data, fold) for data in sets.values() for fold in _tested_rows(data)]
    estimates = np.zeros_like(folds[0][0].illuminants)
    for number, (data, fold) in enumerate(progress("held out", unit="fold", values=folds)):
        estimates[fold] = estimate(number, data, fold)
    return estimates


def _tested_rows(data: IlluminantImages) -> list[Int[np.ndarray, "_"]]:
    """Return each fold's rows once; folds of groups repeat rows."""
    return list(data.folds if data.groups is None else map(np.unique, data.folds))


def _fit_model(
    method: IlluminantMethod,
    features: PyTree,
    held_out: Float[np.ndarray, "n 3"],
    sets: Mapping[str, IlluminantImages],
    note: str,
) -> ImageModel:
    """Return the model of all images; its errors are those of the held-out estimates."""
    data = next(iter(sets.values()))
    moments = moments_of(data)
    folds = [fold for tested in sets.values() for fold in _tested_rows(tested)]
    errors = calibrate_errors(held_out, data.illuminants, moments, folds)
    fitted, others = method.fit(labelled(features, data), side_of(data)), None
    if method.reads_others and len(data.camera_names) == 1:
        others = rows_of(features, spread_rows(len(data.images), ADDITIONAL_IMAGES))
    side = data.masks.shape[1]
    cameras = tuple(_trained_cameras(data))
    captures = data.captures.sources if method.reads_capture else ()
    return ImageModel(method.name, method, fitted, others, side, errors, cameras, note, captures)


def _trained_cameras(data: IlluminantImages) -> list[str]:
    """Return the cameras of the images in their order."""
    return list(dict.fromkeys(data.taken_by))


def _compared(
    estimates: Mapping[str, Float[np.ndarray, "n 3"]], sets: Mapping[str, IlluminantImages]
) -> Comparison:
    """Return the comparison within folds, or over all images of several cameras."""
    data = next(iter(sets.values()))
    folds = np.stack(data.folds)
    kind = "folds" if data.groups is None else "folds of whole groups"
    caption = f"{len(folds)} {kind}, each by a training on the others."
    if len(sets) > 1:
        folds = np.arange(len(data.images))[None]
        caption = f"Each of {len(sets)} cameras by a training on the others."
    by_fold = {name: values[folds][None] for name, values in estimates.items()}
    names = np.array(data.names)[folds]
    compared = Comparison(by_fold, data.illuminants[folds], "held out", caption, names=names)
    return compared if data.groups is None else compared.by_groups(folds, data.groups)


def _experiment(
    model: ImageModel,
    comparison: Comparison,
    cameras: Mapping[str, CameraImages],
    folds: str,
    command: str,
) -> IlluminantExperiment:
    """Return the experiment of a training, with its folds in words and its model's command."""
    names = " + ".join(cameras)
    return IlluminantExperiment(
        title=f"Single-image illuminant estimation: {model.name} for {names}",
        question=f"How accurate is {model.name} on images outside its training?",
        data=model.trained_on,
        comparisons={"held out": comparison},
        protocol={"Cameras": ", ".join(cameras), "Protocol": comparison.caption},
        selection_rule="none: the method's settings are fixed",
        seeds=f"{folds}; trainings by a fixed key",
        illuminants={names: {camera: images.illuminants for camera, images in cameras.items()}},
        curves=(model.name, *BASELINES),
        headline=model.name,
        baselines=(CAMERA, *SHOWN_BASELINES),
        notes=METHOD_NOTES[:2],
        command=command,
    )
