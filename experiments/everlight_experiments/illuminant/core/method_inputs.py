"""Inputs of illuminant methods from a set of images: features, labels and side information."""

from collections.abc import Callable, Iterable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from everlight.color import LabelledImages, SideInformation, map_images, pixel_moments
from everlight.color.camera_calibration import CameraCalibration
from everlight.trees import checksums_of
from everlight_data.color.photographs.camera_images import CameraImages, IlluminantImages
from everlight_data.color.raw_files.calibrations import camera_calibrations, stack_calibrations
from everlight_data.errors import MissingDataError
from everlight_data.pretrained.trunk_views import missing_trunk, trunk_views


def side_of(data: IlluminantImages) -> SideInformation:
    """Return side information on the images, with the frozen network of FC4-style pooling.

    Without given calibrations those of `camera_matrices/cameras.xml` below EVERLIGHT_DATA count,
    where it has all cameras.
    """
    names, missing = data.camera_names, ""
    if data.calibrations:
        calibrations = stack_calibrations([data.calibrations[name] for name in names])
    else:
        try:
            calibrations = camera_calibrations(names)
        except MissingDataError as error:
            calibrations, missing = None, str(error)
    captures = None if data.captures is None else data.captures.values
    return SideInformation(
        names, data.camera, calibrations, missing, captures, trunk_views, missing_trunk
    )


def labelled(features: PyTree, data: IlluminantImages) -> LabelledImages:
    """Return all images of a set with a method's features of them."""
    names = data.camera_names
    numbers = np.array([names.index(camera) for camera in data.taken_by])
    return LabelledImages(features, jnp.asarray(data.illuminants), jnp.asarray(numbers))


def images_fingerprint(
    data: IlluminantImages, folds: Iterable[Int[np.ndarray, "_"]]
) -> dict[str, tuple[int, ...]]:
    """Return checksums of everything that methods learn from images, for a run's fingerprint.

    The folds are those that the run tests, of `data` or of a part of it. Captures and given
    calibrations have no entry where there are none.
    """
    fingerprint = {"data": checksums_of(data.images, data.masks, data.illuminants, *folds)}
    if data.captures is not None:
        fingerprint["captures"] = checksums_of(data.captures.values)
    if data.calibrations:
        fingerprint["matrices"] = checksums_of(
            *(
                values
                for calibration in data.calibrations.values()
                for values in (calibration.matrices, *_read_temperatures(calibration))
            )
        )
    return fingerprint


def _read_temperatures(calibration: CameraCalibration) -> list[Float[Array, "2"]]:
    """Return the temperatures of two matrices; that of a single one is not read."""
    return [calibration.temperatures] if len(calibration.matrices) > 1 else []


def features_of(features: Callable[..., PyTree], data: IlluminantImages | CameraImages) -> PyTree:
    """Return the features of every image by a function of one image and its mask."""
    return map_images(features, jnp.asarray(data.images), jnp.asarray(data.masks))


def moments_of(data: IlluminantImages | CameraImages) -> Float[np.ndarray, "n 9"]:
    """Return nine colour moments of each image's unmasked pixels."""
    return np.asarray(features_of(pixel_moments, data))
