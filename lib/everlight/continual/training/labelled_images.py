"""Labelled images, split into training and test images and normalized by the training images."""

import warnings
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped, UInt8

from everlight.checks import check_finite
from everlight.checks.array_kinds import is_masked
from everlight.continual.engine import StoredImages
from everlight.continual.engine.sources import less_offset
from everlight.data_checks import check_tests, equal_numbers, is_missing, repeated_samples
from everlight.errors import ArgumentError

LARGE_MEAN = 1024
"""Mean over deviation from which on a mean is subtracted in float64: float32 has 24 bits."""

LARGEST = 1e37
"""Largest magnitude of a value: differences from the mean stay finite in float32."""
COUNTED = 1_000_000
"""Number of bytes of which the values are counted at a time."""


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
      ValueError: images and labels differ in number, a label is missing, two labels are one number
        in different texts, a class has one image, there is no test image, a test label is unknown,
        or test images have another scale.
    """
    images, labels = _labelled("images", images, "labels", labels)
    if isinstance(test, tuple):
        if len(test) != 2:
            raise ArgumentError(f"test is a tuple of {len(test)}; give test=(images, labels)")
        of_test, test_labels = _labelled("test[0]", test[0], "test[1]", test[1])
        if not test_labels:
            raise ArgumentError("test[1] holds no label; give test images of every class")
        if of_test.shape[1:] != images.shape[1:]:
            raise ArgumentError(
                f"test[0] holds images of shape {of_test.shape[1:]}, images those of "
                f"{images.shape[1:]}; give one shape"
            )
        class_names, number = _number_labels(labels)
        known = {name: position for position, name in enumerate(class_names)}
        unknown = [label for label in test_labels if label not in known]
        if unknown:
            raise ArgumentError(
                f"test[1] holds {unknown[0]!r}, which is not among labels; leave its images out"
            )
        tested = np.array([known[label] for label in test_labels])
        check_tests("images", images, "test[0]", of_test)
        warn_of_repeated(images, of_test)
        return LabelledSplit(np.concatenate([images, of_test]), number, tested, class_names)
    class_names, number = _number_labels(labels)
    chosen = np.zeros(len(number), bool)
    for label, name in enumerate(class_names):
        members = rng.permutation(np.flatnonzero(number == label))
        if len(members) < 2:
            raise ArgumentError(
                f"labels holds {name!r} once; give two images per class, to train and to test"
            )
        chosen[members[: min(max(1, round(test * len(members))), len(members) - 1)]] = True
    parts = np.concatenate([np.flatnonzero(~chosen), np.flatnonzero(chosen)])
    warn_of_repeated(images[~chosen], images[chosen])
    return LabelledSplit(images[parts], number[~chosen], number[chosen], class_names)


def refuse_untested(split: LabelledSplit) -> None:
    """Refuse classes without a test image: some class orders would have a task without any.

    Raises:
      ValueError: the message names the first three of these classes.
    """
    counts = np.bincount(split.test_labels, minlength=len(split.class_names))
    missing = [repr(split.class_names[number]) for number in np.flatnonzero(counts == 0)]
    if missing:
        others = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
        raise ArgumentError(
            f"test[1] lacks {', '.join(missing[:3])}{others}; give every class of labels a test "
            "image, or leave its training images out"
        )


def warn_of_repeated(
    images: Shaped[np.ndarray, "n *shape"], tests: Shaped[np.ndarray, "m *shape"]
) -> None:
    """Warn of test images that are training images; rows of features may be equal by chance."""
    count = int(repeated_samples(images, tests).sum()) if images.ndim > 2 else 0
    if count:
        warnings.warn(
            f"{count:,} of {len(tests):,} test images equal training images, and so results on "
            "them do not hold for new images; leave copies out",
            # The line that calls `train`, above the frame that checks its arguments.
            stacklevel=5,
        )


def _labelled(
    name: str, images: Any, name_of_labels: str, labels: Any
) -> tuple[Shaped[np.ndarray, "n *shape"], list[Hashable]]:
    """Return images as an array, and labels as a list of Python values."""
    images, values = read_images(name, images), read_labels(name_of_labels, labels)
    if len(values) != len(images):
        raise ArgumentError(
            f"{name} holds {len(images)}, {name_of_labels} {len(values)}; give one label per "
            "image, test images included, or separate test data as test=(images, labels)"
        )
    return images, values


def read_images(name: str, images: Any) -> Shaped[np.ndarray, "n *shape"]:
    """Return images or features as an array.

    Raises:
      ValueError: an entry is masked, or they are no numbers.
    """
    refuse_masked(name, images)
    images = np.asarray(images)
    if images.ndim < 2 or images.dtype.kind not in "buif":
        raise ArgumentError(
            f"{name} is {images.dtype} of shape {images.shape}; give numbers, [n, h, w, c] or "
            "features [n, f]"
        )
    return images


def read_labels(name: str, labels: Any, noun: str = "label") -> list[Hashable]:
    """Return labels, or another `noun` of each image, as a list of Python values.

    Raises:
      ValueError: one is masked, missing or not hashable, or they are not one per image.
    """
    refuse_masked(name, labels)
    if getattr(labels, "ndim", 1) != 1:
        raise ArgumentError(f"{name} has shape {labels.shape}; give one {noun} per image")
    if not isinstance(labels, Iterable):
        raise ArgumentError(f"{name} is {type(labels).__name__}; give one {noun} per image")
    # Missing times of NumPy would be numbers as Python values.
    is_time = getattr(getattr(labels, "dtype", None), "kind", "") in ("m", "M")
    values = labels.tolist() if hasattr(labels, "tolist") and not is_time else list(labels)
    missing = [row for row, value in enumerate(values) if is_missing(value)]
    if missing:
        first = values[missing[0]]
        text = ", and a text of another meaning another name" if isinstance(first, str) else ""
        raise ArgumentError(
            f"{name} holds {first!r} in row {missing[0]}, the first of {len(missing)} missing "
            f"{noun}s; give every image a {noun}{text}, or leave it out"
        )
    unhashable = [value for value in values if not isinstance(value, Hashable)]
    if unhashable:
        raise ArgumentError(
            f"{name} holds {unhashable[0]!r}, which cannot be compared; give numbers or text"
        )
    return values


def refuse_masked(name: str, values: Any) -> None:
    """Refuse NumPy's masked entries, whose mask an array would drop.

    Raises:
      ValueError: the message gives the number of entries and the first one's row.
    """
    if is_masked(values) and values.ndim and np.ma.is_masked(values):
        masked = np.argwhere(np.ma.getmaskarray(values))
        raise ArgumentError(
            f"{name} has {len(masked)} masked entries, the first in row {masked[0][0]}; leave "
            "these rows out"
        )


def _number_labels(labels: list[Hashable]) -> tuple[tuple[Hashable, ...], Int[np.ndarray, "n"]]:
    names = set(labels)
    twins = equal_numbers(dict.fromkeys(labels))
    if twins:
        raise ArgumentError(
            f"labels holds {twins[0]!r} and {twins[1]!r}, which are one number; give one class one "
            "label"
        )
    if len(names) < 2:
        raise ArgumentError(f"labels holds {len(names)} class; give two or more")
    try:
        ordered = sorted(names)
    # Numbers and text together have no common order.
    except TypeError:
        ordered = sorted(names, key=lambda name: (type(name).__name__, str(name)))
    position = {name: number for number, name in enumerate(ordered)}
    return tuple(ordered), np.array([position[label] for label in labels])


def store_normalized(images: Shaped[np.ndarray, "n *shape"], trained: int) -> StoredImages:
    """Store images on the device, to be normalized by the statistics of the first `trained`.

    Raises:
      ValueError: a value is not finite, or values or deviations do not fit into 32 bits.
    """
    refuse_unstorable("images", images)
    mean, deviation = channel_statistics(images[:trained])
    if deviation.min() < np.finfo(np.float32).tiny:
        raise ArgumentError(
            f"images has a standard deviation of {deviation.min():.1g}, too little for 32 bits; "
            "scale it"
        )
    return store_with_statistics(images, mean, deviation)


def refuse_unstorable(name: str, values: Shaped[np.ndarray, "..."]) -> None:
    """Refuse numbers that are not finite, or too large for float32.

    Raises:
      ValueError: the message gives the argument's name and the largest magnitude, or the number of
        values that are not finite.
    """
    largest = max(abs(float(values.min())), abs(float(values.max()))) if values.size else 0.0
    if LARGEST < largest < np.inf:
        raise ArgumentError(f"{name} holds {largest:.1g}; scale it to at most {LARGEST:g}")
    check_finite(name, values)


def store_with_statistics(
    images: Shaped[np.ndarray, "n *shape"],
    mean: Float[np.ndarray, "*c"],
    deviation: Float[np.ndarray, "*c"],
) -> StoredImages:
    """Store images on the device, uint8 as they are and others as float32.

    Where a mean is so large compared with the deviation that float32 would round what varies, it is
    subtracted before (`StoredImages.offset`).

    Args:
      images: images or features.
      mean: mean of each channel or column in float64, or one for all.
      deviation: standard deviation likewise, above 0.
    """
    offset = np.where(np.abs(mean) > LARGE_MEAN * deviation, mean, 0.0)
    is_offset = images.dtype != np.uint8 and bool(offset.any())
    subtracted = tuple(offset.ravel().tolist()) if is_offset else ()
    dtype = np.dtype(np.uint8 if images.dtype == np.uint8 else np.float32)
    stored = StoredImages.of(
        less_offset(images, subtracted, dtype),
        jnp.asarray(mean - offset if is_offset else mean, jnp.float32),
        jnp.asarray(deviation, jnp.float32),
    )
    return replace(stored, offset=subtracted)


def channel_statistics(
    images: Shaped[np.ndarray, "n *shape"],
) -> tuple[Float[np.ndarray, "*c"], Float[np.ndarray, "*c"]]:
    """Return mean and standard deviation per channel of images, or per column of features.

    Arrays of another rank have one mean and deviation. What is the same everywhere has the
    deviation 1, and so becomes 0.

    Args:
      images: training images, `[n, h, w, c]`, features, `[n, f]`, or an array of any other shape.
    """
    axes = tuple(range(images.ndim - 1)) if images.ndim in (2, 4) else None
    if images.dtype == np.uint8:
        mean, deviation = _statistics_of_bytes(images, axes is not None)
    else:
        mean = images.mean(axis=axes, dtype=np.float64)
        deviation = images.std(axis=axes, dtype=np.float64)
    # A rounded mean of equal numbers would leave a deviation above 0.
    least = images.min(axis=axes).astype(np.float64)
    greatest = images.max(axis=axes).astype(np.float64)
    is_constant = greatest == least
    # The squares of tiny differences are 0.
    deviation = np.where(deviation > 0, deviation, greatest - least)
    return np.where(is_constant, least, mean), np.where(is_constant, 1.0, deviation)


def _statistics_of_bytes(
    images: UInt8[np.ndarray, "n *shape"], per_channel: bool
) -> tuple[Float[np.ndarray, "*c"], Float[np.ndarray, "*c"]]:
    """Count values, since a copy as floats would be eight times the data."""
    shape = images.shape[-1:] if per_channel else ()
    counts = np.zeros((*shape, 256), np.int64).reshape(-1, 256)
    # NumPy counts 64-bit copies, which are small for some images at a time.
    rows = max(1, COUNTED * len(images) // max(1, images.size))
    for start in range(0, len(images), rows):
        values = images[start : start + rows].reshape(-1, len(counts))
        for channel, count in enumerate(counts):
            count += np.bincount(values[:, channel], minlength=256)
    total, levels = counts.sum(axis=1), np.arange(256)
    mean = counts @ levels / total
    variance = (counts * (levels - mean[:, None]) ** 2).sum(axis=1) / total
    return mean.reshape(shape), np.sqrt(variance).reshape(shape)
