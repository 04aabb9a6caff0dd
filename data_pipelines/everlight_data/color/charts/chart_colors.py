"""Colours of a chart's patches: those that one image shows, and those of the reference."""

import numpy as np
from jaxtyping import Bool, Float

from everlight_data.color.charts.chart_geometry import CENTERS, map_points
from everlight_data.optional_packages import import_package
from everlight_data.sets.chart_colors import ChartColors

NEUTRALS = slice(18, 24)
"""Patches from white to black."""
SAMPLED_SIDE = 0.5
"""Side of the averaged part of a patch, in distances between patches; a patch's side is 0.85."""
MAX_RESIDUAL = 0.12
"""Maximum residual of a 3x3 matrix fitted from the chart's 24 colours, relative to their length."""
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


def fit_residual(colors: Float[np.ndarray, "24 3"], reference: Float[np.ndarray, "24 3"]) -> float:
    """Return the relative residual of fitting a 3x3 matrix from the reference to the colours."""
    fitted = reference @ np.linalg.lstsq(reference, colors)[0]
    # Each channel has equal weight, however weak its response.
    scale = np.linalg.norm(colors, axis=0)
    return float(np.linalg.norm((fitted - colors) / scale) / np.sqrt(3))
