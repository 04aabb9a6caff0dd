"""Detection and measurement of the classic colour chart of 24 patches in photographs.

A chart's position is given by the centres of its four corner patches, (x, y) in pixels. They are
the first patch (dark skin), the sixth (bluish green), the last (black) and the nineteenth (white),
in this order. Patches are numbered row by row.

The detector looks for a grid of small uniform areas whose colours a 3x3 matrix maps from the
chart's own. It needs to know neither the illuminant nor the camera.
"""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage
from scipy.spatial import cKDTree

from everlight.color.alignment import apply_homography, area_downsample, fit_homography
from everlight_data.color.charts.chart_colors import ChartColors
from everlight_data.optional_packages import import_package

ROWS, COLUMNS = 4, 6
NEUTRALS = slice(18, 24)
"""Patches from white to black."""
CORNERS = np.array([[0, 0], [5, 0], [5, 3], [0, 3]], np.float32)
CENTERS = np.array([(x, y) for y in range(ROWS) for x in range(COLUMNS)], np.float32)

MAX_SEARCH_SIDE = 1_000
"""Longest side, in pixels, of the image in which a chart is searched."""
SAMPLED_SIDE = 0.5
"""Side of the averaged part of a patch, in distances between patches; a patch's side is 0.85."""
SLOPE_LIMITS = (0.02, 0.035, 0.06)
"""Limits of slope for uniform areas, tried in turn.

The unit is root intensity per pixel, relative to the image's 99th percentile.
"""
MIN_PATCHES = 9
"""Minimum number of uniform areas on a grid."""
MAX_RESIDUAL = 0.12
"""Maximum residual of a 3x3 matrix fitted from the chart's 24 colours, relative to their length."""
MARGIN = 1.0
"""Width of the masked margin around a chart, in distances between patches."""
TOP_BAND = 0.015
"""Part of a channel's maximum below which a patch's mean is not at the maximum."""
MAX_DEFECTIVE = 16
"""Number of brightest pixels that do not count for the maximum."""
MAX_DEPARTURE = 0.04
"""Maximum relative departure of a patch's ratios of channels from those that are predicted."""
MIN_FITTED = 6
"""Minimum number of patches that predict the others."""


def reference_colors() -> Float[np.ndarray, "24 3"]:
    """Return XYZ of the patches from colour-science (the chart of 2005, under D50).

    Raises:
      MissingPackageError: colour-science is not installed.
    """
    colour = import_package("colour")
    patches = colour.CCS_COLOURCHECKERS["ColorChecker 2005"].data.values()
    return np.stack([colour.xyY_to_XYZ(patch) for patch in patches])


_fit = jax.jit(fit_homography)
_apply = jax.jit(apply_homography)


def chart_homography(corners: Float[np.ndarray, "4 2"]) -> Float[np.ndarray, "3 3"] | None:
    """Return the homography from chart coordinates to pixels, or None if there is none.

    Neighbouring patches are one unit apart in chart coordinates.
    """
    fit = _fit(CORNERS, np.float32(corners))
    return np.asarray(fit.homography) if fit.valid else None


def map_points(
    homography: Float[np.ndarray, "3 3"], points: Float[np.ndarray, "n 2"]
) -> np.ndarray:
    """Map points from chart coordinates to pixels, `[n, 2]`."""
    return np.asarray(_apply(np.float32(homography), np.float32(points)))


def read_chart(
    image: Float[np.ndarray, "h w 3"],
    saturated: Bool[np.ndarray, "h w"],
    homography: Float[np.ndarray, "3 3"],
) -> ChartColors:
    """Return the mean colours of the patches' central areas."""
    steps = np.linspace(-SAMPLED_SIDE / 2, SAMPLED_SIDE / 2, 25)
    inner = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
    x, y = np.round(map_points(homography, (CENTERS[:, None] + inner).reshape(-1, 2))).astype(int).T
    seen = image[y, x].reshape(24, -1, 3)
    return ChartColors(seen.mean(axis=1), ~saturated[y, x].reshape(24, -1).any(axis=1))


def mark_clipped(
    seen: ChartColors, image: Float[np.ndarray, "h w 3"], reference: Float[np.ndarray, "24 3"]
) -> ChartColors:
    """Return the colours with clipped patches marked as not usable.

    A sensor may clip below its stated white level. A channel that clips is at the image's maximum,
    and the patch's ratios of channels are not those that a 3×3 matrix predicts, which is fitted to
    the patches below the maximum.

    Args:
      seen: colours of the patches.
      image: image that shows the chart.
      reference: colours of the patches in any linear space, such as XYZ.
    """
    pixels = image.reshape(-1, 3)
    rank = max(0, len(pixels) - MAX_DEFECTIVE)
    tops = np.array([np.partition(channel, rank - 1)[rank - 1] for channel in pixels.T])
    at_top = (seen.colors >= (1 - TOP_BAND) * tops).any(axis=1)
    fitted = seen.usable & ~at_top
    if not at_top.any() or fitted.sum() < MIN_FITTED:
        return seen
    matrix = np.linalg.lstsq(reference[fitted], seen.colors[fitted])[0]
    ratios = seen.colors / np.maximum(reference @ matrix, 1e-9)
    departure = ratios.max(axis=1) / np.maximum(ratios.min(axis=1), 1e-9) - 1
    return seen._replace(usable=seen.usable & ~(at_top & (departure > MAX_DEPARTURE)))


def chart_mask(
    shape: tuple[int, int], homography: Float[np.ndarray, "3 3"]
) -> Bool[np.ndarray, "h w"]:
    """Return a mask that is False on the chart and up to `MARGIN` patches around it."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    back = np.linalg.inv(homography.astype(float))
    mapped = np.stack([x.ravel(), y.ravel(), np.ones(x.size)], axis=1) @ back.T
    where = mapped[:, :2] / mapped[:, 2:]
    low, high = -0.5 - MARGIN, np.array([COLUMNS, ROWS]) - 0.5 + MARGIN
    on_chart = ((where > low) & (where < high)).all(axis=1)
    return ~on_chart.reshape(shape)


def fit_residual(colors: Float[np.ndarray, "24 3"], reference: Float[np.ndarray, "24 3"]) -> float:
    """Return the relative residual of fitting a 3x3 matrix from the reference to the colours."""
    fitted = reference @ np.linalg.lstsq(reference, colors)[0]
    # Each channel has equal weight, however weak its response.
    scale = np.linalg.norm(colors, axis=0)
    return float(np.linalg.norm((fitted - colors) / scale) / np.sqrt(3))


def find_charts(
    image: Float[np.ndarray, "h w 3"], reference: Float[np.ndarray, "24 3"]
) -> list[Float[np.ndarray, "4 2"]]:
    """Return the corners of every chart in a linear photograph, the best fit first.

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
            if not any(_at_one_place(homography, other) for other in charts):
                charts.append(homography)
    return [map_points(chart, CORNERS) * factor + (factor - 1) / 2 for chart in charts]


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


def _at_one_place(first: Float[np.ndarray, "3 3"], second: Float[np.ndarray, "3 3"]) -> bool:
    """Return whether the outline of one of two charts holds the centre of the other."""
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
