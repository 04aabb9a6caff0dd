"""Places on the classic colour chart of 24 patches, and their homography to pixels.

A chart's position is given by the centres of its four corner patches, (x, y) in pixels. They are
the first patch (dark skin), the sixth (bluish green), the last (black) and the nineteenth (white),
in this order. Patches are numbered row by row.
"""

import jax
import numpy as np
from jaxtyping import Bool, Float

from everlight.color.alignment import apply_homography, fit_homography

ROWS, COLUMNS = 4, 6
CORNERS = np.array([[0, 0], [5, 0], [5, 3], [0, 3]], np.float32)
CENTERS = np.array([(x, y) for y in range(ROWS) for x in range(COLUMNS)], np.float32)
MARGIN = 1.0
"""Width of the masked margin around a chart, in distances between patches."""

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
