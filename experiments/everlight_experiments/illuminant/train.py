"""Fit one single-image method to photographs with known illuminants, and keep it for `estimate`.

    everlight illuminant train --thumbnails mine.npz --camera "My camera" --method c5 --out model
    everlight illuminant estimate photo.dng --model model

Errors and intervals are of images outside the training: of three folds for one camera; of each
camera in turn, by training on the others, for several.
"""

from collections.abc import Mapping
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
from everlight.illuminant.image_model import ErrorCalibration, ImageModel, calibrate_errors
from everlight.trees import checksums_of, rows_of
from everlight_data.color.models.image_model_files import save_image_model
from everlight_data.color.models.model_files import refuse_other_contents
from everlight_data.color.photographs.camera_images import (
    CameraImages,
    IlluminantImages,
    split_across,
    split_within,
)
from everlight_data.color.photographs.published_folds import draw_folds
from everlight_data.color.raw_files.calibrations import calibrations_from
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import Comparison, record_errors
from everlight_experiments.illuminant.image_source import ImageSource, load_cameras
from everlight_experiments.illuminant.methods import (
    features_of,
    full_name,
    labelled,
    moments_of,
    side_of,
)
from everlight_experiments.illuminant.paper import METHOD_NOTES
from everlight_experiments.illuminant.report import compared_sections
from everlight_experiments.illuminant.tables import fold_statistics
from everlight_experiments.report.writer import write_report
from everlight_experiments.run_folder.folder import RunFolder

BESIDE = ("GW", "SoG")
"""Statistics in the report's table in addition to the method."""


@dataclass(frozen=True)
class TrainRun(ImageSource):
    """Fit a single-image method to photographs with known illuminants, for `estimate`."""

    preset: Literal["demo", "small"] = "small"
    """Images to train on: demo renders images of two cameras, small reads photographs."""
    method: str = "FFCC"
    """Method to fit, by its name in the reports of `dataset` or that name's first word: c5, ffcc,
    siie, 'APAP (GW)'. C5 reads six other images by the camera of a photo: trained on one camera,
    the model holds six of its training images; trained on several, `estimate` takes them from the
    photos that it is given. CCMNet trained on several cameras reads the calibration matrices of the
    photo's camera, which may be another one."""
    out: Path | None = None
    """Folder of the model; a model there is replaced. Its name is the run's --tag where none is
    given. By default models/ in the run's folder."""


def run_train(settings: TrainRun) -> Path:
    """Train, save the model, and return the report's path."""
    if settings.out is not None:
        refuse_other_contents(settings.out)
        # Trainings of other models would meet in one folder.
        settings = replace(settings, tag=settings.tag or settings.out.name)
    folder = RunFolder("illuminant", "train", settings)
    cameras, note = load_cameras(settings)
    known = calibrations_from(settings.matrices, list(cameras))
    sets = {
        camera: on_canvas(data, settings.side)._replace(calibrations=known)
        for camera, data in _split(cameras, settings.seed).items()
    }
    data = next(iter(sets.values()))
    method = _method_for(settings.method, data, sets)
    moments = moments_of(data)
    _refuse_empty(cameras, data, moments)
    features = method.describe(data.images, data.masks, side_of(data))
    held_out = _held_out(folder, method, features, sets, settings.side)
    folds = [fold for tested in sets.values() for fold in tested.folds]
    estimates = np.zeros_like(data.illuminants)
    estimates[np.concatenate(folds)] = held_out
    errors = calibrate_errors(estimates, data.illuminants, moments, folds)
    model = _fit(method, features, data, errors, tuple(sets), settings.side, note)
    out = settings.out or folder.path / "models"
    save_image_model(out, model, len(data.images))

    beside = {other: np.asarray(features_of(ESTIMATORS[other], data)) for other in BESIDE}
    comparison = _compared({method.name: estimates, **beside}, data, sets)
    folder.save_results(**record_errors(folder, {"held-out": comparison}))
    statistics = fold_statistics(comparison.errors()[method.name])
    first, sections = compared_sections(
        folder.path,
        f"How accurate is {method.name} on images outside its training?",
        note,
        {"held out": comparison},
        (method.name, *BESIDE),
        {" + ".join(cameras): {camera: images.illuminants for camera, images in cameras.items()}},
        METHOD_NOTES[:2],
        headline=method.name,
    )
    command = f"everlight illuminant estimate PHOTO_OR_FOLDER --model {out}"
    summary = [
        ("Paper", CITATION),
        ("Data", note),
        ("Cameras", ", ".join(cameras)),
        ("Protocol", comparison.caption),
        ("Selection rule", "none: the method's settings are fixed"),
        ("Seeds", f"folds by seed {settings.seed}; trainings by a fixed key"),
        ("Command to use it, if its accuracy below suffices", command),
        ("Duration", folder.duration()),
    ]
    title = f"Single-image illuminant estimation: {method.name} for {' + '.join(cameras)}"
    report = write_report(folder.path, title, summary, sections, first)
    print(
        f"{method.name} on images outside its training: mean error "
        f"{statistics['mean'][0]:.2f} degrees, median {statistics['median'][0]:.2f}"
    )
    print(f"model: {out}\nuse it: {command}")
    return report


