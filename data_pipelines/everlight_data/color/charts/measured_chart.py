"""The chart of one photo: found automatically or placed by FOLDER/charts.json, and measured."""

import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.metrics.angular import angular_error
from everlight_data.color.charts.chart_colors import (
    MAX_RESIDUAL,
    NEUTRALS,
    fit_residual,
    mark_clipped,
    read_chart,
)
from everlight_data.color.charts.chart_detection import find_charts
from everlight_data.color.charts.chart_geometry import CENTERS, chart_homography, map_points
from everlight_data.color.photographs.camera_names import UNNAMED
from everlight_data.color.raw_files.raw import RawImage
from everlight_data.errors import DataError
from everlight_data.formats.tables import read_json
from everlight_data.texts import one_line

LAYOUT = (
    'Write it into charts.json, {"FILE": [[x, y], [x, y], [x, y], [x, y]], ...}, each FILE as seen '
    "from there: the centres of dark skin, bluish green, black and white, in pixels of the upright "
    "picture."
)


class MeasuredChart(NamedTuple):
    """The chart of a photo, with the photo's height and width, orientation and camera."""

    homography: Float[np.ndarray, "3 3"]
    """Matrix from the chart's coordinates to pixels (`charts.chart_geometry`)."""
    colors: Float[np.ndarray, "24 3"]
    usable: Bool[np.ndarray, "24"]
    shape: tuple[int, int]
    flip: int
    camera: str

    @property
    def points(self) -> Float[np.ndarray, "24 2"]:
        """Centres of the patches in pixels."""
        return map_points(self.homography, CENTERS)

    @property
    def illuminant(self) -> Float[np.ndarray, "3"]:
        """The sum of the grey patches except black, as (R/G, 1, B/G)."""
        return chart_illuminant(self.colors, self.usable)

    @property
    def gray_spread(self) -> float:
        """Largest angle between a grey patch and the illuminant, in degrees.

        Shade, glare and a second illuminant make it large.
        """
        grays = jnp.asarray(chart_grays(self.colors, self.usable), jnp.float32)
        illuminant = jnp.asarray(self.illuminant, jnp.float32)
        return float(jnp.max(jax.vmap(angular_error, (0, None))(grays, illuminant)))


def read_chart_corners(
    folder: Path, views: Sequence[str] = ()
) -> dict[str, Float[np.ndarray, "4 2"]]:
    """Return the charts' corners in charts.json by file, such as a.dng; empty without that file.

    Args:
      folder: folder of charts.json.
      views: folders below it that hold the photographs, which are then named as main/a.dng; without
        them the photographs are in the folder itself.

    Raises:
      DataError: charts.json holds something else, names a file where no photograph is looked for,
        or names one twice.
    """
    path = folder / "charts.json"
    if not path.exists():
        return {}
    content = read_json(path, LAYOUT, 10_000_000)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no charts. {LAYOUT}")
    present = {file for view in views or ("",) for file in _file_names(folder, view)}
    corners = {}
    for stated, points in content.items():
        name = posixpath.normpath(stated)
        if name in corners:
            raise DataError(f"{path} has two charts of {one_line(name)}; remove one")
        try:
            corners[name] = np.array(points, np.float32)
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: {one_line(name)} has no corners. {LAYOUT}") from error
        is_valid = corners[name].shape == (4, 2) and np.all(np.isfinite(corners[name]))
        if not is_valid or chart_homography(corners[name]) is None:
            raise DataError(f"{path}: {one_line(name)} has no four corners of a chart. {LAYOUT}")
        if name not in present:
            place = f"in {' or '.join(views)}" if views else "directly in its folder"
            raise DataError(f"{path}: there is no file {one_line(stated)} {place}. {LAYOUT}")
    return corners


def _file_names(folder: Path, view: str) -> list[str]:
    """Return the names of the files in a folder or one below it, with that one's name."""
    place = folder / view
    paths = place.iterdir() if place.is_dir() else ()
    return [posixpath.join(view, path.name) for path in paths if path.is_file()]


def measure_chart(
    photo: RawImage, corners: Float[np.ndarray, "4 2"] | None, reference: Float[np.ndarray, "24 3"]
) -> MeasuredChart:
    """Return the chart of a photo; without corners it is searched.

    Raises:
      DataError: the chart is not found or not usable.
    """
    path = photo.path
    if corners is None:
        outlines = find_charts(photo.image, reference)
        if not outlines:
            raise DataError(f"{path}: no chart found. {LAYOUT}")
        if len(outlines) > 1:
            centers = (outline.mean(axis=0).round().astype(int).tolist() for outline in outlines)
            raise DataError(
                f"{path}: {len(outlines)} charts found, around {', '.join(map(str, centers))}; "
                f"choose the one under the illuminant to be measured. {LAYOUT}"
            )
        (corners,) = outlines
    chart = chart_homography(corners)
    height, width = photo.image.shape[:2]
    outer = map_points(chart, np.array([[-0.5, -0.5], [5.5, -0.5], [5.5, 3.5], [-0.5, 3.5]]))
    if not np.all((outer >= 0) & (outer <= [width - 1, height - 1])):
        raise DataError(
            f"{path}: the given chart extends beyond the {width}×{height} picture. {LAYOUT}"
        )
    seen = mark_clipped(read_chart(photo.image, photo.saturated, chart), photo.image, reference)
    known = seen.usable
    if known.sum() >= 12 and fit_residual(seen.colors[known], reference[known]) > MAX_RESIDUAL:
        raise DataError(f"{path}: there is no chart at the given corners. {LAYOUT}")
    if not seen.usable[NEUTRALS][:-1].any():
        raise DataError(f"{path}: all grey patches are saturated; reduce the exposure.")
    if seen.colors[NEUTRALS][:-1].min() <= 0 or seen.usable.sum() < 12:
        raise DataError(f"{path}: the chart is too dark or too saturated; change the exposure.")
    camera = photo.camera or UNNAMED
    return MeasuredChart(
        homography=chart,
        colors=seen.colors,
        usable=seen.usable,
        shape=(height, width),
        flip=photo.flip,
        camera=camera,
    )


def chart_illuminant(
    colors: Float[np.ndarray, "24 3"], usable: Bool[np.ndarray, "24"]
) -> Float[np.ndarray, "3"]:
    """Return (R/G, 1, B/G) of the sum of a chart's usable grey patches except black."""
    total = chart_grays(colors, usable).sum(axis=0)
    return total / total[1]


def chart_grays(
    colors: Float[np.ndarray, "24 3"], usable: Bool[np.ndarray, "24"]
) -> Float[np.ndarray, "k 3"]:
    """Return the colours of a chart's usable grey patches except black."""
    grays = slice(NEUTRALS.start, NEUTRALS.stop - 1)
    return colors[grays][usable[grays]].astype(float)
