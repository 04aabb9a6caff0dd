"""Numbers of several runs as cells of tables; ± is the sample's standard deviation everywhere."""

import numpy as np
from jaxtyping import Float

from everlight.metrics import student_interval

LEVEL = 0.95
"""Confidence level of every interval."""


def deviation(values: Float[np.ndarray, "runs *rest"]) -> Float[np.ndarray, "*rest"]:
    """Return the sample's standard deviation over runs (runs - 1); NaN of one."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.std(values, axis=0, ddof=1)


def spread(values: Float[np.ndarray, "runs"], sign: str = "", digits: int = 3) -> str:
    """Return mean and deviation; nan where one is NaN."""
    return plus_minus(values.mean(), deviation(values), sign, digits)


def final_cell(values: Float[np.ndarray, "runs"]) -> str:
    """Return mean and deviation of final scores, or how many runs diverged where any did."""
    diverged = np.count_nonzero(np.isnan(values))
    return f"diverged in {diverged} of {len(values)}" if diverged else spread(values)


def plus_minus(mean: float, deviation: float, sign: str = "", digits: int = 3) -> str:
    """Return a mean and its deviation, where that is known; a rounded zero has no minus."""
    after = "" if np.isnan(deviation) else f" ± {deviation:.{digits}f}"
    return f"{mean:{sign}z.{digits}f}{after}"


def interval_cell(
    values: Float[np.ndarray, "n"], lowest: float = 0.0, highest: float = 1.0, digits: int = 3
) -> str:
    """Return the mean and its interval at `LEVEL`, cut at `lowest` and `highest`."""
    mean, half = student_interval(values, LEVEL)
    if np.isnan(half):
        return f"{mean:z.{digits}f}" + " (no interval from one seed)" * (len(values) < 2)
    low, high = max(mean - half, lowest), min(mean + half, highest)
    return f"{mean:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"


def interval_text(values: Float[np.ndarray, "n"]) -> str:
    """Return the interval of a mean at `LEVEL`, cut at 0 and 1; – where there is none."""
    _, bracket, interval = interval_cell(values).partition(" [")
    return f"[{interval}" if bracket else "–"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def percent(values: Float[np.ndarray, "runs"]) -> str:
    """Return shares in percent, as `spread`."""
    return spread(100 * values, digits=1)


def dash(cell: str) -> str:
    """Return a dash for what does not exist, with a sign or without."""
    return "–" if cell in ("nan", "+nan") else cell


def sentence(name: str) -> str:
    """Return a name as it begins a sentence."""
    return name[:1].upper() + name[1:]


def in_time(seconds: float) -> str:
    """Return a duration with its two largest units."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
