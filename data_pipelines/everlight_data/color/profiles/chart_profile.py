"""Matrices of a camera profile, fitted to a photographed chart under a known illuminant.

The chart's XYZ under the illuminant is integrated from spectra of reflectance (BabelColor's mean of
30 charts, in colour-science) and of the CIE standard. Two matrices follow by least squares, both
exact for white: the inverse of ColorMatrix, from camera colours to XYZ under the illuminant, and
ForwardMatrix, from white-balanced camera colours to XYZ under D50.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.color.white_points import white_preserving_transform
from everlight_data.color.charts.chart_colors import NEUTRALS
from everlight_data.color.charts.measured_chart import MeasuredChart
from everlight_data.color.raw_files.camera_profile import IlluminantMatrices
from everlight_data.optional_packages import import_package

ChartIlluminant = Literal["A", "D50", "D55", "D65", "D75"]
EXIF_SOURCES: dict[ChartIlluminant, int] = {"A": 17, "D50": 23, "D55": 20, "D65": 21, "D75": 22}
"""EXIF's number of each standard illuminant, warmest first."""
REFLECTANCES = "BabelColor Average"


class ChartReference(NamedTuple):
    """XYZ of a chart's patches and of white, whose Y is 1, under an illuminant."""

    patches: Float[np.ndarray, "24 3"]
    white: Float[np.ndarray, "3"]


class ChartFit(NamedTuple):
    """Matrices of one illuminant, and the colour errors of the chart's usable patches.

    Attributes:
      matrices: those of the profile.
      errors: CIEDE2000 of each usable patch under D50, by the forward matrix of all of them.
      left_out_errors: the same by the forward matrix of the others.
    """

    matrices: IlluminantMatrices
    errors: Float[np.ndarray, "k"]
    left_out_errors: Float[np.ndarray, "k"]


def chart_reference(illuminant: ChartIlluminant) -> ChartReference:
    """Return XYZ of the chart under a standard illuminant.

    Raises:
      MissingPackageError: colour-science is not installed.
    """
    colour = import_package("colour")
    shape = colour.SpectralShape(380, 730, 5)
    spectrum = colour.SDS_ILLUMINANTS[illuminant].copy().align(shape).values
    observer = colour.MSDS_CMFS["CIE 1931 2 Degree Standard Observer"].copy().align(shape).values
    patches = colour.SDS_COLOURCHECKERS[REFLECTANCES].values()
    reflectances = np.stack([patch.copy().align(shape).values for patch in patches])
    weights = spectrum[:, None] * observer
    weights = weights / weights[:, 1].sum()
    return ChartReference(reflectances @ weights, weights.sum(axis=0))


def fit_chart(chart: MeasuredChart, illuminant: ChartIlluminant) -> ChartFit:
    """Fit the matrices of an illuminant to a measured chart.

    Args:
      chart: chart from `measure_chart`.
      illuminant: standard illuminant of the photograph.
    """
    reference, d50 = chart_reference(illuminant), chart_reference("D50")
    usable, colors = chart.usable, chart.colors.astype(float)
    neutral = _white_color(colors, reference, usable)
    to_xyz = _transform(colors[usable], reference.patches[usable], neutral, reference.white)
    color_matrix = np.linalg.inv(to_xyz).T
    color_matrix = color_matrix / (color_matrix @ d50.white).max()
    balanced, targets = colors[usable] / neutral, d50.patches[usable]
    forward = _transform(balanced, targets, np.ones(3), d50.white)
    left_out = []
    for row in range(len(balanced)):
        others = np.arange(len(balanced)) != row
        matrix = _transform(balanced[others], targets[others], np.ones(3), d50.white)
        left_out.append(_differences(balanced[row] @ matrix, targets[row], d50.white))
    return ChartFit(
        IlluminantMatrices(EXIF_SOURCES[illuminant], color_matrix, forward.T),
        _differences(balanced @ forward, targets, d50.white),
        np.array(left_out),
    )


def _white_color(
    colors: Float[np.ndarray, "24 3"], reference: ChartReference, usable: Bool[np.ndarray, "24"]
) -> Float[np.ndarray, "3"]:
    """Return the camera's colour of a white surface, whose Y is 1.

    It is the sum of the grey patches, times the ratio of white to their sum that a matrix from XYZ
    predicts: the patches are not exactly grey.
    """
    grays = slice(NEUTRALS.start, NEUTRALS.stop - 1)
    known = usable[grays]
    response = np.linalg.lstsq(reference.patches[usable], colors[usable])[0]
    predicted = reference.patches[grays][known].sum(axis=0) @ response
    return colors[grays][known].sum(axis=0) * (reference.white @ response) / predicted


_fit = jax.jit(white_preserving_transform)


def _transform(*arrays: Float[np.ndarray, "..."]) -> Float[np.ndarray, "3 3"]:
    """Return `white_preserving_transform` of arrays of float64."""
    return np.asarray(_fit(*(jnp.asarray(array, jnp.float32) for array in arrays)), float)


def _differences(
    xyz: Float[np.ndarray, "*n 3"], target: Float[np.ndarray, "*n 3"], white: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "*n"]:
    """Return CIEDE2000 between colours, both seen under a white."""
    colour = import_package("colour")
    lab = [colour.XYZ_to_Lab(colors, colour.XYZ_to_xy(white)) for colors in (xyz, target)]
    return colour.difference.delta_E_CIE2000(*lab)
