"""The record of features that stand in the place of images."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped


class Features(NamedTuple):
    """Rows of features, those of the training images first, and their name in reports."""

    values: Shaped[np.ndarray, "n f"]
    note: str
    per_column: bool = False
    """True if each column is standardized by itself, as the columns of a file may be of any scale.
    Features of one network have one scale, and share one mean and deviation."""

    def marks(self) -> tuple[np.ndarray, ...]:
        """Return properties that identify the features beside their values, for checksums."""
        return (np.array("per column"),) if self.per_column else ()
