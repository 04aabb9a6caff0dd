"""`ImageSet`, which every loader of labelled images returns, and functions that shrink it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from everlight_data.errors import DataError

Channels = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Mean and standard deviation of red, green and blue, on a scale of 0 to 1."""


class ImageSet(NamedTuple):
    """Labelled images in their stored form, training samples first and test samples after them."""

    name: str
    """Name of the set in reports."""
    images: UInt8[np.ndarray, "n h w c"]
    """One channel (grey) or three (RGB)."""
    train_labels: Int[np.ndarray, "train"]
    test_labels: Int[np.ndarray, "test"]
    class_names: tuple[str, ...]


class LoadedImages(NamedTuple):
    """An image set and a note of what was read, for the report."""

    images: ImageSet
    note: str


def every_nth(labels: Int[np.ndarray, "n"], every: int) -> Bool[np.ndarray, "n"]:
    """Return True at every `every`-th image of each class; with fewer images, at the last."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen[members[min(every, len(members)) - 1 :: every]] = True
    return chosen


def split_off(
    name: str,
    images: UInt8[np.ndarray, "n h w c"],
    labels: Int[np.ndarray, "n"],
    test: Bool[np.ndarray, "n"],
    class_names: tuple[str, ...],
) -> ImageSet:
    """Return a set whose test images are those marked in `test`."""
    order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])
    return ImageSet(name, images[order], labels[~test], labels[test], class_names)


def first_classes(images: ImageSet, count: int) -> ImageSet:
    """Return the first `count` classes of a set, or all if it has fewer."""
    labels = np.concatenate([images.train_labels, images.test_labels])
    return images._replace(
        images=images.images[labels < count],
        train_labels=images.train_labels[images.train_labels < count],
        test_labels=images.test_labels[images.test_labels < count],
        class_names=images.class_names[:count],
    )


def last_classes(images: ImageSet, first: int) -> ImageSet:
    """Return the classes from number `first` on, which becomes number 0."""
    labels = np.concatenate([images.train_labels, images.test_labels])
    train, test = images.train_labels - first, images.test_labels - first
    return images._replace(
        images=images.images[labels >= first],
        train_labels=train[train >= 0],
        test_labels=test[test >= 0],
        class_names=images.class_names[first:],
    )


def first_per_class(images: ImageSet, train: int, test: int) -> ImageSet:
    """Return the first images of every class, in their order, or all if there are fewer."""

    def first(labels: Int[np.ndarray, "n"], count: int) -> Int[np.ndarray, "k"]:
        members = [np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]
        return np.sort(np.concatenate(members))

    kept_train, kept_test = first(images.train_labels, train), first(images.test_labels, test)
    kept = np.concatenate([kept_train, len(images.train_labels) + kept_test])
    return images._replace(
        images=images.images[kept],
        train_labels=images.train_labels[kept_train],
        test_labels=images.test_labels[kept_test],
    )


def shrink_images(images: ImageSet, side: int) -> ImageSet:
    """Shrink a set's images to squares of `side` pixels by block means.

    Raises:
      DataError: `side` does not divide the images' height and width.
    """
    return images._replace(images=block_means(images.images, side))


def block_means(images: UInt8[np.ndarray, "n h w c"], side: int) -> UInt8[np.ndarray, "n s s c"]:
    """Shrink images to squares of `side` pixels by block means.

    Raises:
      DataError: `side` does not divide the images' height and width.
    """
    count, height, width, channels = images.shape
    if not side or height % side or width % side:
        raise DataError(f"side={side}; images of {height}x{width} shrink by integer factors only")
    if (height, width) == (side, side):
        return images
    blocks = images.reshape(count, side, height // side, side, width // side, channels)
    return np.rint(blocks.mean(axis=(2, 4), dtype=np.float32)).astype(np.uint8)


def as_rgb(images: UInt8[np.ndarray, "*n h w c"]) -> UInt8[np.ndarray, "*n h w 3"]:
    """Return images in three channels, grey ones as a view with three equal channels."""
    return np.broadcast_to(images, (*images.shape[:-1], 3))
