"""Illuminants of known colour temperature, from labelled thumbnails or photographs of a chart."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.color.charts.chart_colors import NEUTRALS, reference_colors
from everlight_data.color.charts.measured_chart import measure_chart, read_chart_corners
from everlight_data.color.photographs.thumbnails import read_thumbnails
from everlight_data.color.raw_files.photos import is_picture, list_photos
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape, read_npz
from everlight_data.formats.files import refusing
from everlight_data.optional_packages import import_package

MIN_KELVIN, MAX_KELVIN = 1_000, 100_000
NPZ_REMEDY = (
    "Give thumbnails with illuminant_rgb and temperature, in kelvin, as `everlight data prepare "
    "raspberry-pi-awb` writes them."
)
NAME_REMEDY = (
    "Write the colour temperature into the name of each file, as in scene_5000k.dng, where a "
    "colorimeter measured it."
)


class Patches(NamedTuple):
    """White-balanced colours of a chart's usable patches, and their linear sRGB."""

    balanced: Float[np.ndarray, "p 3"]
    target: Float[np.ndarray, "p 3"]


class LabelledColors(NamedTuple):
    """Illuminants of known colour temperature.

    Attributes:
      names: names of the images.
      temperatures: colour temperatures in kelvin.
      chromaticities: [R/G, B/G] of grey.
      camera: name of their camera; of thumbnails that of the file.
      patches: patches of each image's chart; empty for thumbnails.
    """

    names: tuple[str, ...]
    temperatures: Float[np.ndarray, "n"]
    chromaticities: Float[np.ndarray, "n 2"]
    camera: str = ""
    patches: Sequence[Patches] = ()


def read_labelled_colors(path: Path) -> LabelledColors:
    """Read labelled thumbnails (`.npz`), or measure a folder of raw photographs of a chart.

    Raises:
      MissingDataError: the path does not exist.
      DataError: the file is damaged or has no temperatures; or a photograph states none in its
        name, is by another camera than the first, or shows no usable chart.
    """
    return _measure_folder(path) if path.is_dir() else _read_thumbnails(path)


def reference_srgb() -> Float[np.ndarray, "24 3"]:
    """Return the chart's patches in linear sRGB, adapted from D50 to D65 (Bradford).

    Raises:
      MissingPackageError: colour-science is not installed.
    """
    colour = import_package("colour")
    white = colour.CCS_COLOURCHECKERS["ColorChecker 2005"].illuminant
    return colour.XYZ_to_RGB(reference_colors(), "sRGB", white, "Bradford")


def _read_thumbnails(path: Path) -> LabelledColors:
    stored, arrays = read_thumbnails(path, NPZ_REMEDY), read_npz(path, NPZ_REMEDY)
    temperatures = arrays.get("temperature", np.zeros(0))
    with refusing(path, NPZ_REMEDY):
        if temperatures.shape != (len(stored.names),) or temperatures.dtype.kind not in "iuf":
            raise ValueError(f"temperature has {dtype_and_shape(temperatures)}")
        if not ((temperatures >= MIN_KELVIN) & (temperatures <= MAX_KELVIN)).all():
            raise ValueError(f"a temperature is not between {MIN_KELVIN} and {MAX_KELVIN} kelvin")
    chromaticities = stored.illuminants[:, ::2] / stored.illuminants[:, 1:2]
    return LabelledColors(
        stored.names, temperatures.astype(float), chromaticities.astype(float), path.stem
    )


def _measure_folder(folder: Path) -> LabelledColors:
    charts, reference, target = read_chart_corners(folder), reference_colors(), reference_srgb()
    paths = [path for path in list_photos([folder]) if not is_picture(path)]
    temperatures = [_stated_kelvin(path) for path in paths]
    seen = [measure_chart(read_raw(path), charts.get(path.name), reference) for path in paths]
    for path, chart in zip(paths, seen, strict=True):
        if chart.camera != seen[0].camera:
            raise DataError(
                f"{path} is by {chart.camera}, and {paths[0].name} by {seen[0].camera}; a tuning "
                "file is of one camera. Give a folder of its photographs."
            )
    illuminants = np.array([chart.illuminant for chart in seen]).reshape(-1, 3)
    patches = [
        _balance(chart.colors[chart.usable] / chart.illuminant, target, chart.usable)
        for chart in seen
    ]
    return LabelledColors(
        tuple(path.name for path in paths),
        np.array(temperatures, float),
        illuminants[:, ::2] / illuminants[:, 1:2],
        seen[0].camera if seen else "",
        patches,
    )


def _balance(
    balanced: Float[np.ndarray, "p 3"], target: Float[np.ndarray, "24 3"], usable: np.ndarray
) -> Patches:
    """Return patches whose grey ones have the target's mean brightness."""
    grays = np.isin(np.flatnonzero(usable), np.arange(NEUTRALS.start, NEUTRALS.stop))
    colors = target[usable]
    scale = colors[grays].mean() / balanced[grays].mean()
    return Patches(balanced * scale, colors)


def _stated_kelvin(path: Path) -> float:
    """Return the colour temperature that a file's name states, such as 5000 of a_5000k_b.dng."""
    stated = re.findall(r"(?<![0-9a-z])(\d{4,5})k(?![0-9a-z])", path.stem.lower())
    if len(stated) != 1 or not MIN_KELVIN <= int(stated[0]) <= MAX_KELVIN:
        raise DataError(f"{path} does not state one colour temperature. {NAME_REMEDY}")
    return float(stated[0])
