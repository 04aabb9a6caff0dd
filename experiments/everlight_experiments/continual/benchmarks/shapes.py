"""Images of which only the shapes exist, for the costs of benchmarks without their data.

Every benchmark has its own `shapes`, which fills the benchmark's record of data with these images:
classes, hierarchy, sessions or facts. The code that makes it for training does the rest.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from everlight.continual import StoredImages
from everlight_data.sets.image_set import ImageSet


def image_set(names: tuple[str, ...], per_class: tuple[int, int], side: int) -> ImageSet:
    """Return images without content, so many training and test images of every class."""
    train, test = (np.repeat(np.arange(len(names)), count) for count in per_class)
    return ImageSet("", blank_images(len(train) + len(test), side), train, test, names)


def blank_images(count: int, side: int) -> UInt8[np.ndarray, "n side side 3"]:
    """Return black images that take no memory."""
    return np.broadcast_to(np.uint8(0), (count, side, side, 3))


def stored_shapes(images: UInt8[np.ndarray, "n side side 3"]) -> StoredImages:
    """Return the shapes of images on the device."""
    channel = jax.ShapeDtypeStruct((3,), jnp.float32)
    return jax.eval_shape(
        StoredImages.of, jax.ShapeDtypeStruct(images.shape, jnp.uint8), channel, channel
    )
