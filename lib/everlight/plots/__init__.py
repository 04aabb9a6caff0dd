"""Plots of accuracies, forgetting, confusion, criteria, ROC curves, angles and illuminants.

They need matplotlib (the extra `plots`), and nothing else of the library imports them. Every
function takes arrays and an optional Axes, and returns the Axes. Without an Axes it creates a
figure with a legend or a colour bar. On a given Axes, the caller adds these.
"""

from everlight.plots.accuracy import plot_accuracy_matrix, plot_accuracy_over_time, plot_forgetting
from everlight.plots.answers import plot_answers
from everlight.plots.confusion import plot_confusion
from everlight.plots.criteria import plot_criteria
from everlight.plots.errors import plot_error_curves
from everlight.plots.illuminants import plot_chromaticity
from everlight.plots.rejection import plot_rejection
from everlight.plots.style import COLORS, LineStyle, line_style

__all__ = [
    "COLORS",
    "LineStyle",
    "line_style",
    "plot_accuracy_matrix",
    "plot_accuracy_over_time",
    "plot_answers",
    "plot_chromaticity",
    "plot_confusion",
    "plot_criteria",
    "plot_error_curves",
    "plot_forgetting",
    "plot_rejection",
]
