"""What the pictures share: colours, lines, and an Axes where none is given."""

from typing import NamedTuple

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

Numbers = np.ndarray | jax.Array

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""That stay apart for colour-blind readers (Okabe and Ito 2008)."""
LINES = ("-", "--", "-.", ":")


class Look(NamedTuple):
    """How one curve is told from the others."""

    color: str
    linestyle: str


def look_of(place: int) -> Look:
    """The look of the curve at this place: eight colours, then the same with other lines.

    Raises:
      ValueError: there are 32 looks.
    """
    if not 0 <= place < len(COLORS) * len(LINES):
        raise ValueError(f"place={place}; {len(COLORS) * len(LINES)} curves can be told apart")
    return Look(COLORS[place % len(COLORS)], LINES[place // len(COLORS)])


def own_axes(axes: Axes | None, **of_axes: str) -> Axes:
    """The Axes that was given, or one in a figure of its own."""
    if axes is not None:
        return axes
    _, made = plt.subplots(layout="constrained", subplot_kw=of_axes)
    return made
