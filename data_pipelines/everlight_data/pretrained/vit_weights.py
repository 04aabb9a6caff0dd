"""Reader of a vision transformer's checkpoint of Google's release, an .npz of arrays by name."""

from pathlib import Path

import numpy as np
from jaxtyping import PyTree

from everlight.errors import ArgumentError
from everlight.models import VisionTransformer, vit_layers
from everlight_data.errors import DataError
from everlight_data.pretrained.weight_arrays import read_weights

MAX_BYTES = 2_800_000_000
"""Limit on the bytes of all arrays. ViT-B/16 with 21,843 classes has 412 MB, ViT-H/14 2.6 GB."""
_REMEDY = (
    "Give a checkpoint of github.com/google-research/vision_transformer, such as "
    "imagenet21k/ViT-B_16.npz."
)


def load_vit_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Load arrays by name, "embedding/kernel" and so on, as they stand in the file.

    All arrays are in memory once, at most `MAX_BYTES`.

    Args:
      path: an .npz of floating-point arrays.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, too large, or an array is not finite or not of floating-point
        numbers; the message names it.
    """
    return read_weights(path, _REMEDY, "f", MAX_BYTES)


def pretrained_vit(path: Path, net: VisionTransformer, side: int) -> dict[str, PyTree]:
    """Return all layers of a network below its head from a checkpoint (`models.vit_layers`).

    The arrays are in memory twice while they are copied to the device.

    Args:
      path: an .npz of floating-point arrays.
      net: network of the checkpoint's sizes, with any classes.
      side: side of the images in pixels.

    Raises:
      MissingDataError, DataError: as `load_vit_checkpoint`, or an array is missing, unknown or of
        another shape; the message names it.
    """
    arrays = load_vit_checkpoint(path)
    try:
        return vit_layers(net, arrays, side)
    except ArgumentError as error:
        raise DataError(f"{path}: {error}. {_REMEDY}") from error
