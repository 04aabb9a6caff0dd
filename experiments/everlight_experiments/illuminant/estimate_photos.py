"""The illuminants of single photos by a kept single-image model."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.illuminant_method import ADDITIONAL_IMAGES
from everlight.color.thumbnails import below_saturation
from everlight.illuminant.illuminant_interval import COVERAGE
from everlight.illuminant.image_model import DescribedImage, ImageModel, UnsuitableImageError
from everlight.illuminant.pair_estimate import describe_score, reasons_to_distrust
from everlight.illuminant.pair_model import Estimate
from everlight_data.color.raw_files.calibrations import other_camera, photo_calibration
from everlight_data.color.raw_files.corrections import (
    photo_row,
    write_correction,
    write_illuminants,
)
from everlight_data.color.raw_files.photos import is_picture, read_photo
from everlight_data.color.raw_files.raw import RawImage, black_text, camera_name
from everlight_data.errors import DataError, MissingPackageError
from everlight_data.progress import progress
from everlight_data.writing import make_folder
from everlight_experiments.illuminant.estimate_settings import EstimateSettings

Others = Mapping[Path, Sequence[DescribedImage]]
"""Additional images by the camera of each photo."""


class PhotoEstimate(NamedTuple):
    """The estimate of a photo, and the reasons to distrust it."""

    path: Path
    estimate: Estimate
    warnings: tuple[str, ...]


def estimate_photos(settings: EstimateSettings, model: ImageModel) -> list[PhotoEstimate]:
    """Estimate, print and write; photos without an estimate are reported at the end.

    Raises:
      DataError: a file is missing, damaged or unusable, or too far from the training images.
    """
    photos = settings.photos()
    if settings.matrices is not None and not model.needs_calibration:
        raise DataError(
            f"--matrices is for CCMNet trained on several cameras, and {settings.model} is "
            f"{model.name} for {' + '.join(model.cameras) or 'any camera'}"
        )
    one = len(photos) == 1
    others = _additional_images(photos, model, settings) if model.needs_others else {}
    results, rows, failures = [], [], []
    bar = photos if one else progress("photos", unit="photo", values=photos)
    try:
        for path in bar:
            try:
                photo = _read(path, settings)
                calibration = None
                if model.needs_calibration:
                    calibration = photo_calibration(photo, settings.matrices)
                result = _estimate_photo(photo, model, others.get(path, ()), calibration)
                written = _write(photo, result, settings)
            except MissingPackageError:
                raise
            except DataError as error:
                failures.append(error)
                if not one:
                    tqdm.write(f"NO ESTIMATE: {error}", file=sys.stderr)
                continue
            results.append(result)
            rows.append(photo_row(photo, result.estimate, result.warnings))
            _tell(photo, result, written, model, one)
    finally:
        # What was estimated before a signal is kept.
        if rows:
            write_illuminants(settings.output / "illuminants.csv", rows)
            print(f"illuminants: {settings.output / 'illuminants.csv'}")
    if failures and one:
        raise failures[0]
    if failures:
        raise DataError(
            f"{len(failures)} of {len(photos)} photos have no estimate, for the reasons above; the "
            f"first: {failures[0]}"
        )
    return results


def describe_estimate(estimate: Estimate, validated: str = "pairs") -> str:
    """Return an estimate and its interval in words, for validated pairs or images, or neither."""
    red, green, blue = estimate.illuminant
    ratios = f"r {red:.4f}  g {green:.4f}  b {blue:.4f}  (r/g {red:.4f}, b/g {blue:.4f})"
    if not validated:
        return f"{ratios}; no interval: this method was not compared with known illuminants"
    if not np.isfinite(estimate.interval.degrees):
        return f"{ratios}; no interval, as the model was validated on too few {validated}"
    low, high = estimate.interval.low, estimate.interval.high
    return (
        f"{ratios}; {COVERAGE:.0%} interval: r/g {low[0]:.4f} to {high[0]:.4f}, b/g {low[1]:.4f} "
        f"to {high[1]:.4f}, its farthest corner {estimate.interval.degrees:.1f} degrees from it; "
        "it assumes one illuminant, and photographs like those of the training"
    )


def _read(path: Path, settings: EstimateSettings) -> RawImage:
    return read_photo(path, settings.main_levels)


def _described(photo: RawImage, model: ImageModel) -> DescribedImage:
    """Return what the model reads of a photo.

    Raises:
      DataError: the photo is black or saturated everywhere.
    """
    usable = ~photo.saturated & np.asarray(below_saturation(jnp.asarray(photo.image)))
    try:
        return model.describe(photo.image, usable)
    except UnsuitableImageError as error:
        raise DataError(f"{photo.path}: {error}.") from error


def _additional_images(
    photos: Sequence[Path], model: ImageModel, settings: EstimateSettings
) -> Others:
    """Return other photos by the camera of each photo; a photo alone stands for itself.

    One more than needed is read of each camera, evenly spaced, so that each photo has others.
    """
    by_camera: dict[str | None, list[Path]] = {}
    for path in photos:
        camera = None if is_picture(path) else camera_name(path)
        by_camera.setdefault(camera, []).append(path)
    others = {}
    for camera, paths in by_camera.items():
        rows = np.linspace(0, len(paths) - 1, min(len(paths), ADDITIONAL_IMAGES + 1)).round()
        described: dict[Path, DescribedImage] = {}
        for path in (paths[int(row)] for row in rows):
            try:
                described[path] = _described(_read(path, settings), model)
            except DataError as error:
                print(f"not among the additional images: {error}", file=sys.stderr)
        for path in paths:
            rest = [image for place, image in described.items() if place != path]
            others[path] = (rest or list(described.values()))[:ADDITIONAL_IMAGES]
        if len(described) <= ADDITIONAL_IMAGES:
            print(
                f"WARNING: {model.name} reads {ADDITIONAL_IMAGES} other photos by the camera, and "
                f"{max(len(described) - 1, 0)} are given of {camera or 'the unnamed camera'}; give "
                "a folder of its photos",
                file=sys.stderr,
            )
    return others


def _estimate_photo(
    photo: RawImage,
    model: ImageModel,
    others: Sequence[DescribedImage],
    calibration: CameraCalibration | None,
) -> PhotoEstimate:
    described = _described(photo, model)
    try:
        estimate = model.estimate(described, others, calibration)
    except UnsuitableImageError as error:
        raise DataError(f"{photo.path}: {error}.") from error
    warnings = reasons_to_distrust(estimate, "images")
    # Statistics are of no camera. C5 and CCMNet of several cameras read what tells a new one.
    if model.fitted is not None and not (model.needs_others or model.needs_calibration):
        warnings += other_camera(photo.camera, model.cameras)
    return PhotoEstimate(photo.path, estimate, tuple(warnings))


def _write(photo: RawImage, result: PhotoEstimate, settings: EstimateSettings) -> list[Path]:
    make_folder(settings.output)
    formats = [kind for kind in settings.formats if kind != "dng" or not is_picture(photo.path)]
    stem = settings.output / photo.path.stem
    return write_correction(photo, result.estimate.illuminant, formats, stem)


def _tell(
    photo: RawImage, result: PhotoEstimate, written: Sequence[Path], model: ImageModel, one: bool
) -> None:
    validated = "images" if model.errors is not None else ""
    described = describe_estimate(result.estimate, validated)
    if one:
        trained = f"trained for {' + '.join(model.cameras)}" if validated else "without training"
        print(
            f"{photo.path}: {photo.camera or 'unnamed camera'}, black "
            f"{black_text(photo)}, white {photo.white_level}; {model.name} {trained}"
        )
        if validated:
            print(describe_score(result.estimate, validated))
        print(f"illuminant: {described}")
        for path in written:
            print(f"written: {path}")
    else:
        tqdm.write(f"{photo.path}: {described}")
    for warning in result.warnings:
        tqdm.write(f"WARNING: {photo.path}: {warning}", file=sys.stderr)
