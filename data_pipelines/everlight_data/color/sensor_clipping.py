"""Levels below the stated white at which a sensor's channels clip, found in its values.

A channel that clips is constant wherever it clips, while the other channels still follow the scene:
that is the plateau. Where all channels clip, they are equal, which they are not elsewhere. Uniform
surfaces alone are no plateau: all their channels are uniform.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import minimum_filter, uniform_filter

WIDTHS = (0.0, 0.002, 0.005, 0.01)
"""Widths of a plateau that are tried, relative to white; noise after the clipping widens it."""
LEAST_SITES = 16
"""Minimum number of photosites of a plateau whose neighbours of the channel lie on it too."""
FEW = 2e-5
"""Fraction of photosites above a plateau, which are defective."""
MAX_STRUCTURE = 2.0
"""Maximum variance of a plateau's local means, relative to that of white noise, which is 1."""
MIN_STRUCTURE = 10.0
"""Minimum of that of another channel that follows the scene."""
MIN_SPREAD = 0.02
"""Minimum range of another channel that follows the scene, relative to its median."""
MANY_VALUES = 8
"""Minimum number of values of another channel beside those of an exactly constant one."""


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
    planes = Planes(
        [values[row:height:2, column:width:2] for row, column in places],
        [float(np.median(black[row:height:2, column:width:2])) for row, column in places],
    )
    clipped = values >= white
    for number, (row, column) in enumerate(places):
        level = clipping_level(planes, number, white)
        if level is not None:
            clipped[row::2, column::2] |= values[row::2, column::2] >= level
    return clipped


class Planes:
    """The four planes of a 2×2 mosaic and their local moments, which are computed when needed."""

    def __init__(self, values: list[Int[np.ndarray, "a b"]], pedestals: list[float]):
        """Keep the planes and the black level of each."""
        self.values, self.pedestals = values, pedestals
        self._moments: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def structure(self, number: int, inside: Bool[np.ndarray, "a b"]) -> float:
        """Return the variance of local means relative to that of white noise, which is 1."""
        if number not in self._moments:
            values = self.values[number].astype(np.float64)
            means = uniform_filter(values, 3)
            self._moments[number] = means, uniform_filter(values**2, 3) - means**2
        means, variances = self._moments[number]
        # Of nine independent values the mean variance is 8/9 of theirs, that of their mean 1/9.
        # A step of quantization counts as noise.
        return float(means[inside].var() / max(variances[inside].mean() / 8, 1 / 12 / 9))

    def follows_scene(self, number: int, inside: Bool[np.ndarray, "a b"], exact: bool) -> bool:
        """Return whether a plane varies on another's plateau, as a scene does."""
        values = self.values[number][inside]
        low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
        wide = high - low > MIN_SPREAD * max(middle - self.pedestals[number], 1)
        if exact:
            # Beside an exactly constant channel noise is evidence too.
            return bool(high - low > 2 and (wide or len(np.unique(values)) >= MANY_VALUES))
        return bool(wide and self.structure(number, inside) > MIN_STRUCTURE)

    def equal_only_here(self, inside: Bool[np.ndarray, "a b"], width: float) -> bool:
        """Return whether all planes are equal here, and differ in most of the image."""
        spread = np.max(self.values, axis=0) - np.min(self.values, axis=0)
        return bool(np.median(spread[inside]) <= width and np.median(spread) > max(4 * width, 8))


def clipping_level(planes: Planes, number: int, white: int) -> int | None:
    """Return the level below white at which a plane clips; None where it does not.

    Args:
      planes: planes of the mosaic.
      number: index of the plane.
      white: white level that the file states.
    """
    plane, pedestal = planes.values[number], planes.pedestals[number]
    few = max(2, int(FEW * plane.size))
    from_above = np.cumsum(np.bincount(plane.ravel())[::-1])
    top = len(from_above) - 1 - int(np.argmax(from_above > few))
    if top >= white:
        return None
    lowest = None
    for width in WIDTHS:
        level = int(np.ceil(top - width * white))
        if level <= pedestal:
            break
        inside = minimum_filter(plane >= level, size=3, mode="constant")
        if inside.sum() < LEAST_SITES:
            continue
        exact = width == 0
        if not exact and planes.structure(number, inside) > MAX_STRUCTURE:
            continue
        others = (other for other in range(4) if other != number)
        follows = any(planes.follows_scene(other, inside, exact) for other in others)
        if follows or planes.equal_only_here(inside, width * white):
            lowest = level
    return lowest
