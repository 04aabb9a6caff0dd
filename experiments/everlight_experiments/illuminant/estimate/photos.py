"""The illuminants of single photos by a kept single-image model."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color import lux_feature
from everlight.color.illuminant_method import ADDITIONAL_IMAGES
from everlight.illuminant.image_model import DescribedImage, ImageModel, UnsuitableImageError
from everlight.illuminant.pair_estimate import (
    describe_estimate,
    describe_score,
    reasons_to_distrust,
)
from everlight.metrics.angular import angular_error
from everlight_data.color.photographs.lux_lists import lux_of_photos
from everlight_data.color.profiles.sidecars import write_sidecars
from everlight_data.color.raw_files.calibrations import other_camera, photo_calibration
from everlight_data.color.raw_files.corrections import photo_row, write_correction
from everlight_data.color.raw_files.photo_whites import (
    PhotoWhite,
    describe_white,
    photo_white,
)
from everlight_data.color.raw_files.photos import (
    is_picture,
    left_out_pictures,
    read_photo,
    stated_warnings,
    usable_pixels,
)
from everlight_data.color.raw_files.raw import RawImage, black_text, camera_name
from everlight_data.color.tuning_files.libcamera import read_tuning
from everlight_data.color.tuning_files.module_names import (
    are_other_modules,
    module_of,
    refuse_other_module,
)
from everlight_data.errors import DataError
from everlight_data.sets.camera_tuning import TemperatureCurve
from everlight_data.writing import make_folder
from everlight_experiments.illuminant.core.image_methods import spread_rows
from everlight_experiments.illuminant.core.locus_rows import CurvePoint, nearest_to
from everlight_experiments.illuminant.estimate.options import (
    LUX_MODELS,
    PHOTOS,
    READERS,
    EstimateOptions,
    FileEstimate,
    PhotoEstimate,
)
from everlight_experiments.run_folder.options import refuse_unread

Others = Mapping[Path, Sequence[DescribedImage]]
"""Additional images by the camera of each photo."""


MUCH_SATURATED = 0.2
"""Share of saturated pixels from which an estimate has a warning."""
EQUAL_CHANNELS = 1.0
"""Angle in degrees from (1, 1, 1) below which an estimate has a warning."""


class WrittenFiles(NamedTuple):
    """Files of a photo, and warnings about its sidecars."""

    paths: list[Path]
    warnings: list[str]


def deferred_photo_estimates(
    options: EstimateOptions, model: ImageModel
) -> list[Callable[[], FileEstimate]]:
    """Return a function for each photo, which reads, estimates and corrects it.

    Raises:
      DataError: there are no photos, or an option is for other models.
    """
    cameras = " + ".join(model.cameras) or "any camera"
    variants = {PHOTOS, LUX_MODELS} if "lux" in model.captures else {PHOTOS}
    refuse_unread(options, READERS, variants, f"{options.model} is {model.name} for {cameras}")
    photos = options.photos()
    for folder in (path for path in options.files if path.is_dir()):
        if names := left_out_pictures(folder):
            print(
                f"left out in {folder}: {', '.join(names[:3])}{', ...' if names[3:] else ''}, "
                "whose colours are encoded for display",
                file=sys.stderr,
            )
    captures = _captures(photos, model, options)
    others = _additional_images(photos, model, options) if model.needs_others else {}
    curve = None if options.tuning is None else _read_curve(options.tuning, photos, model)

    def estimate(path: Path) -> FileEstimate:
        photo = _read(path, options)
        result = estimate_photo(
            photo, model, others.get(path, ()), options.matrices, captures.get(path)
        )
        used = result.estimate.illuminant
        point = None if curve is None else nearest_to(curve, used)
        if options.on_curve and point is not None:
            used = np.array([point.red, 1, point.blue])
        white = photo_white(photo, used, options.matrices)
        written = write_photo(photo, used, white, options)
        result = result._replace(warnings=(*result.warnings, *written.warnings))
        row = photo_row(photo, result.estimate, white, result.warnings)
        lines = _lines(photo, result, model, len(photos) == 1)
        if point is not None:
            result = result._replace(warnings=(*result.warnings, *point.warnings()))
            row, lines = row | point.cells(), _with_point(lines, point, options.on_curve)
        if len(photos) == 1:
            what = "white point of the CT curve's point" if options.on_curve else "white point"
            lines += [] if white is None else [f"{what}: {describe_white(white)}"]
            lines += [f"written: {path}" for path in written.paths]
        return FileEstimate(path, result, row, lines)

    return [partial(estimate, path) for path in photos]


def write_photo(
    photo: RawImage,
    illuminant: Float[np.ndarray, "3"],
    white: PhotoWhite | None,
    options: EstimateOptions,
) -> WrittenFiles:
    """Write a photo's corrected files and sidecars.

    A PNG or TIFF has no sidecars and no DNG; it gets a warning for each sidecar, and for a DNG
    that is the only format.

    Args:
      photo: photo, or a pair's main one.
      illuminant: its illuminant.
      white: the illuminant's white point, if it is known.
      options: formats, sidecars and folders.

    Raises:
      DataError: a file cannot be written.
    """
    is_raw = not is_picture(photo.path)
    sidecars = options.sidecars if is_raw else ()
    formats = [kind for kind in options.formats if kind != "dng" or is_raw]
    make_folder(options.output)
    written = write_sidecars(photo, illuminant, white, sidecars, options.sidecar_folder)
    stem = options.output / photo.path.stem
    corrected = write_correction(photo, illuminant, white, formats, stem)
    missing = [] if is_raw else options.sidecars
    reasons = [f"no sidecar for {kind}: only raw files have one" for kind in missing]
    if options.formats and not formats:
        reasons.append("no dng: only raw files have one")
    return WrittenFiles([*corrected, *written.paths], [*written.warnings, *reasons])


def estimate_photo(
    photo: RawImage,
    model: ImageModel,
    others: Sequence[DescribedImage] = (),
    matrices: Path | None = None,
    capture: Float[np.ndarray, "f"] | None = None,
) -> PhotoEstimate:
    """Return the estimate of a photo, with what else the model reads: other images, matrices, lux.

    Raises:
      DataError: the photo is black, saturated everywhere or too far from the training images, or
        its camera's calibration is unknown.
    """
    calibration = photo_calibration(photo, matrices) if model.needs_calibration else None
    try:
        estimate = model.estimate(_described(photo, model, capture), others, calibration)
    except UnsuitableImageError as error:
        raise DataError(f"{photo.path}: {error}.") from error
    saturated = saturated_share(photo)
    warnings = [
        *reasons_to_distrust(estimate, "images"),
        *file_warnings(photo, saturated),
        *white_warnings(estimate.illuminant),
    ]
    # Statistics are of no camera. C5 and CCMNet of several cameras read what identifies a new one.
    if model.fitted is not None and not (model.needs_others or model.needs_calibration):
        warnings += other_camera(photo.camera, model.cameras)
    return PhotoEstimate(photo.path, estimate, tuple(warnings), saturated)


def saturated_share(photo: RawImage) -> float:
    """Return the share of a photo's pixels that estimates leave out as saturated."""
    return float(1 - np.mean(usable_pixels(photo)))


