"""Epochs of a sequence's state; the error of a diverged run; images brought to the device."""

import jax.numpy as jnp
import numpy as np

from everlight.continual import Protocol, SequenceState, StoredImages
from everlight.continual.labelled_images import channel_statistics
from everlight_data.errors import DataError
from everlight_data.images.image_set import Channels, ImageSet


class DivergedRunError(DataError):
    """A loss that is not finite; names run, task and epoch, counted from 0, and what to do."""

    def __init__(self, message: str, place: tuple[int, int]):
        super().__init__(message)
        self.place = place
        """Task and epoch of the first that is not."""


def store_images(
    images: ImageSet, channels: Channels | None = None, unit: bool = False
) -> StoredImages:
    """Return the images on the device, normalized by channel when a network reads them.

    Args:
      images: of the set.
      channels: mean and deviation, 0 to 1, of each; None is those of the training images.
      unit: divide by 255 instead.
    """
    stored = images.images
    if unit:
        return StoredImages.of(stored, jnp.float32(0), jnp.float32(255))
    if channels is not None:
        return StoredImages.of(stored, *(255 * jnp.asarray(each, jnp.float32) for each in channels))
    mean, deviation = channel_statistics(stored[: len(images.train_labels)])
    # Noise of images of one colour is not enlarged.
    deviation = np.maximum(deviation, 1.0)
    return StoredImages.of(
        stored, jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32)
    )


def epochs_done(state: SequenceState, protocol: Protocol) -> int:
    """Return the number of finished epochs from the beginning of the sequence on."""
    return epochs_before(int(state.task), protocol) + int(state.epoch)


def epochs_before(task: int, protocol: Protocol) -> int:
    """Return the number of epochs before a task begins."""
    return sum(protocol.epochs_of(number) for number in range(task))
