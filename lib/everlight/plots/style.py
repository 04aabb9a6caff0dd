"""Colours, line styles and Axes shared by all plots."""

from typing import Annotated, NamedTuple

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from everlight.checks import Between, checked

Numbers = np.ndarray | jax.Array

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Colours that colour-blind readers can distinguish (Okabe and Ito 2008)."""
LINES = ("-", "--", "-.", ":")


class LineStyle(NamedTuple):
    """Colour and dashes of one curve."""

    color: str
    linestyle: str


@checked
def line_style(index: Annotated[int, Between(0, 31)]) -> LineStyle:
    """Return the style of the curve with this index: eight colours, then again with other dashes.

    Raises:
      ValueError: `index` is outside the 32 styles.
    """
    return LineStyle(COLORS[index % len(COLORS)], LINES[index // len(COLORS)])


def axes_or_new(axes: Axes | None, **subplot_options: str) -> Axes:
    """Return the given Axes, or new ones in a new figure."""
    if axes is not None:
        return axes
    _, new_axes = plt.subplots(layout="constrained", subplot_kw=subplot_options)
    return new_axes
