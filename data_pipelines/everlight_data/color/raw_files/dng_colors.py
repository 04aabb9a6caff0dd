"""Reader of a DNG's colour tags: matrices, illuminants, the neutral as shot.

After the DNG specification 1.7, chapter 6 ("Mapping Camera Color Space to CIE XYZ Space"):
XYZtoCamera = AnalogBalance · CameraCalibration · ColorMatrix. It maps XYZ under the illuminant.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.color.camera_matrices import MAX_ENTRY
from everlight_data.color.raw_files.dng_mosaic import plane_colors
from everlight_data.color.raw_files.dng_tags import (
    DAMAGED,
    RawDirectories,
    is_tiff,
    raw_directories,
)

MAX_CONDITION = 1e4
"""Limit on a matrix's condition number; those of real cameras stay below 20."""
STANDARD_A, D65 = 2856.0, 6504.0
"""Temperatures of the two usual calibration illuminants in kelvin."""
TEMPERATURES = {
    1: 5500.0,
    2: 4150.0,
    3: 2850.0,
    4: 5500.0,
    9: 5500.0,
    10: 6500.0,
    11: 7500.0,
    12: 6400.0,
    13: 5050.0,
    14: 4150.0,
    15: 3525.0,
    16: 2925.0,
    17: STANDARD_A,
    18: 4874.0,
    19: 6774.0,
    20: 5503.0,
    21: D65,
    22: 7504.0,
    23: 5003.0,
    24: 3200.0,
}
"""Temperatures of EXIF's light sources in kelvin, by number.

17 to 23 are the standard illuminants A, B, C, D55, D65, D75 and D50. The others, such as daylight
(1), tungsten (3) and shade (11), have the middle of the range that EXIF gives, or that of the
standard illuminant which is meant. 24 is ISO studio tungsten. 0 (unknown) and 255 (other) have
none.
"""
NO_INVERSE = "has no inverse"
_REMEDY = "give a DNG with one or two matrices of known illuminants, or a cameras.xml"

# All of a DNG's colour tags, which a corrected copy keeps.
COLOR_TAGS = (
    "CFAPlaneColor",
    *(f"ColorMatrix{number}" for number in (1, 2, 3)),
    *(f"CameraCalibration{number}" for number in (1, 2, 3)),
    *(f"ForwardMatrix{number}" for number in (1, 2, 3)),
    *(f"CalibrationIlluminant{number}" for number in (1, 2, 3)),
    *(f"IlluminantData{number}" for number in (1, 2)),
    *("AnalogBalance", "CameraCalibrationSignature", "ProfileCalibrationSignature"),
)


class DngColors(NamedTuple):
    """Colours of a DNG, with channels in the order red, green, blue."""

    matrices: tuple[Float[np.ndarray, "3 3"], ...]
    """Matrices from XYZ to camera colours, with AnalogBalance and CameraCalibration."""
    forward: tuple[Float[np.ndarray, "3 3"] | None, ...]
    """Matrices from the reference camera's white-balanced colours to XYZ under D50.

    They are the tags ForwardMatrix, one per matrix; None where one is missing, or not usable.
    """
    individual: tuple[Float[np.ndarray, "3 3"], ...]
    """AnalogBalance · CameraCalibration, from the reference camera's colours to this camera's."""
    temperatures: tuple[float, ...]
    """Temperature of each matrix in kelvin, NaN where the illuminant is unknown."""

    def daylight(self) -> Float[np.ndarray, "3 3"] | None:
        """Return the matrix whose illuminant is nearest to D65; None where that is unknown."""
        if len(self.matrices) < 2:
            return self.matrices[0] if self.matrices else None
        distances = np.abs(1 / np.array(self.temperatures) - 1 / D65)
        return None if np.isnan(distances).any() else self.matrices[int(np.argmin(distances))]


def read_dng_colors(raw: RawDirectories) -> DngColors:
    """Return a DNG's matrices; none where it has no ColorMatrix1 of three channels.

    Raises:
      DataError: a tag is damaged.
    """
    order = np.argsort(plane_colors(raw))
    balance = _array(raw, "AnalogBalance", (3,))
    balance = np.ones(3) if balance is None else balance
    if not (balance > 0).all():
        raise raw.refusal("AnalogBalance", f"is {balance.tolist()}, not positive", DAMAGED)
    signatures = [_text(raw, f"{kind}CalibrationSignature") for kind in ("Camera", "Profile")]
    matrices, forward, individual, temperatures = [], [], [], []
    for number in (1, 2, 3):
        color = _array(raw, f"ColorMatrix{number}", (3, 3))
        if color is None:
            break
        calibration = _array(raw, f"CameraCalibration{number}", (3, 3))
        if calibration is None or signatures[0] != signatures[1]:
            calibration = np.eye(3)
        calibration = balance[:, None] * calibration
        matrices.append(_usable_matrix(raw, number, (calibration @ color)[order]))
        individual.append(calibration[np.ix_(order, order)])
        matrix = _array(raw, f"ForwardMatrix{number}", (3, 3))
        forward.append(None if matrix is None or _fault(matrix) else matrix[:, order])
        temperatures.append(_temperature(raw, f"CalibrationIlluminant{number}"))
    return DngColors(tuple(matrices), tuple(forward), tuple(individual), tuple(temperatures))


