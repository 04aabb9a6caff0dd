"""The distribution of angular errors."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from everlight.plots.style import Numbers, look_of, own_axes


def plot_error_curves(
    errors: Mapping[str, Float[Numbers, "runs *n"]],
    axes: Axes | None = None,
    limit: float = 12.0,
) -> Axes:
    """Share of images at or below each angular error: the cumulative distribution.

    Curves are means over runs. The first name's also has a band from its least to its greatest run;
    bands of several would cover each other.

    Args:
      errors: by name, degrees of every run's images.
      axes: where to draw; None makes a figure.
      limit: where the axis ends, in degrees.
    """
    drawn = own_axes(axes)
    for place, (name, values) in enumerate(errors.items()):
        runs = np.sort(np.asarray(values).reshape(len(values), -1), axis=1)
        share = 100 * np.arange(1, runs.shape[1] + 1) / runs.shape[1]
        look = look_of(place)
        drawn.plot(runs.mean(axis=0), share, label=name, **look._asdict())
        if place == 0 and len(runs) > 1:
            drawn.fill_betweenx(share, runs.min(0), runs.max(0), color=look.color, alpha=0.15, lw=0)
    drawn.set(
        xlabel="angular error (degrees)",
        ylabel="images at or below (%)",
        xlim=(0, limit),
        ylim=(0, 100),
    )
    if axes is None:
        drawn.legend()
    return drawn
