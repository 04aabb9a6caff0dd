"""Weights of a Caffe net that a user has converted: an .npz of arrays by layer name."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from data_pipelines.errors import DataError, MissingDataError


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
    if not path.is_file():
        raise MissingDataError(
            f"{path} does not exist. Give an .npz with the arrays LAYER/weight and LAYER/bias of "
            "a Caffe net, as Caffe shapes them."
        )
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error, TypeError) as error:
        raise DataError(f"{path} is no whole .npz of numbers ({error}).") from error
    if not arrays:
        raise DataError(f"{path} holds no array; give LAYER/weight and LAYER/bias.")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)):
            raise DataError(f"{path}: {name} is {array.dtype}, or not finite; give finite numbers.")
    return {name: array.astype(np.float32) for name, array in arrays.items()}
