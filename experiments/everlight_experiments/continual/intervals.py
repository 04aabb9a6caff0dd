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
