"""Student's interval of a mean, distances of means, and ties of candidates."""

import math
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from everlight.checks import (
    FINITE,
    NonNegativeFloat,
    NonNegativeInt,
    NotEmpty,
    PositiveInt,
    UnitInterval,
    check_range,
    checked,
)


class MeanInterval(NamedTuple):
    """A mean and half the width of its interval."""

    mean: float
    half: float
    """Half the width; NaN for fewer than two values."""


@checked
def student_interval(
    values: Annotated[Float[np.ndarray, "n"], NotEmpty], level: UnitInterval = 0.95
) -> MeanInterval:
    """Return the mean with its interval by Student's t distribution (Student 1908).

    Differences that are paired by seed give the interval of a paired comparison.

    Args:
      values: one value per independent unit (seed, task order), `[n]`, at least one.
      level: nominal coverage, between 0 and 1.
    """
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return MeanInterval(mean, float("nan"))
    error = np.std(values, ddof=1) / np.sqrt(count)
    return MeanInterval(mean, float(stats.t.ppf((1 + level) / 2, count - 1) * error))


@checked
def standard_errors_apart(
    values: Float[np.ndarray, "n"],
    mean: float,
    deviation: NonNegativeFloat = 0.0,
    count: PositiveInt = 1,
) -> float:
    """Return a mean's distance from another in standard errors of both (Welch 1947).

    Args:
      values: one value per independent unit, `[n]`.
      mean: the other mean, which is subtracted.
      deviation: sample standard deviation of its values; 0 where it is unknown.
      count: number of its values.

    Returns:
      The distance; NaN for fewer than two values. Without any deviation, where the values are equal
      and that of the other mean is 0, it is 0 or infinite.
    """
    if len(values) < 2:
        return float("nan")
    # The mean of equal values, and so their variance, may be off by a rounding.
    equal = np.max(values) == np.min(values)
    difference = float((values[0] if equal else np.mean(values)) - mean)
    variance = (0 if equal else np.var(values, ddof=1)) / len(values) + deviation**2 / count
    if variance == 0:
        return math.copysign(math.inf, difference) if difference else 0.0
    return float(difference / np.sqrt(variance))


@checked
def tied_candidates(
    best: NonNegativeInt, scores: Annotated[Float[np.ndarray, "s n"], FINITE, NotEmpty]
) -> Bool[np.ndarray, "s"]:
    """Return the candidates within one standard error of the best (Breiman et al. 1984, 3.4.3).

    The standard error is that of the differences from the best, paired by sample. With one sample
    it is unknown, and only equal candidates are tied.

    Args:
      best: number of the candidate that the others are compared with.
      scores: score of each candidate on each sample (seed, fold), `[s, n]`; greater is better.

    Returns:
      True for the best and every candidate whose mean is behind by at most one standard error,
      `[s]`.

    Raises:
      ValueError: the best is not a candidate.
    """
    check_range("best", best, 0, len(scores) - 1)
    behind = scores[best] - scores
    count = scores.shape[1]
    error = np.std(behind, axis=1, ddof=1) / np.sqrt(count) if count > 1 else 0.0
    return behind.mean(axis=1) <= error
