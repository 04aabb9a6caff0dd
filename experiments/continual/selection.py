"""The one rule by which strengths are chosen, for every method that has one."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

RULE = (
    "strengths: greatest final accuracy on the validation samples of {orders} orders of classes "
    "that are not reported, an order that diverges counting as none right; the last epoch is kept"
)


class Choice(NamedTuple):
    """Of a method in a scenario; empty where there is nothing to choose."""

    strengths: Float[np.ndarray, "s"]
    """That were tried."""
    tried: Float[np.ndarray, "s"]
    """Mean final accuracy of each on the unreported orders' validation samples."""
    strength: float
    """The one chosen; 0 where there is none."""

    @property
    def at_the_edge(self) -> bool:
        """Whether it is the least or greatest that was tried."""
        return self.strength in (min(self.strengths), max(self.strengths))


def choose_strength(strengths: Sequence[float], finals: Float[np.ndarray, "s orders"]) -> Choice:
    """The strength of the greatest mean final accuracy, of equals the least.

    Args:
      strengths: ascending.
      finals: final accuracy of each on each unreported order; NaN where that diverged.
    """
    if not len(strengths):
        return Choice(np.zeros(0), np.zeros(0), 0.0)
    tried = np.where(np.isnan(finals), 0, finals).mean(axis=1)
    return Choice(np.array(strengths, float), tried, float(strengths[int(np.argmax(tried))]))