def file_warnings(photo: RawImage, saturated: float) -> tuple[str, ...]:
    """Return warnings about a photo that may not have sensor values, or is mostly saturated.

    Args:
      photo: photo.
      saturated: its `saturated_share`.
    """
    warnings = [*stated_warnings(photo)]
    if saturated > MUCH_SATURATED:
        warnings.append(
            f"{saturated:.0%} of the pixels are left out as saturated, and the estimate is that of "
            "the rest; expose less, or check the white level"
        )
    return tuple(warnings)


def white_warnings(illuminant: Float[np.ndarray, "3"]) -> tuple[str, ...]:
    """Return a warning if an illuminant has equal channels, which a sensor hardly sees as one."""
    if angular_error(jnp.asarray(illuminant), jnp.ones(3)) >= EQUAL_CHANNELS:
        return ()
    return (
        "the estimate is about (1, 1, 1), as of clipped pixels below the stated white level, or of "
        "a photo that is white-balanced already",
    )


def _with_point(lines: Sequence[str], point: CurvePoint, used: bool) -> list[str]:
    """Return the printed lines with those of the CT curve, on the same line if there is one."""
    added = point.in_words() + ("; the photo is corrected by it" if used else "")
    return [f"{lines[0]}; {added}"] if len(lines) == 1 else [*lines, added]


