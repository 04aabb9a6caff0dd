"""Intervals of means over seeds."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

LEVEL = 0.95
"""Confidence level of every interval."""


class Interval(NamedTuple):
    """Interval of a mean by Student's distribution over seeds."""

    mean: float
    half: float
    """Half the width; NaN of fewer than two seeds."""


def paired_interval(differences: Float[np.ndarray, "n"]) -> Interval:
    """Return the mean over seeds and the half width of its interval at `LEVEL`."""
    count = len(differences)
    if count < 2:
        return Interval(float(np.mean(differences)), float("nan"))
    error = np.std(differences, ddof=1) / np.sqrt(count)
    return Interval(
        float(np.mean(differences)), float(stats.t.ppf((1 + LEVEL) / 2, count - 1) * error)
    )


def interval_cell(
    values: Float[np.ndarray, "n"], lowest: float = 0.0, highest: float = 1.0, digits: int = 3
) -> str:
    """Return the mean and its interval, cut at `lowest` and `highest`; one value alone as it is."""
    mean, half = paired_interval(values)
    if np.isnan(half):
        return f"{mean:.{digits}f}" + " [one seed]" * (len(values) < 2)
    low, high = max(mean - half, lowest), min(mean + half, highest)
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
