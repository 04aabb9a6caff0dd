"""Pictures of continual-learning runs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight import plots
from experiments.common.plots import new_canvas, save


def plot_accuracy_over_time(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "runs tasks"]]]
) -> Path:
    """Mean accuracy on the tasks so far, a panel per title and a curve with a band per method."""
    canvas, axes = new_canvas(len(panels), 5.2, 3.8)
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        plots.plot_accuracy_over_time(curves, axis)
        axis.set_title(title)
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def plot_spiders(path: Path, panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Path:
    """The seven criteria, a panel per title and a polygon per method."""
    canvas, axes = new_canvas(len(panels), 4.2, 4.2, projection="polar")
    for axis, (title, criteria) in zip(axes, panels.items(), strict=True):
        plots.plot_criteria(criteria, axis)
        axis.set_title(title)
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def plot_matrices(path: Path, matrices: Mapping[str, Float[np.ndarray, "t t"]]) -> Path:
    """Accuracy matrices side by side, on one scale."""
    canvas, axes = new_canvas(len(matrices), 2.9, 3.1)
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=True):
        plots.plot_accuracy_matrix(matrix, axis).set_title(name)
        axis.label_outer()
    canvas.colorbar(axes[0].images[0], ax=axes, label="accuracy", shrink=0.8)
    return save(canvas, path)
