"""Pictures of continual-learning runs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from data_pipelines.image_set import ImageSet
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


def plot_matrices(path: Path, matrices: Mapping[str, Float[np.ndarray, "t t"]]) -> Path:
    """Accuracy matrices side by side, on one scale."""
    canvas, axes = new_canvas(len(matrices), 2.9, 3.1)
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=True):
        plots.plot_accuracy_matrix(matrix, axis).set_title(name)
        axis.label_outer()
    canvas.colorbar(axes[0].images[0], ax=axes, label="accuracy", shrink=0.8)
    return save(canvas, path)


def plot_samples(path: Path, images: ImageSet, classes: int = 10, each: int = 12) -> Path:
    """A row of training images for some of the classes."""
    shown = np.linspace(0, len(images.class_names) - 1, classes).astype(int)
    rows = []
    for label in shown:
        chosen = images.images[np.flatnonzero(images.train_labels == label)[:each]]
        framed = np.pad(chosen, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
        rows.append(np.concatenate(framed, axis=1))
    side = images.images.shape[1] + 2
    canvas, (axis,) = new_canvas(1, 7.0, 7.0 * classes / each * 0.85)
    axis.imshow(np.concatenate(rows), interpolation="nearest")
    axis.grid(False)
    axis.set_xticks([])
    axis.set_yticks(side * (np.arange(classes) + 0.5))
    axis.set_yticklabels([images.class_names[label].split(",")[0] for label in shown])
    axis.tick_params(length=0)
    for edge in axis.spines.values():
        edge.set_visible(False)
    return save(canvas, path)
