"""Sidecars: files beside a raw file, from which raw converters take its white balance.

The raw file is not changed. Each kind states the white balance in the converter's own terms:

- darktable: multipliers of the camera's channels, the inverse illuminant. No calibration is needed.
  The module `color calibration`, which newer defaults add, would balance a second time and is
  switched off. Parameters are those of darktable 4.2 (`temperature` version 3, `channelmixerrgb`
  version 3), which newer versions convert.
- adobe: temperature and tint, of which Lightroom and Camera Raw have integers. They have the same
  meaning there only with the matrices by which the white point was found. darktable 4.2 imports any
  NAME.xmp beside a photo and then takes a wrong input profile, so both belong into different
  folders. Of a DNG both read the settings that the file itself has.
- rawtherapee: temperature and green of RawTherapee's model (`rawtherapee_white`), by the one matrix
  of daylight that it takes of a DNG. Of other raw files that is LibRaw's matrix; RawTherapee has
  another for some cameras, in its camconst.json.
"""

import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from everlight.color.rendering import SRGB_TO_XYZ
from everlight_data.color.raw_files.photo_whites import PhotoWhite
from everlight_data.color.raw_files.raw import RawImage
from everlight_data.errors import DataError
from everlight_data.optional_packages import import_package
from everlight_data.writing import make_folder, written_whole

Sidecar = Literal["adobe", "darktable", "rawtherapee"]

ADOBE_TEMPERATURES, ADOBE_TINTS = (2_000, 50_000), (-150, 150)
"""Ranges of Camera Raw's sliders."""
RAWTHERAPEE_TEMPERATURES, RAWTHERAPEE_GREENS = (1_500, 25_000), (0.02, 10.0)
"""Ranges of temperature and green: RawTherapee's, and CIE's daylight ends at 25,000 K."""
BLACK_BODIES = 4_000
"""Temperature in kelvin up to which RawTherapee's illuminants are black bodies, then daylight."""
LACKING_WAVELENGTH = 560
"""Wavelength in nm that the observer's table of RawTherapee 5.9 to 5.11 leaves out."""

_XMP = """<?xml version="1.0" encoding="UTF-8"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
   {attributes}>{content}</rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
"""
_MODULE = (
    '<rdf:li darktable:num="{number}" darktable:operation="{name}" darktable:enabled="{enabled}" '
    'darktable:modversion="3" darktable:params="{params}" darktable:multi_name="" '
    'darktable:multi_priority="0"/>'
)
_PP3 = """[Version]
AppVersion=5.9
Version=349

[White Balance]
Enabled=true
Setting=Custom
Temperature={temperature}
Green={green:.6f}
Equal=1
TemperatureBias=0
StandardObserver=TEN_DEGREES
"""


class RawTherapeeWhite(NamedTuple):
    """White balance of RawTherapee.

    Attributes:
      temperature: temperature of its illuminants in kelvin.
      green: divisor of the illuminant's green in linear sRGB.
    """

    temperature: int
    green: float


class WrittenSidecars(NamedTuple):
    """Sidecars of a photo.

    Attributes:
      paths: files that were written.
      warnings: sentences on those that were not, and on those that a converter does not read.
    """

    paths: list[Path]
    warnings: list[str]


def sidecar_path(raw: Path, kind: Sidecar, folder: Path | None) -> Path:
    """Return the path of a raw file's sidecar, by the name that the converter looks for.

    Args:
      raw: raw file.
      kind: converter.
      folder: folder of the sidecar; None is the raw file's.
    """
    names = {
        "adobe": f"{raw.stem}.xmp",
        "darktable": f"{raw.name}.xmp",
        "rawtherapee": f"{raw.name}.pp3",
    }
    return (raw.parent if folder is None else folder) / names[kind]


def check_sidecar(path: Path, kind: Sidecar) -> None:
    """Refuse an existing file in a sidecar's place that is not of the form of those written here.

    Args:
      path: path of the sidecar.
      kind: converter.

    Raises:
      DataError: the file exists.
    """
    if path.exists() and _form(_content(path)) != _form(_EXAMPLES[kind]()):
        raise DataError(
            f"{path} exists and may have a user's settings; move it, or give another folder as "
            "--sidecar-folder"
        )


