"""Labelled images, split into training and test images and normalized by the training images."""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

from everlight.checks import check_finite
from everlight.continual.engine import StoredImages
from everlight.errors import ArgumentError


class LabelledSplit(NamedTuple):
    """Training images, then test images, in one array; labels are class numbers.

    Attributes:
      images: images or features of any shape.
      train_labels: class of each training image.
      test_labels: class of each test image.
      class_names: labels in the order of the class numbers.
    """

    images: Shaped[np.ndarray, "n *shape"]
    train_labels: Int[np.ndarray, "n"]
    test_labels: Int[np.ndarray, "m"]
    class_names: tuple[Hashable, ...]


def split_labelled(
    images: Any, labels: Any, test: float | tuple, rng: np.random.Generator
) -> LabelledSplit:
    """Return training and test images, by a share of every class or as given.

    Args:
      images: images, `[n, h, w, c]`, or features of any shape, `[n, ...]`.
      labels: label of each image, of any comparable type.
      test: share of every class's images, drawn at random, for the test set; or separate test
        images and labels.
      rng: random generator of the draw.

    Raises:
      ValueError: images and labels differ in number, a class has one image, or a test label is
        unknown.
    """
    images, labels = _labelled("images", images, "labels", labels)
    if isinstance(test, tuple):
        if len(test) != 2:
            raise ArgumentError(f"test is a tuple of {len(test)}; give test=(images, labels)")
        of_test, test_labels = _labelled("test[0]", test[0], "test[1]", test[1])
        if of_test.shape[1:] != images.shape[1:]:
            raise ArgumentError(
                f"test[0] holds images of shape {of_test.shape[1:]}, images those of "
                f"{images.shape[1:]}; give one shape"
            )
        class_names, number = _numbered(labels)
        known = {name: place for place, name in enumerate(class_names)}
        unknown = [label for label in test_labels if label not in known]
        if unknown:
            raise ArgumentError(f"test[1] holds {unknown[0]!r}, which is not among labels")
        tested = np.array([known[label] for label in test_labels])
        return LabelledSplit(np.concatenate([images, of_test]), number, tested, class_names)
    class_names, number = _numbered(labels)
    chosen = np.zeros(len(number), bool)
    for label, name in enumerate(class_names):
        members = rng.permutation(np.flatnonzero(number == label))
        if len(members) < 2:
            raise ArgumentError(
                f"labels holds {name!r} once; give two images per class, to train and to test"
            )
        chosen[members[: min(max(1, round(test * len(members))), len(members) - 1)]] = True
    parts = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    return LabelledSplit(images[parts], number[~chosen], number[chosen], class_names)


def _labelled(
    name: str, images: Any, name_of_labels: str, labels: Any
) -> tuple[Shaped[np.ndarray, "n *shape"], list[Hashable]]:
    """Return images as an array, and labels as a list of Python values."""
    images = np.asarray(images)
    if images.ndim < 2 or images.dtype.kind not in "buif":
        raise ArgumentError(
            f"{name} is {images.dtype} of shape {images.shape}; give numbers, [n, h, w, c] or "
            "features [n, f]"
        )
    if getattr(labels, "ndim", 1) != 1:
        raise ArgumentError(f"{name_of_labels} has shape {labels.shape}; give one label per image")
    if not isinstance(labels, Iterable):
        raise ArgumentError(
            f"{name_of_labels} is {type(labels).__name__}; give one label per image"
        )
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(values) != len(images):
        raise ArgumentError(
            f"{name} holds {len(images)}, {name_of_labels} {len(values)}; give one label per "
            "image, test images included, or separate test data as test=(images, labels)"
        )
    wrong = [value for value in values if not isinstance(value, Hashable) or value != value]
    if wrong:
        raise ArgumentError(f"{name_of_labels} holds {wrong[0]!r}, which cannot be compared")
    return images, values


def _numbered(labels: list[Hashable]) -> tuple[tuple[Hashable, ...], Int[np.ndarray, "n"]]:
    names = set(labels)
    if len(names) < 2:
        raise ArgumentError(f"labels holds {len(names)} class; give two or more")
    try:
        ordered = sorted(names)
    # Numbers and text together have no common order.
    except TypeError:
        ordered = sorted(names, key=lambda name: (type(name).__name__, str(name)))
    place = {name: number for number, name in enumerate(ordered)}
    return tuple(ordered), np.array([place[label] for label in labels])


def store_normalized(images: Shaped[np.ndarray, "n *shape"], trained: int) -> StoredImages:
    """Store images on the device, to be normalized by the statistics of the first `trained`.

    Raises:
      ValueError: a value is not finite.
    """
    check_finite("images", images)
    mean, deviation = channel_statistics(images[:trained])
    values = images if images.dtype == np.uint8 else images.astype(np.float32)
    return StoredImages.of(
        values, jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32)
    )


def channel_statistics(
    images: Shaped[np.ndarray, "n *shape"],
) -> tuple[Float[np.ndarray, "*c"], Float[np.ndarray, "*c"]]:
    """Return mean and standard deviation per channel of training images, or one for features.

    A channel that is the same everywhere has the deviation 1, and so becomes 0.

    Args:
      images: images, `[n, h, w, c]`, or features of any other shape.
    """
    if images.dtype == np.uint8:
        mean, deviation = _statistics_of_bytes(images)
    else:
        axes = tuple(range(images.ndim - 1)) if images.ndim == 4 else None
        mean = images.mean(axis=axes, dtype=np.float64)
        deviation = images.std(axis=axes, dtype=np.float64)
    return np.asarray(mean), np.where(deviation > 0, deviation, 1)


def _statistics_of_bytes(
    images: UInt8[np.ndarray, "n *shape"],
) -> tuple[Float[np.ndarray, "*c"], Float[np.ndarray, "*c"]]:
    """Count values, since a copy as floats would be eight times the data."""
    shape = images.shape[-1:] if images.ndim == 4 else ()
    counts = np.stack(
        [
            np.bincount(images[..., channel].ravel(), minlength=256)
            for channel in (range(shape[0]) if shape else (slice(None),))
        ]
    )
    total, levels = counts.sum(axis=1), np.arange(256)
    mean = counts @ levels / total
    variance = (counts * (levels - mean[:, None]) ** 2).sum(axis=1) / total
    return mean.reshape(shape), np.sqrt(variance).reshape(shape)
