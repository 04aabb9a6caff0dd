"""Blocks of equal size, so that one compiled program serves any number of rows."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class PaddedBlock(NamedTuple):
    """Consecutive rows."""

    rows: Int[np.ndarray, "size"]
    """Rows; the last one is repeated where fewer are left than a block has."""
    count: int
    """Number of rows without the repeated ones."""


def padded_blocks(count: int, size: int) -> list[PaddedBlock]:
    """Return blocks of `size` rows that cover the rows from 0 to `count`."""
    return [
        PaddedBlock(np.minimum(np.arange(start, start + size), count - 1), min(size, count - start))
        for start in range(0, count, size)
    ]
