"""The one rule by which strengths are chosen, for every method that has one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

RULE = (
    "strengths: greatest {criterion} on the validation samples of {draws} draws ({what}) that "
    "are not reported, one that diverges counting as 0; a strength that a method's paper "
    "recommends is a row of its own"
)


class Choice(NamedTuple):
    """Of a method in a scenario; empty where there is nothing to choose."""

    strengths: Float[np.ndarray, "s"]
    """That were tried."""
    tried: Float[np.ndarray, "s"]
    """What each came to on the unreported draws, in the mean."""
    strength: float
    """The one chosen; 0 where there is none."""

    @property
    def at_the_edge(self) -> bool:
        """Whether it is the least or greatest that was tried."""
        tried = self.strengths
        return bool(len(tried)) and self.strength in (min(tried), max(tried))

    @property
    def told(self) -> str:
        """The grid in one line."""
        tried = zip(self.strengths, self.tried, strict=True)
        return "; ".join(
            f"{strength:g}: {'diverged' if np.isnan(value) else f'{value:.3f}'}"
            for strength, value in tried
        )

    @property
    def chosen(self) -> str:
        """The strength, and whether it lies at the edge."""
        return f"{self.strength:g}{' (edge of the grid)' if self.at_the_edge else ''}"


def fixed_strength(strength: float = 0.0) -> Choice:
    """Where there is nothing to choose."""
    return Choice(np.zeros(0), np.zeros(0), float(strength))


def choose_strength(strengths: Sequence[float], found: Float[np.ndarray, "s draws"]) -> Choice:
    """The strength of the greatest mean, of equals the least.

    Args:
      strengths: ascending, at least one.
      found: what each came to on each unreported draw; NaN where that diverged.
    """
    gone = np.isnan(found)
    tried = np.where(gone, 0, found).mean(axis=1)
    chosen = float(strengths[int(np.argmax(tried))])
    # Where every draw diverged a number would say too much.
    return Choice(np.array(strengths, float), np.where(gone.all(axis=1), np.nan, tried), chosen)
