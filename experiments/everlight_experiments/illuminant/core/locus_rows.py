"""Estimates on the locus of their cameras, and errors in colour temperature."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import chromaticity_to_illuminant, illuminant_to_chromaticity
from everlight.color.locus import MIRED, LocusPoint, nearest_on_locus
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.color.tuning_files.tuning_colors import locus_of, rendering_at
from everlight_data.sets.camera_tuning import TemperatureCurve
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    angular_errors,
    lowest_row,
)
from everlight_experiments.report.writer import Column, Section, Table

ON_LOCUS = ", on the CT curve"
"""End of the name of a method whose estimates are the nearest points of the locus."""
CAMERA = "The camera's white balance"
"""Name of the estimates by the camera's own white balance."""

FAR = 0.1
"""Distance from a CT curve, in R/G and B/G, from which an estimate has a warning."""


@jax.jit
def _nearest(locus, illuminants: Float[jax.Array, "n 3"]) -> LocusPoint:
    chromaticities = illuminant_to_chromaticity(illuminants)
    return jax.vmap(partial(nearest_on_locus, locus))(chromaticities)


def nearest_points(curve: TemperatureCurve, illuminants: Float[np.ndarray, "n 3"]) -> LocusPoint:
    """Return the nearest points of a locus to illuminants, leading axis `n`."""
    return _nearest(locus_of(curve), jnp.asarray(illuminants, jnp.float32))


class CurvePoint(NamedTuple):
    """The point of a CT curve nearest to an estimate.

    Attributes:
      kelvin: its colour temperature.
      red: its R/G.
      blue: its B/G.
      distance: distance of the estimate from it, as `LocusPoint.distance`: positive on the magenta
        side.
    """

    kelvin: float
    red: float
    blue: float
    distance: float

    def in_words(self) -> str:
        """Return the point and the distance in words."""
        side = "magenta" if self.distance > 0 else "green"
        return (
            f"nearest on the CT curve: {self.kelvin:,.0f} K ({MIRED / self.kelvin:.1f} mired), r/g "
            f"{self.red:.4f}, b/g {self.blue:.4f}; {abs(self.distance):.4f} from it, on the {side} "
            "side"
        )

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if the estimate is farther from the point than lights usually are."""
        if abs(self.distance) <= FAR:
            return ()
        return (
            f"the estimate is {abs(self.distance):.4f} from the CT curve, more than {FAR:g}: the "
            "curve may be another camera's, or the estimate wrong",
        )

    def cells(self) -> dict[str, str]:
        """Return the cells of the table of illuminants."""
        return {
            "temperature on CT curve, K": f"{self.kelvin:.1f}",
            "mired on CT curve": f"{MIRED / self.kelvin:.2f}",
            "r/g on CT curve": f"{self.red:.6f}",
            "b/g on CT curve": f"{self.blue:.6f}",
            "distance from CT curve": f"{self.distance:.6f}",
        }


def nearest_to(curve: TemperatureCurve, illuminant: Float[np.ndarray, "3"]) -> CurvePoint:
    """Return the nearest point of a CT curve to one illuminant."""
    points = nearest_points(curve, illuminant[None])
    red, blue = np.asarray(points.chromaticity[0]).tolist()
    return CurvePoint(float(points.temperature[0]), red, blue, float(points.distance[0]))


def with_locus(
    estimates: Mapping[str, Float[np.ndarray, "n 3"]], data: IlluminantImages
) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Return estimates by method, with the cameras' own and all of them on the cameras' locus.

    Images of cameras without a locus keep their estimates; without any locus there are no such
    rows, and without the cameras' own estimates none of these.
    """
    rows = dict(estimates)
    if data.tunings:
        rows |= {name + ON_LOCUS: _on_locus(values, data) for name, values in estimates.items()}
    if data.camera_estimates is not None:
        rows[CAMERA] = data.camera_estimates
    return rows


def with_tested_locus(
    estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]],
    data: IlluminantImages,
    hidden: Collection[str],
) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
    """Return estimates of the folds' images as `with_locus` does, for tests of one camera.

    Args:
      estimates: estimates by method.
      data: images of which the folds test those by `data.camera`.
      hidden: methods that reports do not show, which get no second row.
    """
    rows = dict(estimates)
    if (tuning := data.tunings.get(data.camera)) is not None:
        for name in sorted(estimates.keys() - {*hidden}):
            points = nearest_points(tuning.needed_curve(), estimates[name].reshape(-1, 3))
            moved = np.asarray(chromaticity_to_illuminant(points.chromaticity))
            rows[name + ON_LOCUS] = moved.reshape(estimates[name].shape)
    if data.camera_estimates is not None:
        rows[CAMERA] = data.camera_estimates[np.stack(data.folds)][None]
    return rows