def on_canvas(data: IlluminantImages, side: int) -> IlluminantImages:
    """Return the images at the upper left of squares, as a kept model reads photos."""
    height, width = data.masks.shape[1:]
    rest = (0, 0), (0, side - height), (0, side - width)
    return data._replace(
        images=np.pad(data.images, (*rest, (0, 0))), masks=np.pad(data.masks, rest)
    )


def _split(cameras: Mapping[str, CameraImages], seed: int) -> dict[str, IlluminantImages]:
    """Return one camera's images in folds, or those of several with each as the test in turn."""
    if len(cameras) > 1:
        return split_across(cameras)
    ((camera, data),) = cameras.items()
    return {camera: split_within(camera, data, draw_folds(len(data.names), seed))}


def _method_for(
    name: str, data: IlluminantImages, sets: Mapping[str, IlluminantImages]
) -> IlluminantMethod:
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
    if len(sets) > 1 and method.for_one_camera:
        raise DataError(
            f"{method.name} is for one camera; name it by --cameras, or give another method"
        )
    if reason := method.incompatibility(side):
        raise DataError(f"{method.name} cannot run: {reason}")
    return method


def _refuse_empty(
    cameras: Mapping[str, CameraImages], data: IlluminantImages, moments: Float[np.ndarray, "n 9"]
) -> None:
    """Refuse images without usable pixels, whose moments are not finite."""
    empty = np.flatnonzero(~np.isfinite(moments).all(axis=1))
    if not len(empty):
        return
    first, light = data.images[empty[0]], data.illuminants[empty[0]]
    # Several images may have one illuminant; images that are equal too are as empty.
    names = [
        f"{camera} {name}"
        for camera, images in cameras.items()
        for name, image, illuminant in zip(
            images.names, images.images, images.illuminants, strict=True
        )
        if (illuminant == light).all()
        and (image == first[: image.shape[0], : image.shape[1]]).all()
    ]
    raise DataError(
        f"{len(empty)} images have no pixel that is neither masked nor saturated, the first: "
        f"{names[0]}; leave them out"
    )


def _held_out(
    folder: RunFolder,
    method: IlluminantMethod,
    features: PyTree,
    sets: Mapping[str, IlluminantImages],
    side: int,
) -> Float[np.ndarray, "n 3"]:
    """Return the estimates of all folds in turn, each by a training without it."""
    estimates = []
    parts = [(data, fold) for data in sets.values() for fold in data.folds]
    for number, (data, fold) in enumerate(progress("held out", unit="fold", values=parts)):

        def compute(data=data, fold=fold) -> dict[str, np.ndarray]:
            images = labelled(features, data)
            return {"estimates": estimate_folds(method, images, [fold], side_of(data))[0]}

        identity = {
            "method": method.name,
            "side": side,
            "data": checksums_of(data.images, data.masks, data.illuminants, fold),
            "cameras": list(sets),
        }
        if data.calibrations:
            identity["matrices"] = checksums_of(*(m.matrices for m in data.calibrations.values()))
        estimates.append(folder.computed(f"held-out-{number}", identity, compute)["estimates"])
    return np.concatenate(estimates)


def _fit(
    method: IlluminantMethod,
    features: PyTree,
    data: IlluminantImages,
    errors: ErrorCalibration,
    cameras: tuple[str, ...],
    side: int,
    note: str,
) -> ImageModel:
    """Return the model fitted to all images."""
    fitted = method.fit(labelled(features, data), side_of(data, cameras[0]))
    others = None
    if method.reads_others and len(cameras) == 1:
        others = rows_of(features, spread_rows(len(data.images), ADDITIONAL_IMAGES))
    return ImageModel(method.name, method, fitted, others, side, errors, cameras, note)


def spread_rows(count: int, limit: int) -> Int[np.ndarray, "k"]:
    """Return at most `limit` rows, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))


def _compared(
    estimates: Mapping[str, Float[np.ndarray, "n 3"]],
    data: IlluminantImages,
    sets: Mapping[str, IlluminantImages],
) -> Comparison:
    """Return the comparison within folds of one camera, or over all images of several."""
    if len(sets) > 1:
        folds = np.arange(len(data.images))[None]
        caption = f"Each of {len(sets)} cameras by a training on the others"
    else:
        folds = np.stack(data.folds)
        caption = f"{len(folds)} folds, each by a training on the others"
    return Comparison(
        {name: values[folds][None] for name, values in estimates.items()},
        data.illuminants[folds],
        "held out",
        caption + ".",
    )
