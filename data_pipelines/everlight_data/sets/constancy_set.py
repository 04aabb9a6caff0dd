"""`ConstancySet`, which every reader of photographs with measured illuminants returns."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Photograph = tuple[Float[np.ndarray, "h w 3"], Bool[np.ndarray, "h w"]]


class ConstancySet(NamedTuple):
    """Photographs of one camera; `read_image(i)` returns the linear image and its mask.

    `captures` are the features of their time and settings, where they are known. `file` is the file
    of thumbnails; a release has none.
    """

    names: tuple[str, ...]
    illuminants: Float[np.ndarray, "n 3"]
    read_image: Callable[[int], Photograph]
    captures: Float[np.ndarray, "n 15"] | None = None
    file: Path | None = None
