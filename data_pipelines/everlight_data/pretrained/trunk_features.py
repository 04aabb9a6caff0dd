"""Features of images by a frozen EfficientNet-Lite0, computed once and kept in a folder."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Float, PyTree, UInt8
from PIL import Image

from everlight.meshes import REPLICATED, RUNS_SPEC, runs_mesh
from everlight.models import EfficientNetLite0, efficientnet_variables
from everlight.models.efficientnet import DEVIATION, MEAN
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.arrays import take
from everlight_data.locks import locked_folder
from everlight_data.padded_blocks import PaddedBlock, padded_blocks
from everlight_data.pretrained.efficientnet_weights import load_efficientnet_lite0
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ImageSet, as_rgb
from everlight_data.writing import make_folder, read_sealed, save_sealed

LITE0 = "efficientnet-lite0"
MIN_SIDE = 128
"""Side of images below which the trunk reads them enlarged to it."""
BLOCK = 8
"""Images of a step of the trunk, on each device."""
Steps = Callable[[Sequence[PaddedBlock]], Iterable[PaddedBlock]]


def trunk_features(
    images: UInt8[np.ndarray, "n h w c"], steps: Steps = iter
) -> Float[np.ndarray, "n 1280"]:
    """Return EfficientNet-Lite0's features of square images, small ones enlarged to `MIN_SIDE`.

    Args:
      images: grey or RGB images.
      steps: function through which the loop over blocks of images goes, for a progress bar.

    Raises:
      MissingDataError: the trunk's weights are not installed.
    """
    mesh = runs_mesh()
    weights = efficientnet_variables(load_efficientnet_lite0())
    weights = jax.device_put(weights, NamedSharding(mesh, REPLICATED))
    features = []
    for rows, count in steps(padded_blocks(len(images), BLOCK * mesh.size)):
        batch = _enlarge(as_rgb(images[rows]))
        placed = jax.device_put(batch, NamedSharding(mesh, RUNS_SPEC))
        features.append(np.asarray(_trunk(weights, placed))[:count])
    return np.concatenate(features)


def stored_features(images: ImageSet, folder: Path, steps: Steps = iter) -> Features:
    """Return the trunk's features of a set, read where they were computed before.

    The file has the checksum of the images in its name. It is a file of features like a user's own
    (`feature_files`).

    Args:
      images: training and test images.
      folder: where the features are kept.
      steps: as for `trunk_features`.

    Raises:
      MissingDataError: the trunk's weights are not installed.
      DataError: the folder cannot be written.
    """
    side = max(images.images.shape[1], MIN_SIDE)
    checksum = zlib.crc32(np.ascontiguousarray(images.images))
    path = folder / f"{LITE0}-{side}-{checksum:08x}.npz"
    make_folder(folder)
    # A second process waits, and reads what the first has computed.
    with locked_folder(folder, "Wait for its end.", patience=-1):
        values = _read_features(path, len(images.images))
        if values is None:
            values = trunk_features(images.images, steps)
            labels = np.concatenate([images.train_labels, images.test_labels])
            save_sealed(path, features=values, labels=np.array(images.class_names)[labels])
    return Features(
        values,
        f"1,280 features of EfficientNet-Lite0 at {side}×{side} pixels; it was trained on the "
        "1,000 classes of ImageNet, Tiny-ImageNet's among them, so that none of these is new to it",
    )


def _read_features(path: Path, count: int) -> Float[np.ndarray, "n f"] | None:
    try:
        (values,) = take(read_sealed(path, ""), path, ("features",), "")
    except MissingDataError:
        return None
    except DataError as error:
        print(f"{error} It is computed again.", flush=True)
        return None
    return values if len(values) == count else None


@jax.jit
def _trunk(weights: PyTree, images: UInt8[Array, "b h w 3"]) -> Float[Array, "b 1280"]:
    inputs = (images.astype(jnp.float32) - MEAN) / DEVIATION
    return EfficientNetLite0().apply(weights, inputs, False).features


def _enlarge(images: UInt8[np.ndarray, "b h w 3"]) -> UInt8[np.ndarray, "b s s 3"]:
    if images.shape[1] >= MIN_SIDE:
        return images
    size, resampling = (MIN_SIDE, MIN_SIDE), Image.Resampling.BICUBIC
    return np.stack(
        [np.asarray(Image.fromarray(image).resize(size, resampling)) for image in images]
    )
