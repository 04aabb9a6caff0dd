"""Plot of the distribution of angular errors."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from everlight.checks import Between, NotEmpty, PositiveFloat, checked
from everlight.plots.style import Numbers, axes_or_new, line_style


@checked
def plot_error_curves(
    errors: Mapping[str, Annotated[Float[Numbers, "runs *n"], Between(0, or_nan=True), NotEmpty]],
    axes: Axes | None = None,
    limit: PositiveFloat = 12.0,
) -> Axes:
    """Plot the cumulative distribution of angular errors: the share of images per error bound.

    Curves are means over runs. The first curve also has a band from its lowest to its highest run;
    several bands would overlap.

    Args:
      errors: angular errors in degrees of every run's images, by name.
      axes: Axes to draw on; None creates a figure.
      limit: end of the horizontal axis, in degrees.
    """
    drawn = axes_or_new(axes)
    for index, (name, values) in enumerate(errors.items()):
        runs = np.sort(np.asarray(values).reshape(len(values), -1), axis=1)
        share = 100 * np.arange(1, runs.shape[1] + 1) / runs.shape[1]
        style = line_style(index)
        drawn.plot(runs.mean(axis=0), share, label=name, **style._asdict())
        if index == 0 and len(runs) > 1:
            drawn.fill_betweenx(
                share, runs.min(0), runs.max(0), color=style.color, alpha=0.15, lw=0
            )
    drawn.set(
        xlabel="angular error (degrees)",
        ylabel="images with at most this error (%)",
        xlim=(0, limit),
        ylim=(0, 100),
    )
    if axes is None:
        drawn.legend()
    return drawn
