"""Pictures of accuracies, forgetting, criteria, angular errors and lights, each on one Axes.

They need matplotlib (the extra `plots`), and nothing else of the library imports them. Every
function takes arrays, and an Axes to draw on, and returns it. Given none it makes a figure, with a
legend or a scale of colours; on an Axes of yours these are left to you.
"""

from everlight.plots.accuracy import (
    plot_accuracy_matrix,
    plot_accuracy_over_time,
    plot_forgetting,
)
from everlight.plots.criteria import plot_criteria
from everlight.plots.errors import plot_error_curves
from everlight.plots.lights import plot_chromaticity
from everlight.plots.style import COLORS, Look, look_of

__all__ = [
    "COLORS",
    "Look",
    "look_of",
    "plot_accuracy_matrix",
    "plot_accuracy_over_time",
    "plot_chromaticity",
    "plot_criteria",
    "plot_error_curves",
    "plot_forgetting",
]
