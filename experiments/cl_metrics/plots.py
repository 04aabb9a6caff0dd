"""The picture that only this paper has."""

from collections.abc import Mapping
from pathlib import Path

from everlight import plots
from experiments.common.plots import new_canvas, save


def plot_spiders(path: Path, panels: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Path:
    """The seven criteria, a panel per title and a polygon per method."""
    canvas, axes = new_canvas(len(panels), 4.2, 4.2, projection="polar")
    for axis, (title, criteria) in zip(axes, panels.items(), strict=True):
        plots.plot_criteria(criteria, axis)
        axis.set_title(title)
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)
