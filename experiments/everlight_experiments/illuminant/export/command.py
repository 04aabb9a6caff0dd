"""Write a camera's colours into a copy of a tuning file.

    everlight illuminant export imx708.npz --tuning imx708.json --out mine.json
    everlight illuminant export charts/ --tuning imx708.json --out mine.json

The locus is fitted to illuminants of known colour temperature: labelled thumbnails, or raw
photographs of a colour chart. Photographs of a chart also give a colour matrix per temperature.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float

from everlight.checks import Between
from everlight.color.locus import fit_color_matrix, fit_locus
from everlight_data.color.tuning_files.labelled_colors import (
    LabelledColors,
    Patches,
    read_labelled_colors,
)
from everlight_data.color.tuning_files.libcamera import (
    CURVE_DIGITS,
    read_tuning,
    replace_colors,
    searched_temperatures,
    write_tuning,
)
from everlight_data.color.tuning_files.module_names import refuse_other_module
from everlight_data.color.tuning_files.tuning_colors import illuminants_at
from everlight_data.errors import DataError
from everlight_data.sets.camera_tuning import ColorMatrices, TemperatureCurve, Tuning
from everlight_data.writing import make_folder
from everlight_experiments.report.cells import counted
from everlight_experiments.run_folder.options import check_options

MIN_TEMPERATURES = 2
"""Minimum number of different whole colour temperatures, the points of the shortest locus."""
SAME_CURVE = 0.0005
"""Mean distance of illuminants that a curve gave, by the rounding of its four decimals."""


@dataclass(frozen=True)
class ExportOptions:
    """Write a camera's CT curve and colour matrices into a copy of a tuning file."""

    source: tyro.conf.Positional[Path]
    """Illuminants of known colour temperature by one camera: an .npz of thumbnails with the array
    temperature, or a folder of raw photographs of a colour chart, whose names state the kelvin as
    in scene_5000k.dng, with an optional charts.json of the charts' patches."""
    tuning: Path
    """Tuning file of libcamera for Raspberry Pi to copy. One that is named after another module
    than the source's camera, as imx219.json for imx708.npz, is refused. Its ct_curve should not be
    what the source's illuminants were made from: the new curve would only repeat it."""
    out: Path
    """File to write, .json. It is the tuning file with other numbers in ct_curve and, from
    photographs of a chart, in ccms; every other character is that of the tuning file."""
    points: Annotated[int, Between(2, 50)] = 6
    """Largest number of points of the CT curve. With as many temperatures or fewer each is a point;
    else the points are quantiles of the images' temperatures, each the temperature of one."""

    def __post_init__(self):
        check_options(self)
        if self.out.suffix != ".json":
            raise DataError(f"--out {self.out}: give the name of a file that ends in .json")
        if self.out.exists():
            raise DataError(f"--out {self.out} exists; move it or give another name")


def export(options: ExportOptions) -> Path:
    """Write the tuning file, and return its path.

    Raises:
      DataError: the source or the tuning file is damaged or unusable, the temperatures are too few,
        or the file cannot be written.
    """
    tuning = read_tuning(options.tuning)
    tuning.needed_curve()
    if options.source.is_dir():
        tuning.needed_matrices()
    colors = read_labelled_colors(options.source)
    refuse_other_module(options.tuning, colors.camera, f"the camera of {options.source}")
    if len(np.unique(np.round(colors.temperatures))) < MIN_TEMPERATURES:
        raise DataError(
            f"{options.source} has {counted(len(colors.names), 'image')} of fewer than "
            f"{MIN_TEMPERATURES} colour temperatures; add images under other illuminants"
        )
    curve = fit_curve(colors, options.points)
    _refuse_one_color(options.source, curve)
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
    print(replaced_in_words(colors, tuning))
    if matrices is None:
        print("ccms: those of the tuning file, since the source shows no colour chart")
    else:
        print(f"ccms: matrices of {counted(len(matrices.temperatures), 'temperature')}, by charts")
    for warning in curve_warnings(tuning, curve):
        print(f"warning: {warning}")
    print(f"tuning file: {options.out}")
    return options.out


