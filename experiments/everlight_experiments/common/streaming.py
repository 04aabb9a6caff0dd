"""Nets fed from image files that are read as steps ask for them."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from everlight.continual.engine.flax_setup import StreamedImages
from everlight_data.images.jpeg_store import JpegStore

MEAN = np.array([123.675, 116.28, 103.53], np.float32)
DEVIATION = np.array([58.395, 57.12, 57.375], np.float32)
"""Mean and deviation of ImageNet's channels, by which photographs are normalized."""

Channels = tuple[Float[Array, "3"], Float[Array, "3"]]
"""Mean and deviation on the device: all that compiled parts are given of streamed images."""


def channels() -> Channels:
    """Those of ImageNet."""
    return jnp.asarray(MEAN), jnp.asarray(DEVIATION)


def stream(store: JpegStore, data: Channels) -> StreamedImages:
    """The store's images, normalised by `channels`; in training crops and mirrors are drawn."""
    return StreamedImages(store.read, store.shape, *data)


def stream_centers(store: JpegStore, data: Channels) -> StreamedImages:
    """The same without drawing: the centre in training too, where left must not become right."""

    def read(
        index: Int[np.ndarray, "*b"], keys: object = None
    ) -> UInt8[np.ndarray, "*b side side 3"]:
        return store.read(index)

    return StreamedImages(read, store.shape, *data)


@contextmanager
def naming_files(store: JpegStore) -> Iterator[None]:
    """Raises the store's own error where JAX raises one that has its text alone."""
    try:
        yield
    # Of one type where a program is called, of another where its result is awaited.
    except Exception as error:
        if store.failure is None:
            raise
        raise store.failure from error
