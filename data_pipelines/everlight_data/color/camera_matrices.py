"""Readers of cameras' calibration matrices: from rawspeed's cameras.xml, a DNG, any photo."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import tifffile
from jaxtyping import Float

from everlight.color.baselines.camera_mapping import WHITE
from everlight.color.camera_calibration import CameraCalibration
from everlight_data.color.camera_names import is_same_camera
from everlight_data.color.raw import MAX_BYTES, RawImage, camera_name
from everlight_data.errors import DataError, MissingDataError
from everlight_data.files import opened, read_bytes, refusing
from everlight_data.locations import locate
from everlight_data.names import nearest_names

MAX_XML_BYTES = 5_000_000
"""Limit on the size of cameras.xml; that of rawspeed 2023 has 0.7 MB."""
MAX_ENTRY = 20.0
"""Limit on the size of a matrix's entries; those of real cameras stay below 3."""
WAY_OUT = "Give the cameras.xml of rawspeed or darktable."
STANDARD_A, D65 = 2856.0, 6504.0
"""Temperatures of the two usual calibration illuminants in kelvin."""
TEMPERATURES = {
    17: STANDARD_A,
    18: 4874.0,
    19: 6774.0,
    20: 5503.0,
    21: D65,
    22: 7504.0,
    23: 5003.0,
}
"""Temperatures of EXIF's light sources A, B, C, D55, D65, D75 and D50, by number."""


class DngCalibration(NamedTuple):
    """Calibration of a DNG.

    Attributes:
      calibration: matrices from XYZ to camera colours (ColorMatrix1 and 2, by temperature).
      forward: matrices from white-balanced camera colours to XYZ under D50 (ForwardMatrix1 and 2),
        in the same order; None where the file has none.
    """

    calibration: CameraCalibration
    forward: Float[np.ndarray, "2 3 3"] | None


