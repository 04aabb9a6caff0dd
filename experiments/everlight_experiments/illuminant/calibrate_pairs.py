"""Raw pairs with a colour chart in them: found, read, aligned and measured.

FOLDER holds `main/` and `second/`, one raw file of each for every pair, of the same name but for
the ending. The charts are found by themselves, or placed by FOLDER/charts.json. A pair's lights are
those of its grey patches; its transform is fitted as `estimate` fits it, with the chart masked.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from everlight.color.alignment import area_downsample, fit_homography
from everlight.color.transforms import fit_color_transform
from everlight_data.color.chart import (
    CENTRES,
    MAX_RESIDUAL,
    NEUTRALS,
    chart_homography,
    chart_mask,
    find_chart,
    fit_residual,
    map_points,
    read_chart,
    reference_colors,
)
from everlight_data.color.quasi_real import QuasiReal
from everlight_data.color.raw import MAX_BYTES, RawImage, read_raw
from everlight_data.errors import DataError
from everlight_data.files import one_line, read_bytes, read_json
from everlight_experiments.common.progress import progress
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.illuminant.estimate import (
    MAX_CONDITION,
    align_thumbnails,
    read_homography,
)
from everlight_experiments.illuminant.image_sets import ImageSet
from everlight_experiments.illuminant.model_files import nine_moments
from everlight_experiments.illuminant.tables import angular_errors

VIEWS = ("main", "second")
LEAST_PAIRS = 6
ONE_KIND = {
    "shapes": "photos of one view differ in size",
    "flips": "photos of one view were held differently",
    "cameras": "photos of one view are by different cameras",
}
SIDE = 96
"""Longest side of the image that methods of one image see."""
LAYOUT = (
    'Write it into charts.json, {"main/NAME": [[x, y], [x, y], [x, y], [x, y]], ...}: the centres '
    "of dark skin, bluish green, black and white, in pixels of the upright picture."
)


class PairFiles(NamedTuple):
    """One scene's raw files, and their checksums: what was measured of others is not theirs."""

    name: str
    main: Path
    second: Path
    checksums: Mapping[str, int]


class PairCharts(NamedTuple):
    """One pair's charts, main first."""

    charts: Float[np.ndarray, "2 3 3"]
    colors: Float[np.ndarray, "2 24 3"]
    usable: Bool[np.ndarray, "2 24"]
    shapes: Int[np.ndarray, "2 2"]
    flips: Int[np.ndarray, "2"]
    cameras: np.ndarray

    def points(self, view: int) -> Float[np.ndarray, "24 2"]:
        """Centres of the patches in pixels."""
        return map_points(self.charts[view], CENTRES)

    def light(self, view: int) -> Float[np.ndarray, "3"]:
        """Of the grey patches but black, weighted by their brightness, as (R/G, 1, B/G)."""
        total = self._greys(view).sum(axis=0)
        return total / total[1]

    def grey_spread(self, view: int) -> float:
        """Largest angle between a grey patch and the light, in degrees: shade or glare shows."""
        greys = jnp.asarray(self._greys(view), jnp.float32)
        return float(jnp.max(angular_errors(greys, jnp.asarray(self.light(view), jnp.float32))))

    def _greys(self, view: int) -> Float[np.ndarray, "k 3"]:
        greys = slice(NEUTRALS.start, NEUTRALS.stop - 1)
        return self.colors[view, greys][self.usable[view, greys]].astype(float)


def find_pairs(folder: Path) -> list[PairFiles]:
    """The raw files below `main` and `second`, by name.

    Raises:
      DataError: no such folders, a file without its partner, a name twice, or too few pairs.
    """
    found = {}
    for view in VIEWS:
        if not (folder / view).is_dir():
            raise DataError(
                f"{folder / view} is no folder; put the {view} camera's raw files there"
            )
        paths = sorted(each for each in (folder / view).iterdir() if each.is_file())
        paths = [each for each in paths if not each.name.startswith(".")]
        found[view] = {path.stem: path for path in paths}
        if len(found[view]) < len(paths):
            raise DataError(f"{folder / view} has two files of one name but for the ending")
    alone = sorted(found["main"].keys() ^ found["second"].keys())
    if alone:
        raise DataError(
            f"{folder}: {one_line(', '.join(alone))} in one of main and second only; each pair has "
            "one name in both"
        )
    if len(found["main"]) < LEAST_PAIRS:
        raise DataError(
            f"{folder} has {len(found['main'])} pairs; {LEAST_PAIRS} under different lights are "
            "the least to learn from, and thirty are better"
        )
    return [
        PairFiles(name, *paths, dict(zip(VIEWS, map(_checksum, paths), strict=True)))
        for name, paths in ((name, [found[view][name] for view in VIEWS]) for name in found["main"])
    ]


def _checksum(path: Path) -> int:
    return zlib.crc32(read_bytes(path, MAX_BYTES, ""))


