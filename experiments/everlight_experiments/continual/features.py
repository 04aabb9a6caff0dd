"""Features of a frozen trunk in the place of images, computed once for all methods and seeds.

`--features efficientnet-lite0` computes them and keeps them beside the run folders, in
`features/`, by the checksum of the images. `--features FILE` takes an `.npz` of `features`, numbers
`[n, f]`, and `labels`, whole numbers or text `[n]`: a row an image of the benchmark, its training
images first and its test images after them (of CORe50 its frames in the order of the release), with
the names of their classes. That is what the folder `features/` holds. For the benchmark `images`
without `--images` the file is all there is, and its classes are the benchmark's.
"""

import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import Array, Bool, Float, Int, PyTree, UInt8
from PIL import Image

from everlight.continual import StoredImages
from everlight.meshes import REPLICATED, RUNS_SPEC, runs_mesh
from everlight.models import EfficientNetLite0, efficientnet_variables
from everlight.models.efficientnet import DEVIATION, MEAN
from everlight_data.arrays import take
from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.efficientnet import load_efficientnet_lite0
from everlight_data.images.feature_files import Features, features_of_images
from everlight_data.images.image_set import ImageSet, as_rgb
from everlight_data.writing import lock_folder, make_folder, read_sealed, save_sealed
from everlight_experiments.common.interruption import stop_if_asked
from everlight_experiments.common.progress import progress

LITE0 = "efficientnet-lite0"
SMALLEST = 128
"""Side of images below which the trunk reads them enlarged to it."""
AS_THEY_COME = 32
"""Side of the data sets' images, which a trunk gets as they are."""
TRUNK_SIDE = 224
"""Side of a user's images that the network gets, as it was trained."""
AT_ONCE = 8
"""Images of a step of the trunk, on each device."""


def load_features(asked: str, images: ImageSet, runs: Path) -> Features:
    """Features of a benchmark's images: computed, or read from a file.

    Args:
      asked: what `--features` gives.
      images: of the benchmark.
      runs: where run folders are made; what is computed is kept there.

    Raises:
      MissingDataError: the trunk's package, or the file, is not there.
      DataError: the file cannot be used, or is not of these images.
    """
    return (
        _of_trunk(images, runs / "features")
        if asked == LITE0
        else features_of_images(asked, images)
    )


def stored_features(features: Features, train: slice | Bool[np.ndarray, "n"]) -> StoredImages:
    """Features on the device, of which those in training give one mean and one deviation.

    Raises:
      DataError: they are all the same number.
    """
    seen = features.values[train]
    mean, deviation = seen.mean(dtype=np.float64), seen.std(dtype=np.float64)
    if not deviation > 0:
        raise DataError(f"--features: all {features.note} are the same number.")
    return StoredImages.of(features.values, jnp.float32(mean), jnp.float32(deviation))


def _of_trunk(images: ImageSet, folder: Path) -> Features:
    """Read from the folder where they were computed before."""
    side = max(images.images.shape[1], SMALLEST)
    note = (
        f"1,280 features of EfficientNet-Lite0 at {side}×{side} pixels; it has learnt the 1,000 "
        "classes of ImageNet, Tiny-ImageNet's among them: of such classes none is new to it"
    )
    checksum = zlib.crc32(np.ascontiguousarray(images.images))
    path = folder / f"{LITE0}-{side}-{checksum:08x}.npz"
    make_folder(folder)
    # Who comes second waits, and reads what the first has computed.
    lock = lock_folder(folder, "Wait for its end.", patience=-1)
    try:
        values = _read_computed(path, len(images.images))
        if values is None:
            values = trunk_features(images.images)
            names = np.array(images.class_names)[_numbers(images)]
            save_sealed(path, features=values, labels=names)
    finally:
        lock.release()
    return Features(values, note)


def _read_computed(path: Path, count: int) -> Float[np.ndarray, "n f"] | None:
    try:
        (values,) = take(read_sealed(path, ""), path, ("features",), "")
    except MissingDataError:
        return None
    except DataError as error:
        print(f"{error} It is computed again.", flush=True)
        return None
    return values if len(values) == count else None


def trunk_features(images: UInt8[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n 1280"]:
    """Return EfficientNet-Lite0's features of square images, small ones enlarged to `SMALLEST`.

    Raises:
      MissingDataError: its weights are not installed.
    """
    mesh = runs_mesh()
    weights = efficientnet_variables(load_efficientnet_lite0())
    weights = jax.device_put(weights, NamedSharding(mesh, REPLICATED))
    step, found = AT_ONCE * mesh.size, []
    with progress(LITE0, len(images), 0, "image") as bar:
        for start in range(0, len(images), step):
            stop_if_asked()
            batch = _enlarged(as_rgb(images[start : start + step]))
            missing = [(0, step - len(batch))] + [(0, 0)] * 3
            placed = jax.device_put(np.pad(batch, missing), NamedSharding(mesh, RUNS_SPEC))
            found.append(np.asarray(_trunk(weights, placed))[: len(batch)])
            bar.update(len(batch))
    return np.concatenate(found)


@jax.jit
def _trunk(weights: PyTree, images: UInt8[Array, "b h w 3"]) -> Float[Array, "b 1280"]:
    inputs = (images.astype(jnp.float32) - MEAN) / DEVIATION
    return EfficientNetLite0().apply(weights, inputs, False).features


def _enlarged(images: UInt8[np.ndarray, "b h w 3"]) -> UInt8[np.ndarray, "b s s 3"]:
    if images.shape[1] >= SMALLEST:
        return images
    size, way = (SMALLEST, SMALLEST), Image.Resampling.BICUBIC
    return np.stack([np.asarray(Image.fromarray(each).resize(size, way)) for each in images])


def _numbers(images: ImageSet) -> Int[np.ndarray, "n"]:
    return np.concatenate([images.train_labels, images.test_labels])
