"""Reader of a Caffe network's weights, converted by the user to an .npz of arrays by layer name."""

from pathlib import Path

import numpy as np
from jaxtyping import PyTree

from everlight.errors import ArgumentError
from everlight.models.caffe_nets import with_weights
from everlight_data.errors import DataError
from everlight_data.pretrained.weight_arrays import read_weights

_REMEDY = (
    "Give an .npz with the arrays LAYER/weight and LAYER/bias of a Caffe network, in Caffe's "
    "shapes; all are finite numbers."
)


def load_caffe_weights(path: Path) -> dict[str, np.ndarray]:
    """Load arrays "conv1/weight", "conv1/bias" and so on, in Caffe's shapes, as float32.

    `everlight.models.caffe_nets.with_weights` checks the layers and their shapes.

    Args:
      path: an .npz of numeric arrays.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is not an .npz, holds no array, or an array is not finite or not numeric;
        the message names it.
    """
    arrays = read_weights(path, _REMEDY, "fiu")
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def load_caffe_layers(path: Path, layers: PyTree) -> PyTree:
    """Return a network's layers with those that a file names in their place.

    Args:
      path: an .npz of numeric arrays.
      layers: the network's layers without its head, as `flax` names them.

    Raises:
      MissingDataError, DataError: as `load_caffe_weights`, or the network has no such layer.
    """
    arrays = load_caffe_weights(path)
    try:
        return with_weights(layers, arrays)
    except ArgumentError as error:
        raise DataError(f"{path}: {error}; the head is always drawn") from error