def fit_curve(colors: LabelledColors, points: int) -> TemperatureCurve:
    """Return the locus of illuminants of known temperature, with at most that many points."""
    # A tuning file has one decimal.
    temperatures = np.round(colors.temperatures, 1)
    knots = np.unique(temperatures)
    if len(knots) > points:
        # A knot between the temperatures of images may have none near, and no determined value.
        shares = np.linspace(0, 1, points)
        knots = np.unique(np.quantile(temperatures, shares, method="nearest"))
    kelvin, chromaticities, places = (
        jnp.asarray(values, jnp.float32) for values in (temperatures, colors.chromaticities, knots)
    )
    fitted = fit_locus(kelvin, chromaticities, places)
    return TemperatureCurve(knots, np.asarray(fitted.chromaticities, float))


def fit_matrices(colors: LabelledColors) -> ColorMatrices:
    """Return the colour matrix of each temperature, from all its charts together.

    Raises:
      DataError: the charts of a temperature have only greys, or colours of one hue.
    """
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
    undetermined = ~np.isfinite(matrices).all(axis=(1, 2))
    if undetermined.any():
        raise DataError(
            f"the charts at {kelvin[undetermined][0]:g} kelvin have no three independent colours, "
            "which give no colour matrix; photograph a chart whose coloured patches are not "
            "saturated"
        )
    return ColorMatrices(kelvin, np.array(matrices))


def residual(colors: LabelledColors, curve: TemperatureCurve) -> float:
    """Return the mean distance of illuminants from the locus at their temperatures."""
    on_curve = illuminants_at(curve, colors.temperatures)[:, ::2]
    return float(np.linalg.norm(colors.chromaticities - on_curve, axis=1).mean())


def replaced_in_words(colors: LabelledColors, tuning: Tuning) -> str:
    """Return how far illuminants are from the curve that is replaced, at their temperatures."""
    distance = residual(colors, tuning.needed_curve())
    replaced = f"replaced: the ct_curve of {tuning.path}; the images are {distance:.4f} from it"
    if distance >= SAME_CURVE:
        return replaced
    return f"{replaced}, thus their illuminants are its points, and the new curve only repeats it"


def curve_warnings(tuning: Tuning, curve: TemperatureCurve) -> list[str]:
    """Return what may make libcamera's white balance wrong by a CT curve.

    libcamera searches all temperatures of a mode, and continues the curve's first and last segments
    beyond their ends (`src/ipa/libipa/pwl.cpp`).
    """
    warnings = []
    low, high = curve.temperatures[[0, -1]]
    searched = searched_temperatures(tuning)
    if searched is not None and (searched[0] < low or searched[1] > high):
        warnings.append(
            f"the CT curve has {low:.0f} K to {high:.0f} K, and the awb modes of {tuning.path} "
            f"search {searched[0]:.0f} K to {searched[1]:.0f} K; libcamera extends the first and "
            "last segments there, so add images of such temperatures"
        )
    red, blue = np.diff(curve.chromaticities, axis=0).T
    for name, is_wrong in (("R/G does not fall", red >= 0), ("B/G does not rise", blue <= 0)):
        if is_wrong.any():
            place = np.flatnonzero(is_wrong)[0]
            start, end = curve.temperatures[place : place + 2]
            warnings.append(
                f"{name} from {start:.0f} K to {end:.0f} K, as it does under usual illuminants; "
                "check the temperatures of the images"
            )
    return warnings


def _refuse_one_color(source: Path, curve: TemperatureCurve) -> None:
    """Refuse a CT curve whose points have one colour in the file, and thus no temperature."""
    colors = np.unique(np.round(curve.chromaticities, CURVE_DIGITS), axis=0)
    if len(colors) == 1:
        red, blue = colors[0]
        raise DataError(
            f"the illuminants of {source} have R/G {red:g} and B/G {blue:g} at all temperatures, "
            "which gives no curve; check the illuminants and the temperatures"
        )


def _fit_matrix(charts: list[Patches]) -> Float[np.ndarray, "3 3"]:
    balanced, target = (
        jnp.asarray(np.concatenate(parts), jnp.float32) for parts in zip(*charts, strict=True)
    )
    return np.asarray(fit_color_matrix(balanced, target), float)
