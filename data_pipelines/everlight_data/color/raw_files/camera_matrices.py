"""Readers of cameras' calibration matrices: from rawspeed's cameras.xml, a DNG, any photo."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.learned.parts.camera_mapping import WHITE
from everlight_data.color.camera_names import UNNAMED, is_same_camera, plain_name
from everlight_data.color.raw_files.dng_colors import (
    D65,
    STANDARD_A,
    checked_matrix,
    read_dng_colors,
    states_color_matrix,
    two_temperatures,
)
from everlight_data.color.raw_files.dng_tags import is_tiff, raw_directories
from everlight_data.color.raw_files.raw import MAX_BYTES, RawImage, camera_name
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import opened, read_bytes, refusing
from everlight_data.locations import locate
from everlight_data.names import nearest_names

MAX_XML_BYTES = 5_000_000
"""Limit on the size of cameras.xml; that of rawspeed 2023 has 0.7 MB."""
REMEDY = "Give the cameras.xml of rawspeed or darktable."


class DngCalibration(NamedTuple):
    """Calibration of a DNG.

    Attributes:
      calibration: matrices from XYZ to camera colours, by temperature: ColorMatrix1 and 2 with
        AnalogBalance, and with CameraCalibration1 and 2 where the profile's signature is theirs.
      forward: matrices from white-balanced colours of the reference camera to XYZ under D50
        (ForwardMatrix1 and 2), in the same order; None where the file has none.
    """

    calibration: CameraCalibration
    forward: Float[np.ndarray, "2 3 3"] | None


class ListedCamera(NamedTuple):
    """Camera of a cameras.xml.

    Attributes:
      model: model, which modes of one camera share.
      names: its name, and the aliases, each with the maker too.
      matrix: matrix from XYZ under D65 to camera colours.
    """

    model: str
    names: tuple[str, ...]
    matrix: Float[np.ndarray, "3 3"]


def read_camera_matrices(path: Path) -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return each camera's matrix from XYZ under D65 to camera colours, by name and alias.

    Cameras without a matrix of three channels are left out, and so are names of several cameras
    with different matrices. Of a camera with several modes the first one counts.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is too large, no such XML, or a matrix is damaged.
    """
    return _unambiguous(_listed_cameras(path))


def _unambiguous(cameras: Sequence[ListedCamera]) -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return the matrices by name and alias, without names of cameras that differ in theirs."""
    by_name: dict[str, ListedCamera] = {}
    ambiguous = set()
    for camera in cameras:
        for name in camera.names:
            first = by_name.setdefault(name, camera)
            if first.model != camera.model and (first.matrix != camera.matrix).any():
                ambiguous.add(name)
    return {name: camera.matrix for name, camera in by_name.items() if name not in ambiguous}


def _listed_cameras(path: Path) -> list[ListedCamera]:
    """Return the cameras of a cameras.xml; raises as `read_camera_matrices` does."""
    content = read_bytes(path, MAX_XML_BYTES, REMEDY)
    with refusing(path, REMEDY):
        # Entities could expand to any size; the file has none. Another encoding could hide them.
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError("it is not UTF-8")
        if "<!ENTITY" in text:
            raise ValueError("it declares entities")
        root = ElementTree.fromstring(text)
        if root.tag != "Cameras":
            raise ValueError("its root is not Cameras")
        listed = []
        for camera in root.iterfind("Camera"):
            matrix = camera.find("ColorMatrices/ColorMatrix")
            if matrix is None or matrix.get("planes") != "3":
                continue
            rows = [row.text.split() for row in matrix.iterfind("ColorMatrixRow")]
            values = checked_matrix(np.array(rows, float) / 10_000)
            listed.append(ListedCamera(camera.get("model", ""), _names(camera), values))
        if not listed:
            raise ValueError("it holds no camera with a matrix")
    return listed


def _names(camera: ElementTree.Element) -> tuple[str, ...]:
    """Return a camera's published names: ID, make and model, aliases; spelled alike, the first."""
    identity = camera.find("ID")
    makers = [camera.get("make", "")]
    names = [f"{makers[0]} {camera.get('model', '')}"]
    if identity is not None:
        makers.append(identity.get("make", ""))
        names = [identity.text or "", *names, f"{makers[1]} {identity.get('model', '')}"]
    for alias in camera.iterfind("Aliases/Alias"):
        text = (alias.text or "").strip()
        names += [text, *(f"{maker} {text}" for maker in makers if text)]
    plain = {}
    for name in names:
        if name.strip():
            plain.setdefault(plain_name(name), name.strip())
    return tuple(plain.values())


def matrix_for(
    cameras: Mapping[str, Float[np.ndarray, "3 3"]], camera: str
) -> Float[np.ndarray, "3 3"]:
    """Return the matrix of a camera by its name or alias, as `plain_name` compares them.

    Raises:
      DataError: no name is the camera's; the message gives the nearest ones.
    """
    named = {plain_name(name): matrix for name, matrix in cameras.items()}
    key = plain_name(camera)
    if not key or key not in named:
        raise _unknown_camera(camera, list(cameras))
    return named[key]


