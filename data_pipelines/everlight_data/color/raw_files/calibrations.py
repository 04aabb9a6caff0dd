"""Calibrations of cameras: from a DNG, a camera profile, any photo, or the list of matrices."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.learned.parts.camera_mapping import WHITE
from everlight_data.color.camera_matrices import (
    alias_in_words,
    find_matrix,
    is_alias,
    is_listed,
    read_camera_matrices,
    stored_matrices,
    unknown_camera,
)
from everlight_data.color.photographs.camera_names import UNNAMED, is_same_camera, plain_name
from everlight_data.color.raw_files.camera_profile import read_profile
from everlight_data.color.raw_files.dng_colors import (
    D65,
    STANDARD_A,
    read_dng_colors,
    states_color_matrix,
    two_temperatures,
)
from everlight_data.color.raw_files.dng_tags import is_profile, is_tiff, raw_directories
from everlight_data.color.raw_files.raw import MAX_BYTES, RawImage, camera_name, camera_names
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import check_readable, refusing


class DngCalibration(NamedTuple):
    """Calibration of a DNG or of a camera profile, under one illuminant or two."""

    calibration: CameraCalibration
    """Matrices from XYZ under the illuminant to camera colours, by temperature.

    A single one has the temperature of its illuminant, NaN where that is unknown, and serves all
    temperatures: the DNG specification 1.7, chapter 6, interpolates between two alone.

    ColorMatrix1 and 2 with AnalogBalance, and with CameraCalibration1 and 2 where the profile's
    signature is theirs.
    """
    forward: Float[np.ndarray, "k 3 3"] | None = None
    """Matrices from the reference camera's white-balanced colours to XYZ under D50.

    ForwardMatrix1 and 2 in the same order; None where the file has none, or one without an inverse.
    """
    individual: Float[np.ndarray, "k 3 3"] | None = None
    """Matrices from the reference camera's colours to those of this camera, in the same order.

    AnalogBalance with CameraCalibration1 and 2, for colours by the forward matrices; None without.
    """


def other_camera(camera: str | None, trained: Sequence[str], what: str = "") -> list[str]:
    """Return the warning for a photo by a camera on which a model was not trained, if it is one.

    Aliases count where `camera_matrices/cameras.xml` below EVERLIGHT_DATA lists them.

    Args:
      camera: camera of the photo; None, where it is unknown, gives no warning.
      trained: cameras of the training.
      what: photo in words, with which the warning begins.

    Raises:
      DataError: cameras.xml is damaged.
    """
    known = any(name == UNNAMED or is_same_camera(camera or "", name) for name in trained)
    if not camera or known or any(is_alias(camera, name) for name in trained):
        return []
    return [
        f"{what}taken by {camera}, and the model was trained for {' or '.join(trained)}: across "
        "cameras errors are several times as large as the interval states. If these are "
        "names of one camera, the interval holds."
    ]


def single_matrix(matrix: Float[np.ndarray, "3 3"]) -> CameraCalibration:
    """Return the calibration of a camera with one matrix, which serves all temperatures.

    It stands for both illuminants, so that cameras of one matrix and of two are trained together.
    """
    matrices = jnp.asarray(np.stack([matrix, matrix]), jnp.float32)
    return CameraCalibration(matrices, jnp.array([STANDARD_A, D65]))


def camera_calibrations(names: Sequence[str]) -> CameraCalibration:
    """Return the cameras' calibrations from `camera_matrices/cameras.xml` below EVERLIGHT_DATA.

    The calibrations have a leading axis.

    Raises:
      MissingDataError: the file does not exist, or lacks a camera.
      DataError: the file is damaged.
    """
    known = stored_matrices()
    try:
        matrices = [single_matrix(find_matrix(known, name)) for name in names]
    except DataError as error:
        raise MissingDataError(str(error)) from error
    return stack_calibrations(matrices)


def read_dng_calibration(path: Path) -> DngCalibration:
    """Read the calibration tags of a DNG or of a camera profile (.dcp); no pixel is read.

    A file of one illuminant gives one matrix, one of two gives two.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged or neither of both, or one of two illuminants is unknown.
    """
    remedy = "Give a DNG or a camera profile (.dcp) with ColorMatrix1."
    check_readable(path, MAX_BYTES, remedy)
    with refusing(path, remedy):
        if is_profile(path):
            # tifffile leaves out tags behind the end of a truncated file.
            read_profile(path)
        elif not is_tiff(path):
            raise ValueError("it is not a TIFF")
        with raw_directories(path) as tags:
            colors = read_dng_colors(tags)
            if not colors.matrices:
                raise tags.refusal("ColorMatrix1", "is missing", "give a DNG that has it")
            is_single = len(colors.matrices) == 1
            kelvin = np.array(colors.temperatures) if is_single else two_temperatures(tags, colors)
    order = np.argsort(kelvin)
    matrices, temperatures = (
        jnp.asarray(np.stack(values)[order], jnp.float32) for values in (colors.matrices, kelvin)
    )
    calibration = CameraCalibration(matrices, temperatures)
    if any(matrix is None for matrix in colors.forward):
        return DngCalibration(calibration)
    forward, individual = np.stack(colors.forward)[order], np.stack(colors.individual)[order]
    return DngCalibration(calibration, forward, individual)


def read_calibrations(
    paths: Sequence[Path], cameras: Sequence[str]
) -> dict[str, CameraCalibration]:
    """Return cameras' calibrations from DNGs by them and from lists such as cameras.xml.

    Args:
      paths: files; a DNG is of the camera that it names, and counts before lists. Without any, no
        calibration is given.
      cameras: names of the cameras.

    Raises:
      MissingDataError: a file does not exist.
      DataError: a file is damaged or names no camera, a camera is in no file, its matrices give
        daylight no colour, or two are calibrated under different illuminants.
    """
    if not paths:
        return {}
    taken: dict[str, CameraCalibration] = {}
    listed: dict[str, Float[np.ndarray, "3 3"]] = {}
    for path in paths:
        if path.suffix.lower() == ".xml":
            listed |= read_camera_matrices(path)
            continue
        calibration, name = read_dng_calibration(path).calibration, camera_name(path)
        if name is None:
            raise DataError(f"{path} names no camera; give a cameras.xml that lists it")
        is_single = len(calibration.matrices) == 1
        taken[name] = single_matrix(calibration.matrices[0]) if is_single else calibration
    profiles = {}
    for camera in cameras:
        by_dng = [entry for name, entry in taken.items() if is_same_camera(name, camera)]
        if not by_dng and plain_name(camera) not in map(plain_name, listed):
            raise unknown_camera(camera, [*taken, *listed])
        profiles[camera] = by_dng[0] if by_dng else single_matrix(find_matrix(listed, camera))
        _refuse_dark(profiles[camera], f"{' '.join(map(str, paths))} for {camera}")
    temperatures = {
        camera: tuple(profile.temperatures.tolist()) for camera, profile in profiles.items()
    }
    if len(set(temperatures.values())) > 1:
        stated = ", ".join(
            f"{camera} {low:g} and {high:g}" for camera, (low, high) in temperatures.items()
        )
        raise DataError(
            f"the cameras are calibrated under different illuminants, in kelvin: {stated}; give a "
            "cameras.xml for all"
        )
    return profiles


def stack_calibrations(calibrations: Sequence[CameraCalibration]) -> CameraCalibration:
    """Return calibrations of several cameras with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *calibrations)


