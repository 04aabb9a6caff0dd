"""`ConstancySet`, which every reader of photographs with measured illuminants returns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from everlight_data.sets.camera_tuning import Tuning


class Photograph(NamedTuple):
    """A linear image, and its pixels that show the scene and are not saturated."""

    image: Float[np.ndarray, "h w 3"]
    mask: Bool[np.ndarray, "h w"]


class Captures(NamedTuple):
    """Vectors of images' captures, and the arrays of a file of thumbnails that they are of."""

    values: Float[np.ndarray, "n f"]
    sources: tuple[str, ...]

    def at(self, rows: Sequence[int] | np.ndarray) -> "Captures":
        """Return the vectors of the images at these places."""
        return self._replace(values=self.values[rows])


class ConstancySet(NamedTuple):
    """Photographs of one camera."""

    names: tuple[str, ...]
    illuminants: Float[np.ndarray, "n 3"]
    read_image: Callable[[int], Photograph]
    """Function from a place to its photograph."""
    captures: Captures | None = None
    """Vectors of their captures; None if they are unknown."""
    file: Path | None = None
    """File of thumbnails; None for a release."""
    camera_estimates: Float[np.ndarray, "n 3"] | None = None
    """Illuminants by the camera's own white balance; None if they are unknown."""
    tuning: Tuning | None = None
    """Camera's tuning file, with its locus; None without one."""
