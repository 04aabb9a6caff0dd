"""Checksums of the data of a run, which tell whether runs can be compared."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class DataChecksums(NamedTuple):
    """Checksums of images and of their labels."""

    images: int
    train_labels: int
    test_labels: int

    @classmethod
    def from_stored(cls, array: Int[np.ndarray, "n"]) -> "DataChecksums":
        """Return the first three checksums of `data` in a results.npz; those of features follow.

        Raises:
          ValueError: the array has another type or shape.
        """
        if array.dtype.kind not in "iu" or array.ndim != 1 or array.size < 3:
            raise ValueError(f"data has dtype {array.dtype} and shape {array.shape}")
        return cls(*array.tolist()[:3])
