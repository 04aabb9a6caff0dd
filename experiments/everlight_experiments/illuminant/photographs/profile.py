"""A camera profile (.dcp) for raw converters, from photographs of the classic chart of 24 patches.

    everlight illuminant profile tungsten.dng daylight.dng --illuminants A D65 --out camera.dcp

Each photograph shows the chart under one standard illuminant, or one near to it. One photograph
gives a profile of one illuminant; from two, converters interpolate by the white balance. The chart
is found automatically; otherwise charts.json in the photograph's folder places it: by file, such
as "IMG_1.dng", the [x, y] of the centres of dark skin, bluish green, black and white.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from everlight_data.color.charts.chart_colors import reference_colors
from everlight_data.color.charts.measured_chart import (
    MeasuredChart,
    measure_chart,
    read_chart_corners,
)
from everlight_data.color.photographs.camera_names import UNNAMED
from everlight_data.color.profiles.chart_profile import (
    EXIF_SOURCES,
    ChartFit,
    ChartIlluminant,
    fit_chart,
)
from everlight_data.color.raw_files.camera_profile import new_profile, write_profile
from everlight_data.color.raw_files.dng_colors import TEMPERATURES
from everlight_data.color.raw_files.photo_whites import photo_white
from everlight_data.color.raw_files.photos import is_picture
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_data.texts import one_line
from everlight_data.writing import make_folder
from everlight_experiments.run_folder.options import check_options

MAX_MIREDS = 40
"""Largest difference between a photograph's white point and its stated illuminant without a
warning, in reciprocal megakelvin: 5,003 and 6,504 K differ by 46."""


@dataclass(frozen=True)
class ProfileOptions:
    """Make a camera profile (.dcp) from raw photographs of a colour chart."""

    photos: tyro.conf.Positional[tuple[Path, ...]]
    """One or two raw files of one camera that show the chart of 24 patches, each under another
    illuminant. A charts.json in their folder places the chart where it is not found."""
    illuminants: tuple[ChartIlluminant, ...]
    """Standard illuminant of each photo, in the same order: A for tungsten lamps, D50 to D75 for
    daylight. Of other lamps, such as fluorescent ones, no profile can be made."""
    out: Path
    """File to write, which ends in .dcp."""
    name: str = "everlight"
    """Name of the profile that converters show."""

    def __post_init__(self):
        check_options(self)


def make_profile(options: ProfileOptions) -> Path:
    """Measure the charts, write the profile, print the colour errors, and return the profile.

    Raises:
      DataError: the photos are not one or two of one camera under different illuminants, a chart is
        not found or not usable, or the file cannot be written.
    """
    _check(options)
    charts = [_measure(path) for path in options.photos]
    cameras = {chart.camera for chart in charts}
    if len(cameras) > 1 or UNNAMED in cameras:
        raise DataError(
            f"the photos are by {one_line(', '.join(sorted(cameras)))}; give photos of one camera, "
            "whose name they state"
        )
    (camera,) = cameras
    warmest_first = list(EXIF_SOURCES)
    photographs = sorted(
        zip(options.illuminants, options.photos, charts, strict=True),
        key=lambda photograph: warmest_first.index(photograph[0]),
    )
    fits = []
    for illuminant, path, chart in photographs:
        fits.append(fit_chart(chart, illuminant))
        _warn_of_illuminant(path, chart, illuminant)
        print(f"{path}: {illuminant}, {_describe(chart, fits[-1])}")
    make_folder(options.out.parent)
    matrices = [fit.matrices for fit in fits]
    write_profile(options.out, new_profile(camera, options.name, matrices))
    print(f"profile of {camera}: {options.out}")
    return options.out


def _check(options: ProfileOptions) -> None:
    """Refuse options before a photo is read."""
    photos, illuminants = options.photos, options.illuminants
    if options.out.suffix.lower() != ".dcp":
        raise DataError(f"--out {options.out}: give the name of a file that ends in .dcp")
    if options.out.exists():
        raise DataError(f"--out {options.out} exists; move it or give another name")
    if len(photos) not in (1, 2) or len(photos) != len(illuminants):
        raise DataError(
            f"{len(photos)} photos and {len(illuminants)} illuminants; give one or two photos, and "
            "the illuminant of each as --illuminants"
        )
    if len(set(illuminants)) < len(illuminants):
        raise DataError(
            f"both photos are under {illuminants[0]}; give one photo of each illuminant"
        )
    _refuse_pictures(photos)


def _refuse_pictures(photos: Sequence[Path]) -> None:
    for path in photos:
        if is_picture(path):
            raise DataError(
                f"{path} does not state its camera and where the sensor saturates; give a raw file"
            )


def _measure(path: Path) -> MeasuredChart:
    corners = read_chart_corners(path.parent).get(path.name)
    return measure_chart(read_raw(path), corners, reference_colors())


def _warn_of_illuminant(path: Path, chart: MeasuredChart, illuminant: ChartIlluminant) -> None:
    """Warn where the raw file's own matrices give the chart's grey another temperature."""
    white = photo_white(read_raw(path, half_size=True), chart.illuminant)
    kelvin = TEMPERATURES[EXIF_SOURCES[illuminant]]
    if white is not None and abs(1e6 / white.temperature - 1e6 / kelvin) > MAX_MIREDS:
        print(
            f"WARNING: {path}: by the file's own matrices the illuminant has "
            f"{white.temperature:.0f} K, and {illuminant} has {kelvin:.0f} K; check --illuminants",
            file=sys.stderr,
        )


def _describe(chart: MeasuredChart, fit: ChartFit) -> str:
    """Return the number of patches and the colour errors in words."""
    return (
        f"{chart.usable.sum()} of 24 patches; CIEDE2000 mean {fit.errors.mean():.2f}, maximum "
        f"{fit.errors.max():.2f}; of each patch by a fit without it, mean "
        f"{fit.left_out_errors.mean():.2f}"
    )
