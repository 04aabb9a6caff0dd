"""Radar chart of the seven criteria of a continual learner."""

from collections.abc import Mapping
from typing import Annotated

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.projections.polar import PolarAxes

from everlight.checks import FRACTION, checked
from everlight.errors import ArgumentError
from everlight.metrics.cl_score import CRITERIA
from everlight.plots.style import axes_or_new, line_style


@checked
def plot_criteria(
    criteria: Mapping[str, Mapping[str, Annotated[Float[jax.Array, ""] | float, FRACTION]]],
    axes: Axes | None = None,
) -> Axes:
    """Plot one polygon per strategy: each criterion is a ray from 0 at the centre to 1 at the rim.

    A is the average accuracy over all times, and BWT+ and REM use BWT over all later times
    (Díaz-Rodríguez et al. 2018).

    Args:
      criteria: `metrics.measure_criteria` of a run, or the mean of `summarize_runs`, by name.
      axes: polar Axes to draw on; None creates a figure.

    Raises:
      ValueError: the Axes are not polar, or a criterion is missing.
    """
    drawn = axes_or_new(axes, projection="polar")
    if not isinstance(drawn, PolarAxes):
        raise ArgumentError("axes are not polar; give some of subplot_kw={'projection': 'polar'}")
    rays = np.linspace(0, 2 * np.pi, len(CRITERIA), endpoint=False)
    for index, (name, values) in enumerate(criteria.items()):
        missing = [criterion for criterion in CRITERIA if criterion not in values]
        if missing:
            raise ArgumentError(f"{name} lacks {', '.join(missing)}; give all criteria")
        lengths = [float(values[criterion]) for criterion in CRITERIA]
        style = line_style(index)
        closed = [*lengths, lengths[0]]
        drawn.plot([*rays, rays[0]], closed, label=name, **style._asdict())
        drawn.fill(rays, lengths, color=style.color, alpha=0.06)
    drawn.set_theta_offset(np.pi / 2)
    drawn.set_xticks(rays, CRITERIA)
    drawn.set_ylim(0, 1)
    drawn.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "0.5", "", "1"])
    if axes is None:
        drawn.figure.legend(loc="outside right upper")
    return drawn
