"""Levels below the stated white at which a sensor's channels clip, found in its values.

A channel that clips is exactly constant wherever it clips, while another channel still follows the
scene and its noise: that is the plateau. So is a surface on which all four photosites of a block
have one value, as of a lamp that clips every channel. Other uniform surfaces do not count. Plateaus
with noise cannot be distinguished from bright surfaces of several colours; on a chart
`chart_colors.mark_clipped` finds them.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import minimum_filter

MIN_SITES = 16
"""Minimum number of photosites of a plateau whose neighbours of the channel lie on it too."""
FEW = 2e-5
"""Fraction of photosites above a plateau, which are defective."""
MANY_VALUES = 8
"""Minimum number of values that another channel has on a plateau."""


def clipped_sites(
    values: Int[np.ndarray, "h w"], black: Float[np.ndarray, "h w"], white: int
) -> Bool[np.ndarray, "h w"]:
    """Return the photosites at or above their channel's white, or the level at which it clips.

    Args:
      values: values of a Bayer mosaic.
      black: black level of each photosite.
      white: white level that the file states.
    """
    height, width = values.shape[0] // 2 * 2, values.shape[1] // 2 * 2
    places = [(row, column) for row in (0, 1) for column in (0, 1)]
    planes = [values[row:height:2, column:width:2] for row, column in places]
    clipped = values >= white
    for number, (row, column) in enumerate(places):
        pedestal = float(np.median(black[row:height:2, column:width:2]))
        level = clipping_level(planes, number, pedestal, white)
        if level is not None:
            clipped[row::2, column::2] |= values[row::2, column::2] >= level
    return clipped


def clipping_level(
    planes: list[Int[np.ndarray, "a b"]], number: int, pedestal: float, white: int
) -> int | None:
    """Return the level below white at which a plane clips; None where it does not.

    Args:
      planes: the four planes of a 2×2 mosaic.
      number: index of the plane.
      pedestal: its black level.
      white: white level that the file states.
    """
    plane = planes[number]
    few = max(2, int(FEW * plane.size))
    from_above = np.cumsum(np.bincount(plane.ravel())[::-1])
    level = len(from_above) - 1 - int(np.argmax(from_above > few))
    if not pedestal < level < white:
        return None
    inside = minimum_filter(plane >= level, size=3, mode="constant")
    if inside.sum() < MIN_SITES:
        return None
    others = [plane[inside] for plane in planes]
    is_lamp = all(np.all(values == level) for values in others)
    return level if is_lamp or any(_varies(values) for values in others) else None


def _varies(values: Int[np.ndarray, "n"]) -> bool:
    """Return True if values follow a scene or its noise, and not a few uniform surfaces."""
    low, high = np.quantile(values, [0.05, 0.95])
    return bool(high - low > 2 and len(np.unique(values)) >= MANY_VALUES)
