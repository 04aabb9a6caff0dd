"""Features of a frozen trunk in the place of images, computed once for all methods and seeds.

`--features efficientnet-lite0` computes them and keeps them beside the run folders, in `features/`.
`--features FILE` takes an `.npz` of `features`, numbers `[n, f]`, and `labels`, whole numbers or
text `[n]`. It has a row per image of the benchmark, the training images first (CORe50: the frames
in the order of the release). Files in the folder `features/` have this form. For the benchmark
`images` without `--data`, the file is the whole benchmark.
"""

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from everlight.continual import StoredImages
from everlight_data.errors import DataError
from everlight_data.images.feature_files import Features, features_of_images
from everlight_data.images.image_set import ImageSet
from everlight_data.images.trunk_features import LITE0, kept_features
from everlight_experiments.common.interruption import stop_if_asked
from everlight_experiments.common.progress import progress

AS_THEY_COME = 32
"""Side of the data sets' images, which a trunk gets as they are."""
TRUNK_SIDE = 224
"""Side of a user's images that the network gets, as it was trained."""


def load_features(asked: str, images: ImageSet, runs: Path) -> Features:
    """Return the features of a benchmark's images: computed, or read from a file.

    Args:
      asked: value of `--features`.
      images: of the benchmark.
      runs: where run folders are made; computed features are kept there.

    Raises:
      MissingDataError: the trunk's package, or the file, is not there.
      DataError: the file cannot be used, or is not of these images.
    """
    if asked != LITE0:
        return features_of_images(asked, images)
    return kept_features(images, runs / "features", _steps)


def _steps(starts: range) -> Iterator[int]:
    """Yield the steps of the trunk under a progress bar, until a signal asks to stop."""
    with progress(LITE0, len(starts)) as bar:
        for start in starts:
            stop_if_asked()
            yield start
            bar.update()


def stored_features(features: Features, train: slice | Bool[np.ndarray, "n"]) -> StoredImages:
    """Return features on the device, normalized by one mean and deviation of the training rows.

    Raises:
      DataError: they are all the same number.
    """
    seen = features.values[train]
    mean, deviation = seen.mean(dtype=np.float64), seen.std(dtype=np.float64)
    if not deviation > 0:
        raise DataError(f"--features: all {features.note} are the same number.")
    return StoredImages.of(features.values, jnp.float32(mean), jnp.float32(deviation))
