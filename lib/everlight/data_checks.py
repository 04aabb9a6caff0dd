"""Checks of labelled samples that need no JAX: labels, scales, and repeated test samples."""

import re
import warnings
from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from everlight.errors import ArgumentError

MISSING_TEXTS = ("nan", "NaN", "NaT", "<NA>", "NA", "N/A", "None", "NULL", "null")
"""Texts of missing values, as Python, NumPy, pandas, R and SQL write them."""
MAX_RATIO = 10.0
"""Ratio between the values of training and test images above which their scales differ."""
MAX_NEGATIVE = 0.05
"""Share of negative values from which a set is refused if the other set has none."""
RATIO_OF_FEW = 50.0
"""The same ratio for small sets of images, which may be dark or bright."""
MAX_MEASURED = 1_000_000
"""Number of values of which a median is taken."""
MAX_COMPARED = 256
"""Values of a sample that are compared before the whole sample is."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?")


def is_missing(label: Hashable) -> bool:
    """Return True for None, NaN, NaT, pandas' NA, masks, and texts that are blank or name them."""
    if label is None or label is np.ma.masked:
        return True
    if isinstance(label, str | bytes):
        text = label.decode("latin-1") if isinstance(label, bytes) else label
        return not text.strip() or text.strip() in MISSING_TEXTS
    try:
        return bool(label != label)
    # Neither equal to itself nor not, as pandas' NA.
    except (TypeError, ArithmeticError):
        return True
    # An array, which is not a label.
    except ValueError:
        return False


def equal_numbers(labels: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the first two different labels that are one number, such as "1" and "01", or ().

    Texts are compared as decimal numbers, with each other and with labels that are numbers.
    """
    first: dict[Decimal, Hashable] = {}
    for label in labels:
        number = as_number(str(label).strip())
        if number is not None:
            twin = first.setdefault(number, label)
            if twin != label:
                return twin, label
    return ()


def as_number(text: str) -> Decimal | None:
    """Return the decimal number that a text states; None if it states none."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def check_tests(
    name: str,
    images: Shaped[np.ndarray, "n *shape"],
    name_of_tests: str,
    tests: Shaped[np.ndarray, "m *shape"],
) -> None:
    """Refuse test images that equal the training images, or have another type or scale.

    Scales differ where both the largest value and the median of the values that are not 0 differ
    by a factor above `MAX_RATIO`, or where negative values occur in one of both alone, unless they
    are features `[n, f]`.

    Raises:
      ValueError: all are the same, or the scales differ; the message gives both ranges.
    """
    if images.ndim == 2 or not len(tests):
        # Rows of few values may be equal by chance.
        are_same = images.shape == tests.shape and np.array_equal(images, tests)
    else:
        are_same = bool(repeated_samples(images, tests).all())
    if are_same:
        raise ArgumentError(
            f"{name_of_tests} holds the same samples as {name}; give test samples that do not train"
        )
    kinds = images.dtype, tests.dtype
    differ = kinds[0] != kinds[1] and (
        {kind.kind for kind in kinds} == {"u"}
        or (np.uint8 in kinds and "f" in (kind.kind for kind in kinds))
    )
    if differ or _scales_differ(scale_of(images), scale_of(tests), images.ndim > 2):
        raise ArgumentError(
            f"{name_of_tests} holds {_range(tests)}, {name} {_range(images)}; give both in one "
            "type and on one scale"
        )


