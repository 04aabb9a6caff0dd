"""Plot of how many known samples are accepted when some unknown ones are (a ROC curve)."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from everlight.checks import FRACTION, checked
from everlight.plots.style import Numbers, axes_or_new, line_style


@checked
def plot_rejection(
    curves: Mapping[str, Annotated[Float[Numbers, "points"], FRACTION]], axes: Axes | None = None
) -> Axes:
    """Plot ROC curves of the rejection of unseen classes, and that of chance.

    Args:
      curves: accepted fraction of known samples by name, at fractions of accepted unknown samples
        that are evenly spaced from 0 to 1 (`metrics.open_set.open_set_scores`).
      axes: Axes to draw on; None creates a figure.
    """
    drawn = axes_or_new(axes)
    drawn.plot([0, 1], [0, 1], color="#999999", linestyle=":")
    for index, (name, known) in enumerate(curves.items()):
        style = line_style(index)
        drawn.plot(np.linspace(0, 1, len(known)), known, label=name, **style._asdict())
    drawn.set(xlabel="unknown samples accepted", ylabel="known samples accepted")
    drawn.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    if axes is None:
        drawn.legend(loc="lower right")
    return drawn