def _read_curve(tuning: Path, photos: Sequence[Path], model: ImageModel) -> TemperatureCurve:
    """Return the CT curve of a tuning file, and print which one it is.

    Raises:
      DataError: the file has none, or is named after another camera than a photo, or than the only
        camera of a model whose photos name none.
    """
    curve, is_known = read_tuning(tuning).needed_curve(), True
    for path in photos:
        named = None if is_picture(path) else camera_name(path)
        camera, what = named or "", f"the camera of {path}"
        if module_of(camera) is None and len(model.cameras) == 1:
            camera, what = model.cameras[0], "the camera of the model"
        refuse_other_module(tuning, camera, what)
        is_known &= are_other_modules(tuning.stem, camera) is not None
    unknown = "" if is_known else "; no name tells whether the photos are by its camera"
    print(f"CT curve of {tuning}; {model.name} {_trained_in_words(model)}{unknown}")
    return curve


def _read(path: Path, options: EstimateOptions) -> RawImage:
    return read_photo(path, options.main_levels)


def _captures(
    photos: Sequence[Path], model: ImageModel, options: EstimateOptions
) -> dict[Path, Float[np.ndarray, "f"]]:
    """Return the vector of each photo's capture, for a model that reads it.

    Raises:
      DataError: the model reads lux, and none is given.
    """
    if not model.captures:
        return {}
    if options.lux is None:
        raise DataError(f"{model.name} of {options.model} reads the scene's brightness; give --lux")
    lux = lux_of_photos(options.lux, photos)
    return {photo: np.asarray(lux_feature(jnp.asarray(value))) for photo, value in lux.items()}


def _described(
    photo: RawImage, model: ImageModel, capture: Float[np.ndarray, "f"] | None = None
) -> DescribedImage:
    """Return what the model reads of a photo.

    Raises:
      DataError: the photo is black or saturated everywhere.
    """
    try:
        return model.describe(photo.image, usable_pixels(photo), capture)
    except UnsuitableImageError as error:
        raise DataError(f"{photo.path}: {error}.") from error


def _additional_images(
    photos: Sequence[Path], model: ImageModel, options: EstimateOptions
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
        described: dict[Path, DescribedImage] = {}
        for path in (paths[row] for row in spread_rows(len(paths), ADDITIONAL_IMAGES + 1)):
            try:
                described[path] = _described(_read(path, options), model)
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


def _lines(photo: RawImage, result: PhotoEstimate, model: ImageModel, single: bool) -> list[str]:
    """Return what is printed of a photo, one line if it is one of several."""
    validated = "images" if model.errors is not None else ""
    described = describe_estimate(result.estimate, validated)
    if not single:
        return [f"{photo.path}: {described}"]
    return [
        f"{photo.path}: {photo.camera or 'unnamed camera'}, black {black_text(photo)}, white "
        f"{photo.white_level}, {result.saturated:.1%} of pixels saturated; {model.name} "
        f"{_trained_in_words(model)}",
        *([describe_score(result.estimate, validated)] if validated else []),
        f"illuminant: {described}",
    ]


def _trained_in_words(model: ImageModel) -> str:
    return f"trained for {' + '.join(model.cameras)}" if model.errors else "without training"
