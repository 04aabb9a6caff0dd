"""Weights of a Caffe net that a user has converted: an .npz of arrays by layer name."""

from pathlib import Path

import numpy as np

from data_pipelines.arrays import read_npz
from data_pipelines.errors import DataError


def load_caffe_weights(path: Path) -> dict[str, np.ndarray]:
    """Arrays "conv1/weight", "conv1/bias" and so on, in Caffe's shapes, float32.

    Which layers a net has and of which shapes they are, `everlight.models.caffe_nets.with_weights`
    checks.

    Args:
      path: an .npz of arrays of numbers.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is no .npz, holds nothing, or an array that is not of finite numbers; named.
    """
    arrays = read_npz(
        path,
        "Give an .npz with the arrays LAYER/weight and LAYER/bias of a Caffe net, as Caffe shapes "
        "them.",
    )
    if not arrays:
        raise DataError(f"{path} holds no array; give LAYER/weight and LAYER/bias.")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)):
            raise DataError(f"{path}: {name} is {array.dtype}, or not finite; give finite numbers.")
    return {name: array.astype(np.float32) for name, array in arrays.items()}