def _usable_matrix(
    raw: RawDirectories, number: int, matrix: Float[np.ndarray, "3 3"]
) -> Float[np.ndarray, "3 3"]:
    """Return a matrix that maps three colours to three."""
    name, fault = f"ColorMatrix{number}", _fault(matrix)
    if fault == NO_INVERSE:
        raise raw.refusal(name, f"with its CameraCalibration {fault}", DAMAGED)
    if fault:
        raise raw.refusal(name, fault, DAMAGED)
    return matrix


def _fault(matrix: Float[np.ndarray, "3 3"]) -> str:
    """Return in words why a matrix does not map three colours to three; empty if it does."""
    if not (np.abs(matrix) <= MAX_ENTRY).all():
        return f"has an entry that is not within {MAX_ENTRY:g}"
    return NO_INVERSE if np.linalg.cond(matrix) > MAX_CONDITION else ""


def states_color_matrix(path: Path) -> bool:
    """Return True if a file is a DNG with its own ColorMatrix; False for damaged ones too."""
    try:
        if not is_tiff(path):
            return False
        with raw_directories(path) as tags:
            return tags.is_dng and tags.color_tag("ColorMatrix1") is not None
    # The reader of the tags then reports the damage.
    except Exception:
        return False


def as_shot_neutral(raw: RawDirectories) -> Float[np.ndarray, "3"] | None:
    """Return the tag AsShotNeutral as (r, 1, b); None where it is missing or not positive.

    Raises:
      DataError: the tag is damaged.
    """
    neutral = _array(raw, "AsShotNeutral", (3,))
    if neutral is None or not (neutral > 0).all():
        return None
    neutral = neutral[np.argsort(plane_colors(raw))]
    return (neutral / neutral[1]).astype(np.float32)


def two_temperatures(raw: RawDirectories, colors: DngColors) -> Float[np.ndarray, "2"]:
    """Return the temperatures between which a DNG's two matrices are interpolated.

    Raises:
      DataError: an illuminant is unknown, both are of one temperature, or there is a third matrix.
    """
    if len(colors.matrices) > 2:
        raise raw.refusal("ColorMatrix3", "is a third matrix, and two are supported", _REMEDY)
    for number, kelvin in enumerate(colors.temperatures, start=1):
        if np.isnan(kelvin):
            name = f"CalibrationIlluminant{number}"
            tag = raw.color_tag(name)
            stated = "is missing" if tag is None else f"{tag.value} has no known temperature"
            raise raw.refusal(name, f"{stated}, which a DNG with two matrices needs", _REMEDY)
    kelvin = np.array(colors.temperatures)
    if kelvin[0] == kelvin[1]:
        raise raw.refusal("CalibrationIlluminant1 and 2", f"are both of {kelvin[0]:g} K", _REMEDY)
    return kelvin


def _temperature(raw: RawDirectories, name: str) -> float:
    tag = raw.color_tag(name)
    if tag is None:
        return np.nan
    return TEMPERATURES.get(int(raw.numbers(tag)[0]), np.nan)


def _array(
    raw: RawDirectories, name: str, shape: tuple[int, ...]
) -> Float[np.ndarray, "..."] | None:
    """Return a tag's numbers in a shape; None where it is missing."""
    tag = raw.color_tag(name)
    if tag is None:
        return None
    values = raw.numbers(tag)
    if values.size != np.prod(shape):
        raise raw.refusal(name, f"has {values.size} numbers, not {np.prod(shape)}", DAMAGED)
    return values.reshape(shape)


def _text(raw: RawDirectories, name: str) -> str:
    tag = raw.color_tag(name)
    if tag is None:
        return ""
    value = tag.value
    if not isinstance(value, (bytes, str)):
        raise raw.refusal(name, "is not text", DAMAGED)
    text = value if isinstance(value, str) else value.decode("utf-8", "replace")
    return text.rstrip("\0")
