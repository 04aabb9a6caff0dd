"""Nets fed from image files that are read as steps ask for them."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from everlight.continual.engine.flax_setup import StreamedImages
from everlight_data.images.imagenet import ImageFiles, leave_out
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.common.progress import progress
from everlight_experiments.common.run_folder import RunFolder

MEAN = np.array([123.675, 116.28, 103.53], np.float32)
DEVIATION = np.array([58.395, 57.12, 57.375], np.float32)
"""Mean and deviation of ImageNet's channels, by which photographs are normalized."""

CHECKED_AT_A_TIME = 1000
"""Files that are decoded between two steps of a progress bar."""

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


def leave_out_undecodable(folder: RunFolder, files: ImageFiles, store: JpegStore) -> ImageFiles:
    """Return the files without those that are no whole images; every file is decoded once per run.

    Raises:
      DataError: the run has checked other files before, or one is too large for the store.
    """
    facts = {"files": zlib.crc32(files.images)}
    found = folder.read_unit("undecodable", facts)
    if found is None:
        places, parts = np.arange(len(files.images)), []
        with progress("checking files", len(places), unit="file") as bar:
            for start in range(0, len(places), CHECKED_AT_A_TIME):
                some = places[start : start + CHECKED_AT_A_TIME]
                parts.append(store.undecodable(some))
                bar.update(len(some))
        found = {"places": np.concatenate(parts)}
        folder.save_unit("undecodable", facts, **found)
    left = leave_out(files, found["places"])
    folder.log(event="files", count=len(left.images), remarks=list(left.remarks))
    return left


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
