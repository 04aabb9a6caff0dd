"""Labelled images as every loader of a classification set gives them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from data_pipelines.errors import DataError

Channels = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Mean and deviation of red, green and blue, 0 to 1."""


class ImageSet(NamedTuple):
    """Images as stored, training samples first and test samples after them."""

    name: str
    """How a report calls the set."""
    images: UInt8[np.ndarray, "n h w 3"]
    train_labels: Int[np.ndarray, "train"]
    test_labels: Int[np.ndarray, "test"]
    class_names: tuple[str, ...]


def every_nth(labels: Int[np.ndarray, "n"], every: int) -> Bool[np.ndarray, "n"]:
    """True at each `every`-th image of a class, in their order; of fewer images at the last."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen[members[min(every, len(members)) - 1 :: every]] = True
    return chosen


def split_off(
    name: str,
    images: UInt8[np.ndarray, "n h w 3"],
    labels: Int[np.ndarray, "n"],
    test: Bool[np.ndarray, "n"],
    class_names: tuple[str, ...],
) -> ImageSet:
    """The set of labelled images with those of `test` for its test images."""
    order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])
    return ImageSet(name, images[order], labels[~test], labels[test], class_names)


def first_classes(images: ImageSet, count: int) -> ImageSet:
    """The set with its first classes only; all where it has fewer."""
    labels = np.concatenate([images.train_labels, images.test_labels])
    return images._replace(
        images=images.images[labels < count],
        train_labels=images.train_labels[images.train_labels < count],
        test_labels=images.test_labels[images.test_labels < count],
        class_names=images.class_names[:count],
    )


def first_per_class(images: ImageSet, train: int, test: int) -> ImageSet:
    """The set with the first images of every class only, in their order; all where it has fewer."""

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
    """The set with square images of `side` pixels, each the mean of a block.

    Raises:
      DataError: the images are no whole number of times as large.
    """
    return images._replace(images=block_means(images.images, side))


def block_means(images: UInt8[np.ndarray, "n h w 3"], side: int) -> UInt8[np.ndarray, "n s s 3"]:
    """Square images of `side` pixels, each the mean of a block.

    Raises:
      DataError: the images are no whole number of times as large.
    """
    count, height, width, channels = images.shape
    if not side or height % side or width % side:
        raise DataError(f"side={side}; images of {height}x{width} shrink by whole factors only")
    if (height, width) == (side, side):
        return images
    blocks = images.reshape(count, side, height // side, side, width // side, channels)
    return np.rint(blocks.mean(axis=(2, 4), dtype=np.float32)).astype(np.uint8)
