"""Raw pairs with a colour chart in each picture: files, charts and their patches.

FOLDER holds `main/` and `second/` with one raw file per pair in each. The names of a pair differ
only in the extension. Charts are found automatically, or placed by FOLDER/charts.json.
"""

import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from everlight.color.alignment import area_downsample, fit_homography
from everlight.color.moments import color_moments
from everlight.color.transforms import fit_color_transform
from everlight.illuminant.pair_estimate import MAX_CONDITION
from everlight.illuminant.pair_model import VIEWS
from everlight.metrics.angular import angular_error
from everlight_data.color.charts.chart import (
    CENTERS,
    MAX_RESIDUAL,
    NEUTRALS,
    chart_homography,
    chart_mask,
    find_charts,
    fit_residual,
    map_points,
    mark_clipped,
    read_chart,
)
from everlight_data.color.pairs.view_pairs import align_thumbnails, read_homography
from everlight_data.color.photographs.camera_names import UNNAMED
from everlight_data.color.raw_files.raw import MAX_BYTES, RawImage, read_raw
from everlight_data.errors import DataError
from everlight_data.formats.files import read_bytes, read_json
from everlight_data.texts import one_line

MIN_PAIRS = 6
"""Minimum number of pairs, and of scenes, of a calibration."""
SIDE = 96
"""Longest side in pixels of the images for single-image methods."""
ONE_KIND = {
    "shapes": "photos of one view differ in size",
    "flips": "photos of one view were held differently",
    "cameras": "photos of one view are by different cameras",
}
LAYOUT = (
    'Write it into charts.json, {"FILE": [[x, y], [x, y], [x, y], [x, y]], ...}, each FILE as seen '
    "from there: the centres of dark skin, bluish green, black and white, in pixels of the upright "
    "picture."
)


class PairFiles(NamedTuple):
    """One scene's raw files with the checksums that identify their measurements."""

    name: str
    main: Path
    second: Path
    checksums: Mapping[str, int]


class PairCharts(NamedTuple):
    """Both charts of a pair, main first."""

    charts: Float[np.ndarray, "2 3 3"]
    colors: Float[np.ndarray, "2 24 3"]
    usable: Bool[np.ndarray, "2 24"]
    shapes: Int[np.ndarray, "2 2"]
    flips: Int[np.ndarray, "2"]
    cameras: np.ndarray

    def points(self, view: int) -> Float[np.ndarray, "24 2"]:
        """Return the centres of the patches in pixels."""
        return map_points(self.charts[view], CENTERS)

    def illuminant(self, view: int) -> Float[np.ndarray, "3"]:
        """Return (R/G, 1, B/G) of the sum of the grey patches except black."""
        return chart_illuminant(self.colors[view], self.usable[view])

    def gray_spread(self, view: int) -> float:
        """Return the largest angle between a grey patch and the illuminant, in degrees.

        Shade, glare and a second illuminant make it large.
        """
        grays = jnp.asarray(_grays(self.colors[view], self.usable[view]), jnp.float32)
        illuminant = jnp.asarray(self.illuminant(view), jnp.float32)
        return float(jnp.max(jax.vmap(angular_error, (0, None))(grays, illuminant)))


def chart_illuminant(
    colors: Float[np.ndarray, "24 3"], usable: Bool[np.ndarray, "24"]
) -> Float[np.ndarray, "3"]:
    """Return (R/G, 1, B/G) of the sum of a chart's usable grey patches except black."""
    total = _grays(colors, usable).sum(axis=0)
    return total / total[1]


def _grays(
    colors: Float[np.ndarray, "24 3"], usable: Bool[np.ndarray, "24"]
) -> Float[np.ndarray, "k 3"]:
    grays = slice(NEUTRALS.start, NEUTRALS.stop - 1)
    return colors[grays][usable[grays]].astype(float)


