"""Detection of the classic colour chart of 24 patches in photographs.

The detector looks for a grid of small uniform areas whose colours a 3x3 matrix maps from the
chart's own. It needs to know neither the illuminant nor the camera.
"""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import ndimage
from scipy.spatial import cKDTree

from everlight.color.alignment import area_downsample, fit_homography
from everlight_data.color.charts.chart_colors import (
    MAX_RESIDUAL,
    SAMPLED_SIDE,
    fit_residual,
    read_chart,
)
from everlight_data.color.charts.chart_geometry import (
    CENTERS,
    COLUMNS,
    CORNERS,
    ROWS,
    map_points,
)

MAX_SEARCH_SIDE = 1_000
"""Longest side, in pixels, of the image in which a chart is searched."""
SLOPE_LIMITS = (0.02, 0.035, 0.06)
"""Limits of slope for uniform areas, tried in turn.

The unit is root intensity per pixel, relative to the image's 99th percentile.
"""
MIN_PATCHES = 9
"""Minimum number of uniform areas on a grid."""


def find_charts(
    image: Float[np.ndarray, "h w 3"], reference: Float[np.ndarray, "24 3"]
) -> list[Float[np.ndarray, "4 2"]]:
    """Return the corners of every chart in a linear photograph.

    Charts at one place, whose outlines hold each other's centre, count as one.

    Args:
      image: linear image with 0 at the black level, [h, w, 3].
      reference: linear colours of the 24 patches in any space, such as XYZ.
    """
    factor = max(1, round(max(image.shape[:2]) / MAX_SEARCH_SIDE))
    small = np.asarray(area_downsample(jnp.asarray(image), factor).image)
    charts: list[Float[np.ndarray, "3 3"]] = []
    for flat in SLOPE_LIMITS:
        # At one place the first limit that finds a chart has the best centres of patches.
        for homography in _fits(small, reference, flat):
            if not any(_is_one_place(homography, other) for other in charts):
                charts.append(homography)
    return [map_points(chart, CORNERS) * factor + (factor - 1) / 2 for chart in charts]


_fit = jax.jit(fit_homography)


def _fits(
    image: Float[np.ndarray, "h w 3"], reference: Float[np.ndarray, "24 3"], flat: float
) -> list[Float[np.ndarray, "3 3"]]:
    """Return the homographies that fit a chart to uniform areas, the best first."""
    none = np.zeros(image.shape[:2], bool)
    scored = []
    for to_pixels in _grids(*_even_areas(image, flat)):
        for on_grid in _PLACEMENTS:
            homography = to_pixels @ on_grid
            if _lies_within_image(homography, image.shape):
                score = fit_residual(read_chart(image, none, homography).colors, reference)
                scored.append((score, homography))
    ranked = sorted(scored, key=lambda fit: fit[0])
    return [homography for score, homography in ranked if score < MAX_RESIDUAL]


def _is_one_place(first: Float[np.ndarray, "3 3"], second: Float[np.ndarray, "3 3"]) -> bool:
    """Return True if the outline of one of two charts holds the centre of the other."""
    for one, other in ((first, second), (second, first)):
        center = map_points(one, CORNERS.mean(axis=0, keepdims=True))
        ((column, row),) = map_points(np.linalg.inv(other), center)
        if -0.5 < column < COLUMNS - 0.5 and -0.5 < row < ROWS - 0.5:
            return True
    return False


def _even_areas(
    image: Float[np.ndarray, "h w 3"], flat: float
) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "n"]]:
    """Return centres and sides of uniform areas that are roughly square."""
    root = np.sqrt(np.maximum(image, 0))
    root = root / np.quantile(root, 0.99, axis=(0, 1))
    root = ndimage.gaussian_filter(root, (1, 1, 0))
    slopes = [ndimage.sobel(root, axis) / 8 for axis in (0, 1)]
    slope = np.sqrt(sum(gradient**2 for gradient in slopes)).max(axis=-1)
    labels, _ = ndimage.label(slope < flat)
    boxes = ndimage.find_objects(labels)
    centers, sides = [], []
    for label, box in enumerate(boxes, start=1):
        height, width = (part.stop - part.start for part in box)
        if not (6 <= height <= 0.15 * image.shape[0] and 6 <= width <= 0.15 * image.shape[1]):
            continue
        y, x = np.nonzero(labels[box] == label)
        if len(y) < 30:
            continue
        spread = np.cov(np.stack([x, y]), bias=True)
        long, short = np.linalg.eigvalsh(spread)[::-1]
        # A rectangle's area is twelve times the root of its covariance's determinant.
        full = len(y) / (12 * np.sqrt(max(long * short, 1e-9)))
        if long > 3 * short or not 0.8 < full < 1.15:
            continue
        centers.append((x.mean() + box[1].start, y.mean() + box[0].start))
        sides.append(np.sqrt(len(y)))
    return np.array(centers, np.float32).reshape(-1, 2), np.array(sides)


