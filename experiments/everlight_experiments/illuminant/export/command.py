"""Write a camera's colours into a copy of a tuning file.

    everlight illuminant export imx708.npz --to libcamera --tuning imx708.json --out mine.json
    everlight illuminant export charts/ --to libcamera --tuning uncalibrated.json --out mine.json

The locus is fitted to illuminants of known colour temperature: labelled thumbnails, or raw
photographs of a colour chart. Photographs of a chart also give a colour matrix per temperature.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float

from everlight.checks import Between
from everlight.color.locus import MIRED, fit_color_matrix, fit_locus
from everlight_data.color.tuning_files.labelled_colors import (
    LabelledColors,
    Patches,
    read_labelled_colors,
)
from everlight_data.color.tuning_files.libcamera import read_tuning, replace_colors, write_tuning
from everlight_data.errors import DataError
from everlight_data.sets.camera_tuning import ColorMatrices, TemperatureCurve
from everlight_data.writing import make_folder
from everlight_experiments.report.cells import counted
from everlight_experiments.run_folder.options import check_options

MIN_TEMPERATURES = 2
"""Minimum number of different colour temperatures, the points of the shortest locus."""


@dataclass(frozen=True)
class ExportOptions:
    """Write a camera's CT curve and colour matrices into a copy of a tuning file."""

    source: tyro.conf.Positional[Path]
    """Illuminants of known colour temperature by one camera: an .npz of thumbnails with the array
    temperature, or a folder of raw photographs of a colour chart, whose names state the kelvin as
    in scene_5000k.dng, with an optional charts.json of chart corners."""
    tuning: Path
    """Tuning file of libcamera for Raspberry Pi to copy."""
    out: Path
    """File to write, .json. It is the tuning file with other numbers in ct_curve and, from
    photographs of a chart, in ccms; every other character is that of the tuning file."""
    to: Literal["libcamera"] = "libcamera"
    """Software that reads the file."""
    points: Annotated[int, Between(2, 50)] = 6
    """Largest number of points of the CT curve. With as many temperatures or fewer each is a point;
    else the points are quantiles of the temperatures, in mired."""

    def __post_init__(self):
        check_options(self)
        if self.out.suffix != ".json":
            raise DataError(f"--out {self.out}: give the name of a file that ends in .json")
        if self.out.exists() and self.tuning.exists() and self.out.samefile(self.tuning):
            raise DataError(f"--out {self.out} is the tuning file itself; give another name")


def export(options: ExportOptions) -> Path:
    """Write the tuning file, and return its path.

    Raises:
      DataError: the source or the tuning file is damaged or unusable, the temperatures are too few,
        or the file cannot be written.
    """
    tuning = read_tuning(options.tuning)
    colors = read_labelled_colors(options.source)
    if len({*colors.temperatures.tolist()}) < MIN_TEMPERATURES:
        raise DataError(
            f"{options.source} has {counted(len(colors.names), 'image')} of fewer than "
            f"{MIN_TEMPERATURES} colour temperatures; add images under other illuminants"
        )
    curve = fit_curve(colors, options.points)
    matrices = fit_matrices(colors) if colors.patches else None
    text = replace_colors(tuning, curve, matrices)
    make_folder(options.out.parent)
    write_tuning(options.out, text)
    low, high = curve.temperatures[[0, -1]]
    print(
        f"ct_curve: {len(curve.temperatures)} points from {counted(len(colors.names), 'image')}, "
        f"{low:.0f} K to {high:.0f} K; the images are {residual(colors, curve):.4f} from it on "
        "average, in R/G and B/G"
    )
    if matrices is None:
        print("ccms: those of the tuning file, since the source shows no colour chart")
    else:
        print(f"ccms: matrices of {counted(len(matrices.temperatures), 'temperature')}, by charts")
    print(f"tuning file: {options.out}")
    return options.out


def fit_curve(colors: LabelledColors, points: int) -> TemperatureCurve:
    """Return the locus of illuminants of known temperature, with at most that many points."""
    knots = np.unique(colors.temperatures)
    if len(knots) > points:
        shares = np.linspace(0, 1, points)
        knots = np.unique(np.round(MIRED / np.quantile(MIRED / colors.temperatures, shares)))
    kelvin, chromaticities, places = (
        jnp.asarray(values, jnp.float32)
        for values in (colors.temperatures, colors.chromaticities, knots)
    )
    fitted = fit_locus(kelvin, chromaticities, places)
    return TemperatureCurve(knots, np.asarray(fitted.chromaticities, float))


def fit_matrices(colors: LabelledColors) -> ColorMatrices:
    """Return the colour matrix of each temperature, from all its charts together."""
    kelvin = np.unique(np.round(colors.temperatures))
    matrices = [
        _fit_matrix(
            [
                patches
                for patches, stated in zip(colors.patches, colors.temperatures, strict=True)
                if round(stated) == place
            ]
        )
        for place in kelvin
    ]
    return ColorMatrices(kelvin, np.array(matrices))


def residual(colors: LabelledColors, curve: TemperatureCurve) -> float:
    """Return the mean distance of illuminants from the locus at their temperatures."""
    on_curve = [
        np.interp(colors.temperatures, curve.temperatures, channel)
        for channel in curve.chromaticities.T
    ]
    return float(np.linalg.norm(colors.chromaticities - np.stack(on_curve, axis=1), axis=1).mean())


def _fit_matrix(charts: list[Patches]) -> Float[np.ndarray, "3 3"]:
    balanced, target = (
        jnp.asarray(np.concatenate(parts), jnp.float32) for parts in zip(*charts, strict=True)
    )
    return np.asarray(fit_color_matrix(balanced, target), float)
