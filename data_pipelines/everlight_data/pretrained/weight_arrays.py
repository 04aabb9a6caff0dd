"""Files of a network's weights, an `.npz` of arrays by name."""

from pathlib import Path

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.arrays import MAX_BYTES, read_npz


def read_weights(
    path: Path, remedy: str, kinds: str, limit: int = MAX_BYTES
) -> dict[str, np.ndarray]:
    """Return the arrays by name, as they stand in the file.

    Args:
      path: path of the `.npz`.
      remedy: sentence that every error message ends with.
      kinds: NumPy's letters of the kinds of numbers that are weights.
      limit: maximum number of bytes of all arrays.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, too large or empty, or an array is not finite or of another
        kind; the message names it.
    """
    arrays = read_npz(path, remedy, limit)
    check_weights(path, arrays, remedy, kinds)
    return arrays


def check_weights(path: Path, arrays: dict[str, np.ndarray], remedy: str, kinds: str) -> None:
    """Refuse arrays that cannot be weights.

    Raises:
      DataError: there are none, or an array is not finite or of another kind; the message names it.
    """
    if not arrays:
        raise DataError(f"{path} holds no arrays. {remedy}")
    for name, array in arrays.items():
        if array.dtype.kind not in kinds or not np.all(np.isfinite(array)):
            raise DataError(f"{path}: {name} is {array.dtype}, or not finite. {remedy}")