def find_pairs(folder: Path) -> list[PairFiles]:
    """Return the raw files of `main` and `second`, paired by name.

    Raises:
      DataError: a folder is missing, a file has no partner, a name occurs twice, or there are too
        few pairs.
    """
    files = {}
    for view in VIEWS:
        if not (folder / view).is_dir():
            raise DataError(
                f"{folder / view} is not a folder; put the {view} camera's raw files there"
            )
        paths = sorted(path for path in (folder / view).iterdir() if path.is_file())
        paths = [path for path in paths if not path.name.startswith(".")]
        files[view] = {path.stem: path for path in paths}
        if len(files[view]) < len(paths):
            raise DataError(
                f"{folder / view} has two files whose names differ only in the extension"
            )
    unpaired = sorted(files["main"].keys() ^ files["second"].keys())
    if unpaired:
        raise DataError(
            f"{folder}: {one_line(', '.join(unpaired))} in only one of main and second; the files "
            "of a pair have the same name in both"
        )
    if (count := len(files["main"])) < MIN_PAIRS:
        raise DataError(
            f"{folder} has {count} pair{'s' * (count != 1)}; {MIN_PAIRS} under different "
            "illuminants are the minimum, and thirty are better"
        )
    return [
        PairFiles(name, *paths, dict(zip(VIEWS, map(_checksum, paths), strict=True)))
        for name, paths in ((name, [files[view][name] for view in VIEWS]) for name in files["main"])
    ]


def _checksum(path: Path) -> int:
    return zlib.crc32(read_bytes(path, MAX_BYTES, ""))


def read_chart_corners(folder: Path) -> dict[str, Float[np.ndarray, "4 2"]]:
    """Return the charts' corners in charts.json by file; empty without that file.

    Raises:
      DataError: charts.json holds something else, or names a missing file.
    """
    path = folder / "charts.json"
    if not path.exists():
        return {}
    content = read_json(path, LAYOUT, 10_000_000)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no charts. {LAYOUT}")
    corners = {}
    for name, points in content.items():
        try:
            corners[name] = np.array(points, np.float32)
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: {one_line(name)} has no corners. {LAYOUT}") from error
        is_valid = corners[name].shape == (4, 2) and np.all(np.isfinite(corners[name]))
        if not is_valid or chart_homography(corners[name]) is None:
            raise DataError(f"{path}: {one_line(name)} has no four corners of a chart. {LAYOUT}")
        if not (folder / name).is_file():
            raise DataError(f"{path}: there is no {folder / one_line(name)}. {LAYOUT}")
    return corners


def read_chart_pair(
    folder: Path,
    pair: PairFiles,
    corners: Mapping[str, Float[np.ndarray, "4 2"]],
    reference: Float[np.ndarray, "24 3"],
) -> PairCharts:
    """Read both charts of a pair.

    Args:
      folder: folder of the pairs.
      pair: raw files.
      corners: corners by file, where they are given.
      reference: colours of the patches.

    Raises:
      DataError: a chart is not found or not usable.
    """
    views = [
        measure_chart(read_raw(path), corners.get(str(path.relative_to(folder))), reference)
        for path in (pair.main, pair.second)
    ]
    return PairCharts(*(np.stack([view[name] for view in views]) for name in PairCharts._fields))


def check_one_kind(folder: Path, files: Sequence[PairFiles], charts: Sequence[PairCharts]) -> None:
    """Refuse photos of one view that differ in size, orientation or camera.

    Raises:
      DataError: the message names two of them.
    """
    for kind, differ in ONE_KIND.items():
        first = getattr(charts[0], kind)
        for pair, pair_charts in zip(files, charts, strict=True):
            if np.any(getattr(pair_charts, kind) != first):
                raise DataError(
                    f"{folder}: {differ}, as in {pair.name} and {files[0].name}; give one "
                    "camera's photos in main/, the other's in second/, all in the same orientation"
                )


