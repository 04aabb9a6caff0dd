"""The one rule by which hyperparameters are chosen, for every method that has one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

RULE = (
    "Each hyper-parameter has the value with the highest {criterion} on validation samples, "
    "averaged over {draws} validation seeds. Each validation seed has its own {what}; a diverged "
    "run counts as 0."
)


class Choice(NamedTuple):
    """Selected hyper-parameter of a method; empty where there is nothing to select."""

    hyperparameters: Float[np.ndarray, "s"]
    """That were tried."""
    tried: Float[np.ndarray, "s"]
    """Mean criterion of each value on the validation seeds."""
    hyperparameter: float
    """The one chosen; 0 where there is none."""
    flat: bool = False
    """True if no value is distinguishable: none diverges, and the mean of each one's
    differences from it is within one standard error."""

    @property
    def at_the_edge(self) -> bool:
        """True if it is the least or greatest value tried, and better than others."""
        tried = self.hyperparameters
        ends = bool(len(tried)) and self.hyperparameter in (min(tried), max(tried))
        return ends and not self.flat

    @property
    def told(self) -> str:
        """The grid in one line."""
        tried = zip(self.hyperparameters, self.tried, strict=True)
        return "; ".join(
            f"{hyperparameter:g}: {'diverged' if np.isnan(value) else f'{value:.3f}'}"
            for hyperparameter, value in tried
        )

    @property
    def chosen(self) -> str:
        """The hyperparameter, and whether the grid is flat or it lies at its edge."""
        said = " (flat)" if self.flat else " (edge of the grid)" if self.at_the_edge else ""
        return f"{self.hyperparameter:g}{said}"


def fixed_hyperparameter(hyperparameter: float = 0.0) -> Choice:
    """Where there is nothing to choose."""
    return Choice(np.zeros(0), np.zeros(0), float(hyperparameter))


def not_told_from(best: int, counted: Float[np.ndarray, "s draws"]) -> Bool[np.ndarray, "s"]:
    """Which are behind one of them by no more than a standard error of their paired differences.

    Of one draw no error is known, and equals alone are not told from it.
    """
    behind = counted[best] - counted
    draws = counted.shape[1]
    error = np.std(behind, axis=1, ddof=1) / np.sqrt(draws) if draws > 1 else 0.0
    return behind.mean(axis=1) <= error


def choose_hyperparameter(
    hyperparameters: Sequence[float], found: Float[np.ndarray, "s draws"]
) -> Choice:
    """The hyperparameter of the greatest mean, of equals the least.

    Args:
      hyperparameters: ascending, at least one.
      found: what each came to on each unreported draw; NaN where that diverged.
    """
    gone = np.isnan(found)
    counted = np.where(gone, 0, found)
    tried = counted.mean(axis=1)
    best = int(np.argmax(tried))
    return Choice(
        np.array(hyperparameters, float),
        # Where every draw diverged a number would say too much.
        np.where(gone.all(axis=1), np.nan, tried),
        float(hyperparameters[best]),
        not gone.any() and bool(np.all(not_told_from(best, counted))),
    )