def read_camera_matrices(path: Path) -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return each camera's matrix from XYZ under D65 to camera colours, by name and alias.

    Cameras without a matrix of three channels are left out. Of a camera with several modes the
    first one counts.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is too large, no such XML, or a matrix is damaged.
    """
    content = read_bytes(path, MAX_XML_BYTES, WAY_OUT)
    with refusing(path, WAY_OUT):
        # Entities could expand to any size; the file has none. Another encoding could hide them.
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError("it is no UTF-8")
        if "<!ENTITY" in text:
            raise ValueError("it declares entities")
        root = ElementTree.fromstring(text)
        if root.tag != "Cameras":
            raise ValueError("its root is not Cameras")
        found: dict[str, Float[np.ndarray, "3 3"]] = {}
        for camera in root.iterfind("Camera"):
            matrix = camera.find("ColorMatrices/ColorMatrix")
            if matrix is None or matrix.get("planes") != "3":
                continue
            rows = [each.text.split() for each in matrix.iterfind("ColorMatrixRow")]
            values = _checked(np.array(rows, float) / 10_000, (3, 3))
            names = [camera.find("ID"), *camera.iterfind("Aliases/Alias")]
            for name in names:
                if name is not None and name.text:
                    found.setdefault(name.text.strip(), values)
        if not found:
            raise ValueError("it holds no camera with a matrix")
    return found


def matrix_for(
    cameras: Mapping[str, Float[np.ndarray, "3 3"]], camera: str
) -> Float[np.ndarray, "3 3"]:
    """Return the matrix of the camera whose name is nearest among those that match.

    Raises:
      DataError: no name matches; the message gives the nearest ones.
    """
    alike = [name for name in cameras if is_same_camera(name, camera)]
    if not alike:
        near = ", ".join(nearest_names(camera, list(cameras))) or "none"
        raise DataError(f"no calibration matrix of {camera!a}; the nearest names: {near}")
    return cameras[min(alike, key=len)]


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
        path = locate("camera_matrices/cameras.xml", "rawspeed or darktable", "0.7 MB")
        known = _read_once(path, path.stat().st_mtime_ns)
    except MissingDataError as error:
        return None, str(error)
    try:
        matrices = [single_matrix(matrix_for(known, name)) for name in names]
    except DataError as error:
        return None, str(error)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *matrices), ""


@cache
def _read_once(path: Path, changed: int) -> dict[str, Float[np.ndarray, "3 3"]]:
    """Return the matrices of a file that was changed at this time."""
    return read_camera_matrices(path)


def read_dng_calibration(path: Path) -> DngCalibration:
    """Read the calibration tags of a DNG; no pixel is read.

    A DNG with one matrix has it at all temperatures.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged or no DNG, or its illuminants are unknown.
    """
    way_out = "Give a DNG with ColorMatrix1."
    with opened(path, MAX_BYTES, way_out):
        pass
    with refusing(path, way_out):
        with tifffile.TiffFile(path) as file:
            tags = file.pages[0].tags
            colors = [_matrix(tags, name) for name in ("ColorMatrix1", "ColorMatrix2")]
            forward = [_matrix(tags, name) for name in ("ForwardMatrix1", "ForwardMatrix2")]
            lights = [
                tags.valueof(name) for name in ("CalibrationIlluminant1", "CalibrationIlluminant2")
            ]
        if colors[0] is None:
            raise ValueError("it has no ColorMatrix1 of three channels")
        count = 1 if colors[1] is None else 2
        unknown = [light for light in lights[:count] if light not in TEMPERATURES]
        if unknown and count == 2:
            raise ValueError(f"its calibration illuminant {unknown[0]} is unknown")
        whole = all(each is not None for each in forward[:count])
        if count == 1:
            ahead = np.stack([forward[0]] * 2) if whole else None
            return DngCalibration(single_matrix(colors[0]), ahead)
        kelvin = np.array([TEMPERATURES[light] for light in lights])
        order = np.argsort(kelvin)
        matrices = jnp.asarray(np.stack(colors)[order], jnp.float32)
        calibration = CameraCalibration(matrices, jnp.asarray(kelvin[order], jnp.float32))
        return DngCalibration(calibration, np.stack(forward)[order] if whole else None)


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
    found = {}
    for camera in cameras:
        own = [name for name in taken if is_same_camera(name, camera)]
        found[camera] = (
            taken[min(own, key=len)] if own else single_matrix(matrix_for(listed, camera))
        )
        _refuse_dark(found[camera], f"{' '.join(map(str, paths))} for {camera}")
    lights = {camera: tuple(each.temperatures.tolist()) for camera, each in found.items()}
    if len(set(lights.values())) > 1:
        stated = ", ".join(
            f"{camera} {low:g} and {high:g}" for camera, (low, high) in lights.items()
        )
        raise DataError(
            f"the cameras are calibrated under different illuminants, in kelvin: {stated}; give a "
            "cameras.xml for all"
        )
    return found


def stacked_calibrations(
    known: Mapping[str, CameraCalibration], cameras: Sequence[str]
) -> CameraCalibration | None:
    """Return the cameras' calibrations with a leading axis; None without any."""
    if not known:
        return None
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[known[name] for name in cameras])


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
        found = single_matrix(matrix_for(read_camera_matrices(matrices), photo.camera))
    elif matrices is not None:
        found = read_dng_calibration(matrices).calibration
    elif photo.xyz_to_camera is None:
        raise DataError(
            f"{photo.path} has no calibration matrices; give a DNG by its camera, or a cameras.xml "
            "that lists it, as --matrices"
        )
    elif photo.path.suffix.lower() == ".dng":
        found = read_dng_calibration(photo.path).calibration
    else:
        found = single_matrix(photo.xyz_to_camera)
    _refuse_dark(found, str(matrices or photo.path))
    return found


def _refuse_dark(calibration: CameraCalibration, source: str) -> None:
    if not (np.asarray(calibration.matrices, float) @ WHITE > 0).all():
        raise DataError(
            f"the calibration matrices in {source} give daylight a colour that is not positive; "
            "give those of the camera as --matrices"
        )


def _matrix(tags: tifffile.TiffTags, name: str) -> Float[np.ndarray, "3 3"] | None:
    tag = tags.get(name)
    # A tag of another size is of a sensor of four channels, and a damaged one claims any.
    if tag is None or tag.count != 9:
        return None
    above, below = np.array(tag.value, float).reshape(9, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):
        return _checked((above / below).reshape(3, 3), (3, 3))


def _checked(matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if matrix.shape != shape or not (np.abs(matrix) <= MAX_ENTRY).all():
        raise ValueError(f"a matrix is of {matrix.shape}, or an entry is not within {MAX_ENTRY:g}")
    return matrix
