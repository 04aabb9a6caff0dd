"""Images as networks read them: stored on the device, or streamed from files step by step."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from everlight.continual import StoredImages
from everlight.continual.engine.sources import StreamedImages
from everlight.continual.training.labelled_images import channel_statistics, store_with_statistics
from everlight_data.errors import DataError
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ChannelStatistics, ImageSet

MEAN = np.array([123.675, 116.28, 103.53], np.float32)
DEVIATION = np.array([58.395, 57.12, 57.375], np.float32)
"""Mean and standard deviation of ImageNet's channels, 0 to 255, which normalize photographs."""

DeviceStatistics = tuple[Float[Array, "3"], Float[Array, "3"]]
"""Mean and deviation on the device: the only part of streamed images that programs receive."""


def store_images(
    images: ImageSet, statistics: ChannelStatistics | None = None, unit: bool = False
) -> StoredImages:
    """Return a set's images on the device, normalized by channel when a network reads them.

    Args:
      images: image set.
      statistics: mean and standard deviation of each channel, 0 to 1; None is those of the training
        images.
      unit: divide by 255 instead.
    """
    stored = images.images
    if unit:
        return StoredImages.of(stored, jnp.float32(0), jnp.float32(255))
    if statistics is not None:
        mean, deviation = (255 * jnp.asarray(values, jnp.float32) for values in statistics)
        return StoredImages.of(stored, mean, deviation)
    mean, deviation = image_statistics(stored[: len(images.train_labels)])
    return StoredImages.of(
        stored, jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32)
    )


def image_statistics(
    images: UInt8[np.ndarray, "n h w c"],
) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
    """Return mean and standard deviation of each channel, 0 to 255, the deviation at least 1."""
    mean, deviation = channel_statistics(images)
    # Noise of images of one colour is not enlarged.
    return mean, np.maximum(deviation, 1.0)


def store_features(features: Features, train: slice | Bool[np.ndarray, "n"]) -> StoredImages:
    """Return features on the device, normalized by mean and deviation of the training rows.

    Features of a file have a mean and deviation for each column; those of one network share one.

    Raises:
      DataError: the features are all one number, or too near it for 32 bits.
    """
    mean, deviation = feature_statistics(features, train)
    return store_with_statistics(features.values, mean, deviation)


def feature_statistics(
    features: Features, rows: slice | Bool[np.ndarray, "n"] | Int[np.ndarray, "m"], part: str = ""
) -> tuple[Float[np.ndarray, "*f"], Float[np.ndarray, "*f"]]:
    """Return mean and standard deviation of features, per column or in all, in float64.

    Args:
      features: all features.
      rows: the rows that count.
      part: description of these rows, for the message.

    Raises:
      DataError: the rows are all the same, or too near it for 32 bits.
    """
    values = features.values[rows]
    # One column more makes it an array without columns of its own.
    mean, deviation = channel_statistics(values if features.per_column else values[..., None])
    if np.all(values == values[:1]):
        raise DataError(f"--features: all {features.note}{part} are the same number in every row.")
    if deviation.min() < np.finfo(np.float32).tiny:
        raise DataError(
            f"--features: {features.note}{part} have a standard deviation of "
            f"{deviation.min():.1g}; scale them."
        )
    return mean, deviation


def imagenet_statistics() -> DeviceStatistics:
    """Return mean and standard deviation of ImageNet's channels on the device."""
    return jnp.asarray(MEAN), jnp.asarray(DEVIATION)


def stream(store: JpegStore, statistics: DeviceStatistics) -> StreamedImages:
    """Return the store's images, normalized; crops and mirrors are drawn in training."""
    return StreamedImages(store.read, store.shape, *statistics)


def stream_centers(store: JpegStore, statistics: DeviceStatistics) -> StreamedImages:
    """Return the store's images without random crops, where left must not become right."""

    def read(
        index: Int[np.ndarray, "*b"], keys: object = None
    ) -> UInt8[np.ndarray, "*b side side 3"]:
        return store.read(index)

    return StreamedImages(read, store.shape, *statistics)


@contextmanager
def naming_files(store: JpegStore) -> Iterator[None]:
    """Raise the store's own error, which names the file, where JAX raises one with its text alone.

    Raises:
      DataError: a file cannot be read or decoded.
    """
    try:
        yield
    # Calling a program raises one type, awaiting its result another.
    except Exception as error:
        if store.failure is None:
            raise
        raise store.failure from error
