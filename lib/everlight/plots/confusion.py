"""Plot of a confusion matrix."""

from typing import Annotated

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from everlight.checks import FRACTION, NotEmpty, checked
from everlight.plots.style import Numbers, axes_or_new


@checked
def plot_confusion(
    shares: Annotated[Float[Numbers, "true predicted"], FRACTION, NotEmpty],
    category: str = "class",
    axes: Axes | None = None,
) -> Axes:
    """Plot the shares of each true class that are predicted as each class, from 0 to 1.

    Args:
      shares: shares at `[true, predicted]`; a cell without samples is NaN, and white.
      category: word for a row and a column.
      axes: Axes to draw on; None creates a figure. `Figure.colorbar` takes `axes.images[0]`.
    """
    drawn = axes_or_new(axes)
    picture = drawn.imshow(
        np.asarray(shares), vmin=0, vmax=1, cmap="magma_r", interpolation="nearest"
    )
    drawn.set(xlabel=f"predicted {category}", ylabel=f"true {category}")
    for direction in (drawn.xaxis, drawn.yaxis):
        direction.set_major_locator(MaxNLocator(5, integer=True))
    drawn.grid(False)
    if axes is None:
        drawn.figure.colorbar(picture, ax=drawn, label=f"share of the true {category}")
    return drawn