def repeated_samples(
    images: Shaped[np.ndarray, "n *shape"], tests: Shaped[np.ndarray, "m *shape"]
) -> Bool[np.ndarray, "m"]:
    """Return True for each test sample that equals a training sample, as floats of fewer bits."""
    floats = [samples.dtype for samples in (images, tests) if samples.dtype.kind == "f"]
    integers = np.result_type(images, tests)
    common = min(floats, key=lambda kind: kind.itemsize, default=integers)
    rows = [samples.reshape(len(samples), -1) for samples in (images, tests)]
    step = max(1, rows[0].shape[1] // MAX_COMPARED)
    # A part of the values tells most samples apart, and whole ones are read only where it does not.
    near = _members([samples[:, ::step] for samples in rows], common)
    if near.any():
        near[near] = _members([rows[0], rows[1][near]], common)
    return near


def _members(rows: list[Shaped[np.ndarray, "_ f"]], kind: np.dtype) -> Bool[np.ndarray, "m"]:
    """Return True for each row of the second array that occurs in the first."""
    known, keys = {*_keys(rows[0], kind)}, _keys(rows[1], kind)
    return np.array([key in known for key in keys], bool)


def ambiguous_samples(
    images: Shaped[np.ndarray, "n *shape"], labels: Int[np.ndarray, "n"]
) -> Bool[np.ndarray, "n"]:
    """Return True for each sample that equals a sample of another class."""
    keys, classes = _keys(images, images.dtype), {}
    for key, label in zip(keys, labels.tolist(), strict=True):
        classes.setdefault(key, set()).add(label)
    return np.array([len(classes[key]) > 1 for key in keys], bool)


def _keys(rows: Shaped[np.ndarray, "n *shape"], kind: np.dtype) -> list[int]:
    """Return hashes, equal where the rows' values of a dtype are."""
    return [hash(row.astype(kind, copy=False).tobytes()) for row in rows]


def warn_of_scale(name: str, images: Shaped[np.ndarray, "n *shape"], trained: "Scale") -> None:
    """Warn of images whose scale differs from that of the network's training images.

    Both their largest value and the median of those that are not 0 differ by a factor above
    `RATIO_OF_FEW`, or negative values occur in images `[n, h, w, c]` where training had none. The
    warning is of the line that calls `predict`, three calls above.
    """
    scale = scale_of(images)
    signs = trained.least >= 0 and scale.negative > MAX_NEGATIVE and images.ndim > 2
    if signs or _ratios_differ(trained, scale, RATIO_OF_FEW):
        warnings.warn(
            f"{name} hold {_range(images)}, and the largest magnitude in training was "
            f"{trained.largest:g}; give them on the scale of the training images",
            stacklevel=4,
        )


class Scale(NamedTuple):
    """Measures of the values of images or features."""

    largest: float
    median: float
    """Median magnitude of the values that are not 0."""
    least: float
    negative: float
    """Share of the values that are negative."""


def _scales_differ(one: Scale, other: Scale, is_image: bool) -> bool:
    if _ratios_differ(one, other, MAX_RATIO):
        return True
    pairs = ((one, other), (other, one)) if is_image else ()
    return any(a.least >= 0 and b.negative > MAX_NEGATIVE for a, b in pairs)


def _ratios_differ(one: Scale, other: Scale, most: float) -> bool:
    if not min(one.largest, one.median, other.largest, other.median) > 0:
        return False
    ratios = other.largest / one.largest, other.median / one.median
    return max(ratios) < 1 / most or min(ratios) > most


def scale_of(values: Shaped[np.ndarray, "n *shape"]) -> Scale:
    """Measure the range of all values, and the median of evenly spaced rows of them."""
    if not values.size:
        return Scale(0, 0, 0, 0)
    rows = max(1, MAX_MEASURED * len(values) // values.size)
    chosen = values[:: -(-len(values) // rows)].astype(np.float64)
    sizes = np.abs(chosen[chosen != 0])
    least, greatest = float(values.min()), float(values.max())
    return Scale(
        max(abs(least), abs(greatest)),
        float(np.median(sizes)) if sizes.size else 0.0,
        least,
        float(np.mean(chosen < 0)),
    )


def _range(values: Shaped[np.ndarray, "n *shape"]) -> str:
    return f"{values.dtype} from {float(values.min()):g} to {float(values.max()):g}"