def _content(path: Path) -> str:
    """Return a file's text; empty where it has none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _form(text: str) -> str:
    """Return a sidecar without its values, which stand in quotes or behind an equals sign."""
    return re.sub(r'"[^"]*"|(?<==)[^"\s]+', "", text)


def write_sidecars(
    photo: RawImage,
    illuminant: Float[np.ndarray, "3"],
    white: PhotoWhite | None,
    kinds: Sequence[Sidecar],
    folder: Path | None,
) -> WrittenSidecars:
    """Write a photo's sidecars; no file is replaced.

    A converter that cannot state the illuminant gets no file, and a warning says why. A file that
    exists is kept, with a warning unless it has the same content.

    Args:
      photo: raw photo.
      illuminant: (r, g, b) of the light in the camera's raw colours, of any scale.
      white: the illuminant's white point, for adobe.
      kinds: converters.
      folder: folder of the sidecars; None is the photo's.

    Raises:
      DataError: a file cannot be written.
    """
    texts, warnings = {}, []
    for kind in kinds:
        try:
            texts[kind] = sidecar_text(photo, illuminant, white, kind)
        except UnstatedIlluminantError as error:
            warnings.append(f"no sidecar for {kind}: {error}")
    if "adobe" in texts and photo.path.suffix.lower() == ".dng":
        warnings.append(
            "Lightroom and Camera Raw keep the settings of a DNG in the file and read no sidecar; "
            "open the copy that --formats dng writes, whose AsShotNeutral is the illuminant"
        )
    written = []
    for kind, text in texts.items():
        path = sidecar_path(photo.path, kind, folder)
        if path.exists():
            if _content(path) != text:
                warnings.append(
                    f"{path} exists with other settings and is kept; move it, or give another "
                    "folder as --sidecar-folder"
                )
            continue
        make_folder(path.parent)
        with written_whole(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        written.append(path)
    return WrittenSidecars(written, warnings)


class UnstatedIlluminantError(DataError):
    """A converter cannot state the illuminant."""


def sidecar_text(
    photo: RawImage,
    illuminant: Float[np.ndarray, "3"],
    white: PhotoWhite | None,
    kind: Sidecar,
) -> str:
    """Return the content of a sidecar.

    Args:
      photo: raw photo.
      illuminant: (r, g, b) of the light in the camera's raw colours, of any scale.
      white: the illuminant's white point, for adobe.
      kind: converter.

    Raises:
      UnstatedIlluminantError: the converter cannot state the illuminant.
    """
    if kind == "darktable":
        return _darktable_text(illuminant)
    if kind == "adobe":
        if white is None:
            raise UnstatedIlluminantError(
                "it needs the camera's calibration, which is not known; give a DNG, a profile "
                "(.dcp) or a cameras.xml as --matrices"
            )
        _check_range("temperature", white.temperature, ADOBE_TEMPERATURES)
        _check_range("tint", white.tint, ADOBE_TINTS)
        return _adobe_text(white)
    if photo.xyz_to_camera is None:
        raise UnstatedIlluminantError(
            "the photo has no matrix of daylight, by which RawTherapee converts temperatures"
        )
    balance = rawtherapee_white(illuminant, photo.xyz_to_camera.astype(float))
    if balance is None:
        raise _outside("the illuminant")
    _check_range("green", balance.green, RAWTHERAPEE_GREENS)
    return _rawtherapee_text(balance)


def _check_range(name: str, value: float, limits: tuple[float, float]) -> None:
    if not limits[0] <= value <= limits[1]:
        raise _outside(f"the {name} {value:.4g}")


def _outside(what: str) -> UnstatedIlluminantError:
    return UnstatedIlluminantError(f"{what} lies outside its range")


def _rawtherapee_text(balance: RawTherapeeWhite) -> str:
    return _PP3.format(**balance._asdict())


def _adobe_text(white: PhotoWhite) -> str:
    settings = {
        "Version": "14.0",
        "ProcessVersion": "11.0",
        "WhiteBalance": "Custom",
        "Temperature": f"{white.temperature:.0f}",
        "Tint": f"{round(white.tint):+d}",
        "HasSettings": "True",
        "AlreadyApplied": "False",
    }
    lines = ['xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/"']
    lines += [f'crs:{name}="{value}"' for name, value in settings.items()]
    return _XMP.format(attributes="\n   ".join(lines), content="")


def _darktable_text(illuminant: Float[np.ndarray, "3"]) -> str:
    # Red, green and blue; the second green is not used by sensors of three colours.
    balance = struct.pack("<4f", *(illuminant[1] / illuminant), 0)
    modules = [
        _MODULE.format(number=0, name="temperature", enabled=1, params=balance.hex()),
        _MODULE.format(number=1, name="channelmixerrgb", enabled=0, params=_identity_mixer().hex()),
    ]
    lines = [
        'xmlns:darktable="http://darktable.sf.net/"',
        'darktable:xmp_version="5"',
        'darktable:auto_presets_applied="0"',
        'darktable:history_end="2"',
    ]
    history = "\n     ".join(modules)
    content = (
        f"\n   <darktable:history>\n    <rdf:Seq>\n     {history}\n    </rdf:Seq>\n"
        "   </darktable:history>\n  "
    )
    return _XMP.format(attributes="\n   ".join(lines), content=content)


def _identity_mixer() -> bytes:
    """Return parameters of `color calibration`, version 3, that change no colour.

    They are rows of red, green, blue, saturation, lightness and grey; whether each is normalized;
    illuminant, fluorescent lamp, LED and adaptation; the illuminant's x, y and temperature, and
    gamut compression; clipping and version of saturation.
    """
    rows = np.zeros((6, 4), np.float32)
    rows[:3, :3] = np.eye(3)
    integers = struct.pack("<10i", *(1,) * 6, 0, 3, 4, 3)
    return rows.tobytes() + integers + struct.pack("<4f2i", 0.333, 0.333, 5003, 1, 1, 2)


def rawtherapee_white(
    illuminant: Float[np.ndarray, "3"], xyz_to_camera: Float[np.ndarray, "3 3"]
) -> RawTherapeeWhite | None:
    """Return the temperature and green by which RawTherapee 5.9 and newer make an illuminant grey.

    RawTherapee's illuminants are black bodies up to 4,000 K and daylight above, integrated with the
    observer of 10° in steps of 5 nm, in linear sRGB; green is divided by a number. The camera's
    matrix maps them to the sensor. Its table of the observer lacks 560 nm: longer wavelengths have
    the sensitivity of the next one (rtengine/colortemp.cc at 00360a6d; pictures of 5.9 agree within
    0.1%). With the complete table blue would be wrong by 3% to 6%.

    Args:
      illuminant: (r, g, b) of the light in the camera's raw colours, of any scale.
      xyz_to_camera: matrix from XYZ under D65 to the camera's colours.

    Returns:
      The white balance; None where it lies outside RawTherapee's temperatures, or outside sRGB.
    """
    xyz_to_srgb = np.linalg.inv(SRGB_TO_XYZ.astype(float))
    target = xyz_to_srgb @ np.linalg.solve(xyz_to_camera, np.asarray(illuminant, float))
    if not (target > 0).all():
        return None
    kelvin = np.arange(RAWTHERAPEE_TEMPERATURES[0], RAWTHERAPEE_TEMPERATURES[1] + 1)
    colors = _rawtherapee_illuminants() @ xyz_to_srgb.T
    usable = (colors > 0).all(axis=1)
    ratios = np.log(np.where(usable, colors[:, 0], 1) / np.where(usable, colors[:, 2], 1))
    target_ratio = np.log(target[0] / target[2])
    if not ratios[usable].min() <= target_ratio <= ratios[usable].max():
        return None
    best = int(np.argmin(np.where(usable, np.abs(ratios - target_ratio), np.inf)))
    red, green, blue = colors[best]
    # Rounding of the temperature is shared between red and blue.
    return RawTherapeeWhite(
        int(kelvin[best]),
        float(green / target[1] * np.sqrt(target[0] * target[2] / (red * blue))),
    )


@cache
def _rawtherapee_illuminants() -> Float[np.ndarray, "n 3"]:
    """Return XYZ of RawTherapee's illuminants at all its temperatures, in steps of 1 K."""
    colour = import_package("colour")
    kelvin = np.arange(RAWTHERAPEE_TEMPERATURES[0], RAWTHERAPEE_TEMPERATURES[1] + 1)
    shape = colour.SpectralShape(350, 830, 5)
    outside = {"method": "Constant", "left": 0, "right": 0}
    observers = colour.MSDS_CMFS["CIE 1964 10 Degree Standard Observer"].copy()
    observer = observers.align(shape, extrapolator_kwargs=outside).values
    lacking = int(np.flatnonzero(shape.wavelengths == LACKING_WAVELENGTH)[0])
    observer = np.vstack([np.delete(observer, lacking, axis=0), np.zeros(3)])
    warm, cold = kelvin[kelvin <= BLACK_BODIES], kelvin[kelvin > BLACK_BODIES]
    black_bodies = colour.colorimetry.planck_law(shape.wavelengths * 1e-9, warm)
    basis = colour.colorimetry.SDS_BASIS_FUNCTIONS_CIE_ILLUMINANT_D_SERIES
    parts = [basis[name].copy().align(shape).values for name in ("S0", "S1", "S2")]
    x, y = colour.temperature.CCT_to_xy_CIE_D(cold.astype(float)).T
    divisor = 0.0241 + 0.2562 * x - 0.7341 * y
    first = (-1.3515 - 1.7703 * x + 5.9114 * y) / divisor
    second = (0.0300 - 31.4424 * x + 30.0717 * y) / divisor
    daylight = parts[0][:, None] + np.outer(parts[1], first) + np.outer(parts[2], second)
    spectra = np.hstack([np.reshape(black_bodies, (len(shape.wavelengths), -1)), daylight])
    return spectra.T @ observer


_EXAMPLES: dict[Sidecar, Callable[[], str]] = {
    "adobe": lambda: _adobe_text(PhotoWhite((0.3127, 0.329), 6504, 0, np.eye(3))),
    "darktable": lambda: _darktable_text(np.ones(3)),
    "rawtherapee": lambda: _rawtherapee_text(RawTherapeeWhite(6504, 1)),
}
"""Texts of each kind, whose form those that are written here have."""