def photo_calibration(photo: RawImage, matrices: Path | None = None) -> CameraCalibration:
    """Return the matrices of `photo_colors`; arguments and errors are the same."""
    return photo_colors(photo, matrices).calibration


def photo_colors(photo: RawImage, matrices: Path | None = None) -> DngCalibration:
    """Return the calibration of the camera that took a photo.

    Args:
      photo: photo from `read_photo`.
      matrices: a DNG by the same camera, its profile (.dcp), or a cameras.xml that lists it. By
        default a DNG's own tags count, and of other raw files the matrix by which LibRaw knows the
        camera.

    Raises:
      MissingDataError: the file of matrices does not exist.
      DataError: there are no matrices of the camera, the file names another camera, or it is
        damaged.
    """
    if matrices is not None and matrices.suffix.lower() == ".xml":
        if photo.camera is None:
            raise DataError(
                f"{photo.path} names no camera, and {matrices} lists matrices by camera; give a "
                "DNG by the camera as --matrices"
            )
        matrix = find_matrix(read_camera_matrices(matrices), photo.camera)
        colors = DngCalibration(single_matrix(matrix))
    elif matrices is not None:
        colors = read_dng_calibration(matrices)
        _refuse_other_camera(photo, matrices)
    elif states_color_matrix(photo.path):
        colors = read_dng_calibration(photo.path)
    elif photo.xyz_to_camera is None:
        raise DataError(
            f"{photo.path} has no calibration matrices; give a DNG by its camera, or a cameras.xml "
            "that lists it, as --matrices"
        )
    else:
        colors = DngCalibration(single_matrix(photo.xyz_to_camera))
    _refuse_dark(colors.calibration, str(matrices or photo.path))
    return colors


def _refuse_other_camera(photo: RawImage, matrices: Path) -> None:
    """Refuse a DNG or profile that names another camera than the photo; one may name none."""
    stated = camera_names(matrices)
    if not photo.camera or not stated:
        return
    names = list(itertools.product({photo.camera, *camera_names(photo.path)}, stated))
    if any(is_same_camera(*pair) for pair in names) or any(is_alias(*pair) for pair in names):
        return
    missing = photo.camera if is_listed(stated[0]) else stated[0]
    raise DataError(
        f"{photo.path} was taken by {photo.camera}, and {matrices} is of {stated[0]}; give "
        "--matrices of the photo's camera. If both names are of one camera, they count as such "
        f"with {alias_in_words(missing)} in this camera of camera_matrices/cameras.xml below "
        "EVERLIGHT_DATA"
    )


def _refuse_dark(calibration: CameraCalibration, source: str) -> None:
    if not (np.asarray(calibration.matrices, float) @ WHITE > 0).all():
        raise DataError(
            f"the calibration matrices in {source} give daylight a colour that is not positive; "
            "give those of the camera as --matrices"
        )