def given_charts(folder: Path) -> dict[str, Float[np.ndarray, "4 2"]]:
    """The charts' corners that charts.json gives, by file; none where there is no such file.

    Raises:
      DataError: it holds something else, or names a file that is not there.
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
        right = corners[name].shape == (4, 2) and np.all(np.isfinite(corners[name]))
        if not right or chart_homography(corners[name]) is None:
            raise DataError(f"{path}: {one_line(name)} has no four corners of a chart. {LAYOUT}")
        if not (folder / name).is_file():
            raise DataError(f"{path}: there is no {folder / one_line(name)}. {LAYOUT}")
    return corners


def read_charts(folder: Path, files: Sequence[PairFiles], run: RunFolder) -> list[PairCharts]:
    """Every pair's charts, each pair once in a run's life.

    Raises:
      DataError: files whose chart is not found or of no use, all of them named.
    """
    given, reference = given_charts(folder), reference_colors()
    corners = [
        [given.get(f"{view}/{getattr(pair, view).name}") for view in VIEWS] for pair in files
    ]

    def read(index: int) -> dict[str, np.ndarray]:
        views = [
            _read_view(getattr(files[index], view), own, reference)
            for view, own in zip(VIEWS, corners[index], strict=True)
        ]
        return {name: np.stack([view[name] for view in views]) for name in PairCharts._fields}

    facts = [
        {
            "corners": [None if each is None else each.tolist() for each in own],
            "measured": list(PairCharts._fields),
        }
        for own in corners
    ]
    charts = [PairCharts(**each) for each in _once("charts", files, facts, read, run)]
    for what in ("shapes", "flips", "cameras"):
        first = getattr(charts[0], what)
        for pair, each in zip(files, charts, strict=True):
            if np.any(getattr(each, what) != first):
                raise DataError(
                    f"{folder}: {ONE_KIND[what]}, as in {pair.name} and {files[0].name}; give one "
                    "camera's photos in main/, the other's in second/, all held alike"
                )
    return charts


def _once(
    kind: str,
    files: Sequence[PairFiles],
    facts: Sequence[dict],
    measure: Callable[[int], dict[str, np.ndarray]],
    run: RunFolder,
) -> list[dict[str, np.ndarray]]:
    """What is measured of every pair, each a unit of the run; `facts` beside the files' own.

    Raises:
      DataError: those of all pairs, in one.
    """
    found, failures = [], []
    with progress(kind, len(files), unit="pair") as bar:
        for index, pair in enumerate(files):
            name, known = f"{kind}-{pair.name}", {**pair.checksums} | facts[index]
            arrays = run.read_unit(name, known)
            if arrays is None:
                try:
                    arrays = measure(index)
                except DataError as error:
                    failures.append(str(error))
                else:
                    run.save_unit(name, known, **arrays)
            if arrays is not None:
                found.append(arrays)
            bar.update()
    if failures:
        raise DataError(f"{len(failures)} of {len(files)} pairs: {' '.join(failures)}")
    return found


def _read_view(
    path: Path, corners: Float[np.ndarray, "4 2"] | None, reference: Float[np.ndarray, "24 3"]
) -> dict[str, np.ndarray]:
    photo = read_raw(path)
    if corners is None:
        corners = find_chart(photo.image, reference)
    if corners is None:
        raise DataError(f"{path}: no chart found. {LAYOUT}")
    chart = chart_homography(corners)
    height, width = photo.image.shape[:2]
    outer = map_points(chart, np.array([[-0.5, -0.5], [5.5, -0.5], [5.5, 3.5], [-0.5, 3.5]]))
    if not np.all((outer >= 0) & (outer <= [width - 1, height - 1])):
        raise DataError(f"{path}: the chart that is given leaves the {width}×{height} picture.")
    seen = read_chart(photo.image, photo.saturated, chart)
    known = seen.usable
    if known.sum() >= 12 and fit_residual(seen.colors[known], reference[known]) > MAX_RESIDUAL:
        raise DataError(f"{path}: what lies in the corners that are given is no chart. {LAYOUT}")
    if not seen.usable[NEUTRALS][:-1].any():
        raise DataError(f"{path}: all grey patches are saturated; expose less.")
    if seen.colors[NEUTRALS][:-1].min() <= 0 or seen.usable.sum() < 12:
        raise DataError(f"{path}: the chart is too dark or too saturated; expose otherwise.")
    return {
        "charts": chart,
        "colors": seen.colors,
        "usable": seen.usable,
        "shapes": np.array([height, width]),
        "flips": np.array(photo.flip),
        "cameras": np.array(photo.camera or "unnamed camera"),
    }


def align_cameras(
    given: Path | None, charts: Sequence[PairCharts], downsample: int
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "n"]]:
    """One homography for the two cameras: the given file's, or that of all charts' patches.

    And the root mean square distance, in second pixels, of each pair's patches from where it puts
    them; more than a block of `downsample` is warned of.
    """
    main, second = (np.stack([each.points(view) for each in charts]) for view in (0, 1))
    if given is not None:
        homography = read_homography(given)
    else:
        fit = fit_homography(jnp.asarray(main.reshape(-1, 2)), jnp.asarray(second.reshape(-1, 2)))
        if not fit.valid:
            raise DataError(
                "the charts give no homography between the two cameras; give it by --homography"
            )
        homography = np.asarray(fit.homography)
    mapped = map_points(homography, main.reshape(-1, 2)).reshape(second.shape)
    residuals = np.sqrt(np.mean(np.sum((mapped - second) ** 2, axis=2), axis=1))
    if np.median(residuals) > downsample:
        print(
            f"WARNING: the patches lie {np.median(residuals):.1f} pixels from where the homography "
            f"puts them, more than a block of {downsample}; take pictures from farther "
            "away, or give a greater --downsample"
        )
    return homography, residuals


class Measured(NamedTuple):
    """What all pairs gave; folds are yet to come.

    Attributes:
      quasi: transforms, lights and charts.
      images: each camera's small images, with what is saturated and the chart masked.
      moments: nine colour moments of each camera's images, `[n, 9]`, as `estimate` takes them.
    """

    quasi: QuasiReal
    images: Mapping[str, ImageSet]
    moments: Mapping[str, Float[np.ndarray, "n 9"]]


def measure_pairs(
    files: Sequence[PairFiles],
    charts: Sequence[PairCharts],
    homography: Float[np.ndarray, "3 3"],
    downsample: int,
    run: RunFolder,
    note: str,
) -> Measured:
    """Transforms, moments and small images with their charts masked, and lights.

    Raises:
      DataError: pairs that have no transform, all of them named.
    """

    def measure(index: int) -> dict[str, np.ndarray]:
        return _measure(files[index], charts[index], homography, downsample)

    facts = [
        {
            "homography": homography.tolist(),
            "chart": each.charts[0].tolist(),
            "downsample": downsample,
        }
        for each in charts
    ]
    measured = _once("transforms", files, facts, measure, run)
    every = {name: np.stack([each[name] for each in measured]) for name in measured[0]}
    lights = {
        view: np.stack([each.light(index) for each in charts]).astype(np.float32)
        for index, view in enumerate(VIEWS)
    }
    patches = [np.stack([each.colors[index] for each in charts]) for index in (0, 1)]
    quasi = QuasiReal(
        tuple((pair.name, pair.name) for pair in files),
        every["transform"],
        lights["main"],
        lights["second"],
        *(colors.astype(np.float32) for colors in patches),
        np.stack([each.usable.all(axis=0) for each in charts]),
        (),
    )
    cameras = [str(name) for name in charts[0].cameras]
    images = {
        view: ImageSet(
            every[f"image_{view}"],
            every[f"mask_{view}"],
            lights[view],
            (),
            lights,
            note,
            camera,
        )
        for view, camera in zip(VIEWS, cameras, strict=True)
    }
    return Measured(quasi, images, {view: every[f"moments_{view}"] for view in VIEWS})


def _measure(
    pair: PairFiles, chart: PairCharts, homography: Float[np.ndarray, "3 3"], factor: int
) -> dict[str, np.ndarray]:
    photos = {view: read_raw(getattr(pair, view)) for view in VIEWS}
    thumbnails = align_thumbnails(photos["main"], photos["second"], homography, factor)
    free = chart_mask(thumbnails.mask.shape, _in_blocks(factor) @ chart.charts[0])
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
        measured[f"moments_{view}"] = np.asarray(nine_moments(colors[view], weights))
        image, small_mask = _small(photos[view], on_photo)
        measured |= {f"image_{view}": image, f"mask_{view}": small_mask}
    return measured


def _in_blocks(factor: int) -> Float[np.ndarray, "3 3"]:
    """From pixels to blocks of `factor` pixels."""
    shift = (1 - factor) / (2 * factor)
    return np.array([[1 / factor, 0, shift], [0, 1 / factor, shift], [0, 0, 1]])


def _small(photo: RawImage, chart: Float[np.ndarray, "3 3"]) -> tuple[np.ndarray, np.ndarray]:
    """The image without its chart and what is saturated, `SIDE` pixels wide, and its mask."""
    factor = max(1, -(-max(photo.image.shape) // SIDE))
    small = area_downsample(jnp.asarray(photo.image), factor, jnp.asarray(~photo.saturated))
    mask = np.asarray(small.mask)
    mask = mask & chart_mask(mask.shape, _in_blocks(factor) @ chart)
    image = np.maximum(np.asarray(small.image), 0) * mask[..., None]
    return image, mask.astype(np.float32)
