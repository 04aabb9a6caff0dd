"""`ImageSet`, which every loader of labelled images returns, and functions that shrink it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt8

from everlight_data.errors import DataError

ChannelStatistics = tuple[tuple[float, float, float], tuple[float, float, float]]
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


class PerClass(NamedTuple):
    """Largest numbers of training and test images per class."""

    train: int
    test: int


class LoadedImages(NamedTuple):
    """An image set and a note of what was read, for the report."""

    images: ImageSet
    note: str


def every_nth(labels: Int[np.ndarray, "n"], interval: int) -> Bool[np.ndarray, "n"]:
    """Return True at every `interval`-th image of each class; with fewer images, at the last."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        chosen[members[min(interval, len(members)) - 1 :: interval]] = True
    return chosen


def equal_steps(groups: Int[np.ndarray, "n"], most: int) -> Int[np.ndarray, "n"]:
    """Return the step of each sample, where every group is cut into at most `most` equal steps.

    The first or the last samples of all steps are evenly spaced in their groups. No two groups
    share a step.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return group * most + _ranks(groups) * most // counts[group]


def _ranks(groups: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Return the place of each sample among those of its group, from 0."""
    order = np.argsort(groups, kind="stable")
    ranks = np.empty(len(groups), int)
    ranks[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return ranks


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


def some_classes(images: ImageSet, first: int, end: int) -> ImageSet:
    """Return the classes from number `first`, which becomes 0, to before number `end`."""
    labels = images.train_labels, images.test_labels
    chosen = select_samples(images, *((first <= part) & (part < end) for part in labels))
    return chosen._replace(
        train_labels=chosen.train_labels - first,
        test_labels=chosen.test_labels - first,
        class_names=images.class_names[first:end],
    )


def first_per_class(images: ImageSet, counts: PerClass) -> ImageSet:
    """Return the first images of every class, in their order, or all if there are fewer."""
    train, test = _ranks(images.train_labels), _ranks(images.test_labels)
    return select_samples(images, train < counts.train, test < counts.test)


def select_samples(
    images: ImageSet, train: Bool[np.ndarray, "train"], test: Bool[np.ndarray, "test"]
) -> ImageSet:
    """Return the training and test samples that are marked, in their order; classes stay."""
    return images._replace(
        images=images.images[np.concatenate([train, test])],
        train_labels=images.train_labels[train],
        test_labels=images.test_labels[test],
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
        raise DataError(f"--side {side}; images of {height}x{width} shrink by integer factors only")
    if (height, width) == (side, side):
        return images
    blocks = images.reshape(count, side, height // side, side, width // side, channels)
    return np.rint(blocks.mean(axis=(2, 4), dtype=np.float32)).astype(np.uint8)


def as_rgb(images: UInt8[np.ndarray, "*n h w c"]) -> UInt8[np.ndarray, "*n h w 3"]:
    """Return images in three channels, grey ones as a view with three equal channels."""
    return np.broadcast_to(images, (*images.shape[:-1], 3))