def _unknown_camera(camera: str, names: Sequence[str]) -> DataError:
    near = ", ".join(nearest_names(camera, names)) or "none"
    return DataError(
        f"no calibration matrix of {camera!a}; the nearest names: {near}; give a DNG by the "
        "camera, a cameras.xml that lists it, or the camera the listed name"
    )


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
    if not camera or known or any(_is_alias(camera, name) for name in trained):
        return []
    return [
        f"{what}taken by {camera}, and the model was trained for {' or '.join(trained)}: across "
        "cameras errors are several times as large as the interval states."
    ]


def _is_alias(one: str, other: str) -> bool:
    """Return whether cameras.xml lists both names for one camera."""
    try:
        path = _default_list()
    except MissingDataError:
        return False
    names = {plain_name(one), plain_name(other)}
    cameras = _listed_once(path, path.stat().st_mtime_ns)
    return any(names <= set(map(plain_name, camera.names)) for camera in cameras)


def single_matrix(matrix: Float[np.ndarray, "3 3"]) -> CameraCalibration:
    """Return the calibration of a camera with one matrix, which serves all temperatures."""
    matrices = jnp.asarray(np.stack([matrix, matrix]), jnp.float32)
    return CameraCalibration(matrices, jnp.array([STANDARD_A, D65]))


def camera_calibrations(names: Sequence[str]) -> tuple[CameraCalibration | None, str]:
    """Return the cameras' calibrations from `camera_matrices/cameras.xml` below EVERLIGHT_DATA.

    Returns:
      The calibrations with a leading axis, and ""; or None, and the reason why not all are known.

    Raises:
      DataError: the file is damaged.
    """
    try:
        path = _default_list()
        known = _unambiguous(_listed_once(path, path.stat().st_mtime_ns))
    except MissingDataError as error:
        return None, str(error)
    try:
        matrices = [single_matrix(matrix_for(known, name)) for name in names]
    except DataError as error:
        return None, str(error)
    return stack_calibrations(matrices), ""


@cache
def _listed_once(path: Path, changed: int) -> list[ListedCamera]:
    """Return the cameras of a file that was changed at this time."""
    return _listed_cameras(path)


def _default_list() -> Path:
    return locate("camera_matrices/cameras.xml", "rawspeed or darktable", "0.7 MB")


def read_dng_calibration(path: Path) -> DngCalibration:
    """Read the calibration tags of a DNG; no pixel is read.

    A DNG with one matrix has it at all temperatures, whatever its illuminant.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged or no DNG, or one of two illuminants is unknown.
    """
    remedy = "Give a DNG with ColorMatrix1."
    with opened(path, MAX_BYTES, remedy):
        pass
    with refusing(path, remedy):
        if not is_tiff(path):
            raise ValueError("it is not a TIFF")
        with raw_directories(path) as tags:
            colors = read_dng_colors(tags)
            if not colors.matrices:
                raise tags.refusal("ColorMatrix1", "is missing", "give a DNG that has it")
            kelvin = two_temperatures(tags, colors) if len(colors.matrices) > 1 else None
    has_forward = all(matrix is not None for matrix in colors.forward)
    if kelvin is None:
        ahead = np.stack([colors.forward[0]] * 2) if has_forward else None
        return DngCalibration(single_matrix(colors.matrices[0]), ahead)
    order = np.argsort(kelvin)
    matrices = jnp.asarray(np.stack(colors.matrices)[order], jnp.float32)
    calibration = CameraCalibration(matrices, jnp.asarray(kelvin[order], jnp.float32))
    return DngCalibration(calibration, np.stack(colors.forward)[order] if has_forward else None)


def calibrations_from(
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
        taken[name] = calibration
    profiles = {}
    for camera in cameras:
        by_dng = [entry for name, entry in taken.items() if is_same_camera(name, camera)]
        if not by_dng and plain_name(camera) not in map(plain_name, listed):
            raise _unknown_camera(camera, [*taken, *listed])
        profiles[camera] = by_dng[0] if by_dng else single_matrix(matrix_for(listed, camera))
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
    """Return the calibration of the camera that took a photo.

    Args:
      photo: photo from `read_photo`.
      matrices: a DNG by the same camera, or a cameras.xml that lists it. By default a DNG's own
        tags count, and of other raw files the matrix by which LibRaw knows the camera.

    Raises:
      MissingDataError: the file of matrices does not exist.
      DataError: there are no matrices of the camera, or they are damaged.
    """
    if matrices is not None and matrices.suffix.lower() == ".xml":
        if photo.camera is None:
            raise DataError(
                f"{photo.path} names no camera, and {matrices} lists matrices by camera; give a "
                "DNG by the camera as --matrices"
            )
        calibration = single_matrix(matrix_for(read_camera_matrices(matrices), photo.camera))
    elif matrices is not None:
        calibration = read_dng_calibration(matrices).calibration
    elif states_color_matrix(photo.path):
        calibration = read_dng_calibration(photo.path).calibration
    elif photo.xyz_to_camera is None:
        raise DataError(
            f"{photo.path} has no calibration matrices; give a DNG by its camera, or a cameras.xml "
            "that lists it, as --matrices"
        )
    else:
        calibration = single_matrix(photo.xyz_to_camera)
    _refuse_dark(calibration, str(matrices or photo.path))
    return calibration


def _refuse_dark(calibration: CameraCalibration, source: str) -> None:
    if not (np.asarray(calibration.matrices, float) @ WHITE > 0).all():
        raise DataError(
            f"the calibration matrices in {source} give daylight a colour that is not positive; "
            "give those of the camera as --matrices"
        )
