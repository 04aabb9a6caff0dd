"""Record of a colour chart in a photograph."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class ChartColors(NamedTuple):
    """Chart colours in one image; `usable` is False for patches with a saturated pixel."""

    colors: Float[np.ndarray, "24 3"]
    usable: Bool[np.ndarray, "24"]