def measure_chart(
    photo: RawImage, corners: Float[np.ndarray, "4 2"] | None, reference: Float[np.ndarray, "24 3"]
) -> dict[str, np.ndarray]:
    """Return one photo's part of `PairCharts`, by its fields; without corners the chart is found.

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
    return {
        "charts": chart,
        "colors": seen.colors,
        "usable": seen.usable,
        "shapes": np.array([height, width]),
        "flips": np.array(photo.flip),
        "cameras": np.array(photo.camera or UNNAMED),
    }


def align_cameras(
    path: Path | None, charts: Sequence[PairCharts]
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "n"]]:
    """Return one homography for all pairs, and each pair's root mean square residual in pixels.

    Args:
      path: file of the homography; None fits it to the patches of all charts.
      charts: charts of all pairs.

    Raises:
      DataError: the charts determine no homography, or the file is damaged.
    """
    main, second = (np.stack([pair.points(view) for pair in charts]) for view in (0, 1))
    if path is not None:
        homography = read_homography(path)
    else:
        fit = fit_homography(jnp.asarray(main.reshape(-1, 2)), jnp.asarray(second.reshape(-1, 2)))
        if not fit.valid:
            raise DataError(
                "the charts give no homography between the two cameras; give it by --homography"
            )
        homography = np.asarray(fit.homography)
    mapped = map_points(homography, main.reshape(-1, 2)).reshape(second.shape)
    return homography, np.sqrt(np.mean(np.sum((mapped - second) ** 2, axis=2), axis=1))


def measure_pair(
    pair: PairFiles, chart: PairCharts, homography: Float[np.ndarray, "3 3"], factor: int
) -> dict[str, np.ndarray]:
    """Return the transform, both images' moments and both small images, with charts masked.

    Raises:
      DataError: the views do not fit together, or the scene determines no transform.
    """
    photos = {view: read_raw(getattr(pair, view)) for view in VIEWS}
    thumbnails = align_thumbnails(photos["main"], photos["second"], homography, factor)
    free = chart_mask(thumbnails.mask.shape, in_blocks(factor) @ chart.charts[0])
    mask = thumbnails.mask & free
    colors = {view: jnp.asarray(getattr(thumbnails, view).reshape(-1, 3)) for view in VIEWS}
    weights = jnp.asarray(mask.ravel(), jnp.float32)
    fit = fit_color_transform(colors["main"], colors["second"], weights, "scale")
    if not fit.valid or np.linalg.cond(thumbnails.main[mask]) > MAX_CONDITION:
        raise DataError(
            f"{pair.main}: beside the chart are fewer than three independent colours, too few for "
            "a transform; take the pair out, or photograph a more colourful scene."
        )
    measured = {"transform": np.asarray(fit.transform)}
    for view, on_photo in zip(VIEWS, chart.charts, strict=True):
        measured[f"moments_{view}"] = np.asarray(_nine_moments(colors[view], weights))
        image, small_mask = small_without_chart(photos[view], on_photo, SIDE)
        measured |= {f"image_{view}": image, f"mask_{view}": small_mask}
    return measured


_nine_moments = jax.jit(partial(color_moments, degree=2))


def in_blocks(factor: int) -> Float[np.ndarray, "3 3"]:
    """Return the homography from pixels to blocks of `factor` pixels."""
    shift = (1 - factor) / (2 * factor)
    return np.array([[1 / factor, 0, shift], [0, 1 / factor, shift], [0, 0, 1]])


def small_without_chart(
    photo: RawImage, chart: Float[np.ndarray, "3 3"], side: int
) -> tuple[Float[np.ndarray, "a b 3"], Float[np.ndarray, "a b"]]:
    """Return the image without chart and saturated pixels, at most `side` wide, and its mask."""
    factor = max(1, -(-max(photo.image.shape) // side))
    small = area_downsample(jnp.asarray(photo.image), factor, jnp.asarray(~photo.saturated))
    mask = np.asarray(small.mask)
    mask = mask & chart_mask(mask.shape, in_blocks(factor) @ chart)
    image = np.maximum(np.asarray(small.image), 0) * mask[..., None]
    return image, mask.astype(np.float32)
