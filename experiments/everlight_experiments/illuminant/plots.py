"""Figures of illuminant reports."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight import plots
from everlight_experiments.report.plots import new_canvas, save


def plot_error_curves(
    path: Path,
    panels: Mapping[str, Mapping[str, Float[np.ndarray, "runs *n"]]],
    limit: float = 12.0,
) -> Path:
    """Plot the share of images below each angular error: a panel per title, a curve per method."""
    rows = 2 if len(panels) > 3 else 1
    columns = -(-len(panels) // rows)
    legend = 3.2
    canvas, axes = new_canvas(columns, 5.0 + legend / columns, 4.0, rows)
    for axis, (title, errors) in zip(axes, panels.items(), strict=False):
        plots.plot_error_curves(errors, axis, limit).set_title(title)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def plot_illuminants(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "n 3"]]]
) -> Path:
    """Plot the cameras' ground-truth illuminants as chromaticities (the paper's figure 5)."""
    canvas, axes = new_canvas(len(panels), 4.6, 4.0)
    for axis, (title, cameras) in zip(axes, panels.items(), strict=True):
        plots.plot_chromaticity(cameras, axes=axis).set_title(title)
        axis.legend()
    return save(canvas, path)


def plot_pair_map(path: Path, errors: Float[np.ndarray, "c c"], cameras: Sequence[str]) -> Path:
    """Plot the mean error by main camera (row) and second camera (column)."""
    canvas, (axis,) = new_canvas(1, 9.5, 8.4)
    image = axis.imshow(errors, cmap="viridis_r")
    axis.set_xticks(range(len(cameras)), cameras, rotation=90, fontsize=7)
    axis.set_yticks(range(len(cameras)), cameras, fontsize=7)
    axis.set(xlabel="second camera", ylabel="main camera (illuminant estimated)")
    axis.grid(visible=False)
    bar = canvas.colorbar(image, shrink=0.8)
    bar.set_label("mean angular error of linear regression (degrees)")
    return save(canvas, path)


def plot_picture_grid(
    path: Path,
    rows: Sequence[str],
    columns: Mapping[str, Sequence[tuple[Float[np.ndarray, "h w 3"], str]]],
) -> Path:
    """Plot pictures in named rows and columns, each above its caption (the paper's figure 9)."""
    height, width = next(iter(columns.values()))[0][0].shape[:2]
    step = height + round(0.16 * width)
    canvas, axes = new_canvas(len(columns), 1.6, 1.53 * step * len(rows) / width + 0.4)
    for axis, (title, cells) in zip(axes, columns.items(), strict=True):
        for index, (picture, caption) in enumerate(cells):
            bottom = index * step + height
            axis.imshow(picture, extent=(0, width, bottom, index * step), interpolation="nearest")
            middle = (width / 2, (bottom + (index + 1) * step) / 2)
            axis.text(*middle, caption, ha="center", va="center", fontsize=8)
        axis.set(xlim=(0, width), ylim=(step * len(rows), 0), title=title)
        axis.set_axis_off()
    for index, name in enumerate(rows):
        place = (-0.04 * width, index * step + height / 2)
        axes[0].text(*place, name, rotation=90, ha="right", va="center", fontsize=9)
    return save(canvas, path)