def _grids(
    centers: Float[np.ndarray, "n 2"], sides: Float[np.ndarray, "n"]
) -> Iterator[Float[np.ndarray, "3 3"]]:
    """Yield homographies to pixels from sets of areas that lie on one grid.

    Grid coordinates start at 0, so that one of `_PLACEMENTS` maps the chart to them.
    """
    if len(centers) < MIN_PATCHES:
        return
    tree, seen = cKDTree(centers), set()
    for start in range(len(centers)):
        near = [
            other
            for other in tree.query_ball_point(centers[start], 2.5 * sides[start])
            if other != start and 0.5 < sides[other] / sides[start] < 2
        ]
        for first, second in itertools.permutations(near, 2):
            steps = np.stack([centers[first] - centers[start], centers[second] - centers[start]])
            lengths = np.linalg.norm(steps, axis=1)
            # Accept right-handed, nearly perpendicular steps of similar length; diagonals fail.
            turn = np.linalg.det(steps) / np.prod(lengths)
            if turn < 0.8 or not 0.7 < lengths[0] / lengths[1] < 1.4:
                continue
            if lengths.max() > 2 * sides[start]:
                continue
            at, rows = _grow(start, steps, centers, tree)
            places = np.array(at, np.float32)
            places -= places.min(axis=0)
            few = len(rows) < MIN_PATCHES or frozenset(rows) in seen
            if few or len(rows) > ROWS * COLUMNS or places.max() > COLUMNS - 1:
                continue
            seen.add(frozenset(rows))
            # Pad to a fixed length so that one compiled program fits all.
            counted = np.arange(ROWS * COLUMNS) < len(rows)
            cycled = np.arange(ROWS * COLUMNS) % len(rows)
            fit = _fit(places[cycled], centers[rows][cycled], np.float32(counted))
            if fit.valid:
                yield np.asarray(fit.homography, float)


def _grow(
    start: int, steps: Float[np.ndarray, "2 2"], centers: Float[np.ndarray, "n 2"], tree: cKDTree
) -> tuple[list[tuple[int, int]], list[int]]:
    """Grow a grid from one area to its neighbours, updating the local step vectors."""
    placed = {(0, 0): start}
    local = {(0, 0): steps}
    queue = [(0, 0)]
    while queue:
        at = queue.pop(0)
        for axis, sign in itertools.product((0, 1), (1, -1)):
            to = (at[0] + sign * (axis == 0), at[1] + sign * (axis == 1))
            if to in placed:
                continue
            step = local[at][axis]
            distance, row = tree.query(centers[placed[at]] + sign * step)
            if distance > 0.25 * np.linalg.norm(step) or row in placed.values():
                continue
            moved = sign * (centers[row] - centers[placed[at]])
            placed[to], local[to] = row, local[at].copy()
            local[to][axis] = moved
            queue.append(to)
    return list(placed), list(placed.values())


def _placements() -> Iterator[Float[np.ndarray, "3 3"]]:
    """Yield transforms from the chart to a grid that starts at 0: rotations by 90 degrees and
    shifts."""
    turn = np.array([[0, -1], [1, 0]])
    for quarters in range(4):
        turned = np.linalg.matrix_power(turn, quarters)
        least = np.min(CENTERS @ turned.T, axis=0)
        for moved in itertools.product(range(COLUMNS), repeat=2):
            placement = np.eye(3)
            placement[:2, :2], placement[:2, 2] = turned, -least - moved
            yield placement


_PLACEMENTS = tuple(_placements())


def _lies_within_image(homography: Float[np.ndarray, "3 3"], shape: tuple[int, ...]) -> bool:
    edge = SAMPLED_SIDE
    low, high = CORNERS.min(axis=0) - edge, CORNERS.max(axis=0) + edge
    outer = np.array([(x, y) for x in (low[0], high[0]) for y in (low[1], high[1])])
    depth = np.column_stack([outer, np.ones(4)]) @ homography[2]
    if not np.all(depth * homography[2, 2] > 0):
        return False
    pixels = map_points(homography, outer)
    return bool(np.all((pixels >= 0) & (pixels < [shape[1] - 1, shape[0] - 1])))
