"""Epochs of a sequence's state; the error of a diverged run; images brought to the device."""

import jax.numpy as jnp
import numpy as np

from everlight.continual import Protocol, SequenceState, StoredImages
from everlight_data.errors import DataError
from everlight_data.images.image_set import Channels, ImageSet


class DivergedRunError(DataError):
    """A loss that is not finite; names run, task and epoch, counted from 0, and what to do."""

    def __init__(self, message: str, place: tuple[int, int]):
        super().__init__(message)
        self.place = place
        """Task and epoch of the first that is not."""


def store_images(images: ImageSet, channels: Channels | None = None) -> StoredImages:
    """The images on the device, to be normalised by channels.

    Args:
      images: of the set.
      channels: mean and deviation, 0 to 1, of each; None is those of the training images.
    """
    stored = images.images
    if channels is not None:
        return StoredImages.of(stored, *(255 * jnp.asarray(each, jnp.float32) for each in channels))
    train = images.images[: len(images.train_labels)]
    # Channel by channel and by counts of values, since a float copy would be four times the data.
    counts = [np.bincount(train[..., channel].ravel(), minlength=256) for channel in range(3)]
    values = np.arange(256)
    mean = np.array([np.average(values, weights=count) for count in counts])
    square = np.array([np.average(values**2, weights=count) for count in counts])
    deviation = np.maximum(np.sqrt(square - mean**2), 1.0)
    return StoredImages.of(
        stored, jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32)
    )


def epochs_done(state: SequenceState, protocol: Protocol) -> int:
    """From the beginning of the sequence on."""
    return epochs_before(int(state.task), protocol) + int(state.epoch)


def epochs_before(task: int, protocol: Protocol) -> int:
    """From the beginning of the sequence to that of a task."""
    return sum(protocol.epochs_of(number) for number in range(task))
