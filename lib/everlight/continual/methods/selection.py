"""Selection of a method's hyper-parameter by its results on validation seeds."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from jaxtyping import Float

from everlight.checks import FINITE, NotEmpty, checked
from everlight.errors import ArgumentError
from everlight.metrics.student import tied_candidates


class Choice(NamedTuple):
    """Selected hyper-parameter of a method; empty where there is nothing to select."""

    hyperparameters: Float[np.ndarray, "s"]
    """Values that were tried."""
    tried: Float[np.ndarray, "s"]
    """Mean criterion of each value on the validation seeds; NaN where all its runs diverged."""
    hyperparameter: float
    """The selected value; 0 where there is none."""
    flat: bool = False
    """True if no run diverged and all values are statistically tied with the selected one."""

    @property
    def grid_summary(self) -> str:
        """The grid in one line."""
        return "; ".join(
            f"{hyperparameter:g}: {'diverged' if np.isnan(value) else f'{value:.3f}'}"
            for hyperparameter, value in zip(self.hyperparameters, self.tried, strict=True)
        )

    @property
    def chosen(self) -> str:
        """The hyper-parameter, and whether the grid is flat or it lies at its edge."""
        tried = self.hyperparameters
        edge = len(tried) and self.hyperparameter in (min(tried), max(tried))
        mark = " (flat)" if self.flat else " (edge of the grid)" if edge else ""
        return f"{self.hyperparameter:g}{mark}"


@checked
def fixed_hyperparameter(hyperparameter: float | int = 0.0) -> Choice:
    """Return the choice where there is nothing to select.

    Args:
      hyperparameter: the only value; 0 for a method without one.
    """
    return Choice(np.zeros(0), np.zeros(0), float(hyperparameter))


@checked
def choose_hyperparameter(
    hyperparameters: Sequence[float | int],
    criteria: Annotated[Float[np.ndarray, "s n"], FINITE._replace(or_nan=True), NotEmpty],
) -> Choice:
    """Return the hyper-parameter with the greatest mean; among equals, the first.

    Args:
      hyperparameters: tried values, ascending, at least one.
      criteria: criterion of each value on each validation seed, `[s, n]`; NaN where the run
        diverged. That counts as 0, or as twice the least criterion if this is negative, and so
        never above a criterion.

    Raises:
      ValueError: the numbers of values and of criteria differ.
    """
    if len(hyperparameters) != len(criteria):
        raise ArgumentError(
            f"criteria has {len(criteria)} rows; give {len(hyperparameters)}, one per value"
        )
    diverged = np.isnan(criteria)
    least = np.min(criteria, where=~diverged, initial=0)
    scores = np.where(diverged, 2 * least, criteria).astype(float)
    tried = scores.mean(axis=1)
    best = int(np.argmax(tried))
    return Choice(
        np.array(hyperparameters, float),
        # A number would say too much if every seed diverged.
        np.where(diverged.all(axis=1), np.nan, tried),
        float(hyperparameters[best]),
        not diverged.any() and bool(np.all(tied_candidates(best, scores))),
    )
