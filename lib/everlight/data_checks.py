"""Checks of labelled samples that need no JAX: missing labels, equal labels, and two scales."""

import re
from collections.abc import Hashable, Iterable
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from jaxtyping import Shaped

from everlight.errors import ArgumentError

MISSING_TEXTS = ("nan", "NaN", "NaT", "<NA>", "NA", "N/A", "None", "NULL", "null")
"""Texts of missing values, as Python, NumPy, pandas, R and SQL write them."""
MOST_RATIO = 10
"""Ratio between the values of training and test images above which their scales differ."""
MOST_NEGATIVE = 0.05
"""Share of negative values that is refused in one of both where the other has none."""
MOST_MEASURED = 1_000_000
"""Number of values of which a median is taken."""
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
    # An array, which is no label.
    except ValueError:
        return False


def equal_numbers(labels: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the first two different labels that are one number, such as "1" and "01", or ().

    Texts are compared as decimal numbers, with each other and with labels that are numbers.
    """
    first: dict[Decimal, Hashable] = {}
    for label in labels:
        text = str(label).strip()
        if _NUMBER.fullmatch(text):
            twin = first.setdefault(Decimal(text), label)
            if twin != label:
                return twin, label
    return ()


def check_tests(
    name: str,
    images: Shaped[np.ndarray, "n *shape"],
    name_of_tests: str,
    tests: Shaped[np.ndarray, "m *shape"],
) -> None:
    """Refuse test images that are the training images, or of another type or scale.

    Scales differ where both the largest value and the median of the values that are not 0 differ
    by a factor above `MOST_RATIO`, or where negative values occur in one of both alone, unless they
    are features `[n, f]`.

    Raises:
      ValueError: all are the same, or the scales differ; the message gives both ranges.
    """
    if _are_trained(images, tests):
        raise ArgumentError(
            f"{name_of_tests} holds the same samples as {name}; give test samples that do not train"
        )
    kinds = images.dtype, tests.dtype
    differ = kinds[0] != kinds[1] and (
        {kind.kind for kind in kinds} == {"u"}
        or (np.uint8 in kinds and "f" in (kind.kind for kind in kinds))
    )
    if differ or _scales_differ(_scale(images), _scale(tests), images.ndim > 2):
        raise ArgumentError(
            f"{name_of_tests} holds {_range(tests)}, {name} {_range(images)}; give both in one "
            "type and on one scale"
        )


def _are_trained(
    images: Shaped[np.ndarray, "n *shape"], tests: Shaped[np.ndarray, "m *shape"]
) -> bool:
    """Return True if all test samples train; rows of few values may be equal by chance."""
    if images.ndim == 2 or not len(tests):
        return images.shape == tests.shape and np.array_equal(images, tests)
    # Mostly the first one does not, which takes no memory.
    if not any(np.array_equal(row, tests[0]) for row in images):
        return False
    known = {hash(row.tobytes()) for row in images}
    return all(hash(row.tobytes()) in known for row in tests.astype(images.dtype, copy=False))


class _Scale(NamedTuple):
    largest: float
    median: float
    """Median magnitude of the values that are not 0."""
    least: float
    negative: float
    """Share of the values that are negative."""


def _scales_differ(one: _Scale, other: _Scale, is_image: bool) -> bool:
    if min(one.largest, one.median, other.largest, other.median) > 0:
        ratios = other.largest / one.largest, other.median / one.median
        if max(ratios) < 1 / MOST_RATIO or min(ratios) > MOST_RATIO:
            return True
    pairs = ((one, other), (other, one)) if is_image else ()
    return any(a.least >= 0 and b.negative > MOST_NEGATIVE for a, b in pairs)


def _scale(values: Shaped[np.ndarray, "n *shape"]) -> _Scale:
    """Measure the range of all values, and the median of evenly spaced rows of them."""
    if not values.size:
        return _Scale(0, 0, 0, 0)
    rows = max(1, MOST_MEASURED * len(values) // values.size)
    chosen = values[:: -(-len(values) // rows)].astype(np.float64)
    sizes = np.abs(chosen[chosen != 0])
    least, greatest = float(values.min()), float(values.max())
    return _Scale(
        max(abs(least), abs(greatest)),
        float(np.median(sizes)) if sizes.size else 0.0,
        least,
        float(np.mean(chosen < 0)),
    )


def _range(values: Shaped[np.ndarray, "n *shape"]) -> str:
    return f"{values.dtype} from {float(values.min()):g} to {float(values.max()):g}"