def locus_sections(
    comparison: Comparison, by_row: Mapping[str, Float[np.ndarray, "n 3"]], data: IlluminantImages
) -> list[Section]:
    """Return the report's section on colour temperature; empty unless all cameras have a locus.

    Args:
      comparison: comparison whose units the intervals resample, with every image once. Units other
        than images are in the order of `data`.
      by_row: estimates of every image by method.
      data: images in the order of the estimates.
    """
    if {*data.taken_by} - data.tunings.keys():
        return []
    return [Section("Colour temperature", (), [temperature_table(comparison, by_row, data)])]


def temperature_table(
    comparison: Comparison, by_row: Mapping[str, Float[np.ndarray, "n 3"]], data: IlluminantImages
) -> Table:
    """Return mean errors in mired and in degrees of rendered colours, and distances, by method."""
    true = _described(data.illuminants, data)
    errors = {name: _errors(_described(values, data), true) for name, values in by_row.items()}
    rows = []
    for name, error in errors.items():
        row = [name, *_mean_cells(comparison, error.mired), *_mean_cells(comparison, error.degrees)]
        row += [f"{np.mean(error.distance):.3f}"]
        if CAMERA in errors:
            gain = errors[CAMERA].mired - error.mired
            row += ["–"] * 2 if name == CAMERA else list(_mean_cells(comparison, gain))
        rows.append(row)
    columns = [Column("Method")]
    columns += [Column(name, "mired") for name in ("Mean", "95% interval")]
    columns += [Column(name, "degrees at 5,000 K") for name in ("Mean", "95% interval")]
    columns += [Column("Distance from the CT curve", "R/G and B/G")]
    if CAMERA in errors:
        title = f"{CAMERA} minus method, mired"
        columns += [Column(name, title) for name in ("Mean", "95% interval")]
    caption = (
        "Mean absolute errors of the temperature of the nearest point of the camera's CT curve, in "
        "mired (1,000,000 / kelvin). Degrees at 5,000 K: angular errors of the illuminants as the "
        "tuning file renders them, divided by its white of 5,000 K and multiplied by its colour "
        f"matrix. The intervals are bootstraps over {comparison.unit_name}."
    )
    best = lowest_row([error.mired.mean() for error in errors.values()])
    return Table(caption, columns, rows, best)


def _on_locus(
    estimates: Float[np.ndarray, "n 3"], data: IlluminantImages
) -> Float[np.ndarray, "n 3"]:
    moved = np.array(estimates, np.float32)
    for camera, tuning in data.tunings.items():
        rows = np.array(data.taken_by) == camera
        points = nearest_points(tuning.needed_curve(), moved[rows])
        moved[rows] = np.asarray(chromaticity_to_illuminant(points.chromaticity))
    return moved


class _Colors(NamedTuple):
    """Illuminants of all images as their cameras' tuning files describe them."""

    kelvin: Float[np.ndarray, "n"]
    """Temperature of the nearest point of the locus."""
    rendered: Float[np.ndarray, "n 3"]
    distance: Float[np.ndarray, "n"]
    """Absolute distance from the locus."""


class _LocusErrors(NamedTuple):
    """Errors of estimates in mired and in degrees of rendered colours."""

    mired: Float[np.ndarray, "n"]
    degrees: Float[np.ndarray, "n"]
    distance: Float[np.ndarray, "n"]
    """Absolute distance of the estimate from the locus."""


def _described(illuminants: Float[np.ndarray, "n 3"], data: IlluminantImages) -> _Colors:
    """Return the illuminants as their cameras' tuning files describe them."""
    count = len(illuminants)
    kelvin, rendered, distance = np.zeros(count), np.zeros((count, 3)), np.zeros(count)
    for camera, tuning in data.tunings.items():
        rows = np.array(data.taken_by) == camera
        curve = tuning.needed_curve()
        points = nearest_points(curve, illuminants[rows])
        kelvin[rows], distance[rows] = points.temperature, np.abs(points.distance)
        rendered[rows] = illuminants[rows] @ rendering_at(curve, tuning.needed_matrices())
    return _Colors(kelvin, rendered.astype(np.float32), distance)


def _errors(estimated: _Colors, true: _Colors) -> _LocusErrors:
    """Return the errors of estimates."""
    degrees = angular_errors(jnp.asarray(estimated.rendered), jnp.asarray(true.rendered))
    mired = np.abs(MIRED / estimated.kelvin - MIRED / true.kelvin)
    return _LocusErrors(mired, np.asarray(degrees), estimated.distance)


def _mean_cells(comparison: Comparison, values: Float[np.ndarray, "n"]) -> tuple[str, str]:
    """Return a mean and its interval as cells; a mean is of all images."""
    mean = np.mean(values)
    if not np.isfinite(mean):
        return f"{mean:.2f}", "–"
    # A range of negative numbers would have two kinds of dashes side by side.
    return f"{mean:.2f}", comparison.interval_in_words(values[None, None], " to ")
