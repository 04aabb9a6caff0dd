"""Check of the entries of a camera's matrix."""

import numpy as np
from jaxtyping import Float

MAX_ENTRY = 20.0
"""Limit on the size of a matrix's entries; those of real cameras stay below 3."""


def checked_matrix(matrix: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3 3"]:
    """Return a matrix of 3×3 entries within `MAX_ENTRY`.

    Raises:
      ValueError: the matrix is another.
    """
    if matrix.shape != (3, 3) or not (np.abs(matrix) <= MAX_ENTRY).all():
        raise ValueError(f"a matrix is of {matrix.shape}, or an entry is not within {MAX_ENTRY:g}")
    return matrix
