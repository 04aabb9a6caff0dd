"""One style for all pictures, drawn without a display."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogFormatter, LogFormatterSciNotation

from data_pipelines.images.image_set import ImageSet
from data_pipelines.writing import written_whole

# Names come from data, and a dollar in one begins no formula.
mpl.rcParams["text.parse_math"] = False

STYLE = {
    "figure.dpi": 130,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def new_canvas(
    columns: int = 1,
    width: float = 5.0,
    height: float = 3.6,
    rows: int = 1,
    projection: Literal["polar"] | None = None,
) -> tuple[Canvas, list]:
    """Axes in the house's style, row by row, each `width` by `height` inches."""
    with plt.rc_context(STYLE):
        canvas, axes = plt.subplots(
            rows,
            columns,
            figsize=(width * columns, height * rows),
            squeeze=False,
            subplot_kw={"projection": projection},
        )
    return canvas, list(axes.flat)


def save(canvas: Canvas, path: Path) -> Path:
    """Writes a PNG, whole or not at all, and frees the canvas."""
    for axes in canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):
            # Powers of ten would be written as formulas.
            if axis.get_scale() == "log" and isinstance(
                axis.get_major_formatter(), LogFormatterSciNotation
            ):
                base = axis.get_transform().base
                axis.set_major_formatter(_PlainLogFormatter(base))
                axis.set_minor_formatter(_PlainLogFormatter(base, labelOnlyBase=False))
    with plt.rc_context(STYLE), written_whole(path) as unfinished:
        canvas.savefig(unfinished, format="png")
    plt.close(canvas)
    return path


def plot_samples(
    path: Path, images: ImageSet, shortened: Callable[[str], str], classes: int = 10, each: int = 12
) -> Path:
    """A row of training images for some of the classes, their names shortened."""
    count = len(images.class_names)
    shown = np.unique(np.linspace(0, count - 1, min(classes, count)).astype(int))
    side = images.images.shape[1] + 2
    sheet = np.full((side * len(shown), side * each, 3), 255, np.uint8)
    for row, label in enumerate(shown):
        for column, sample in enumerate(np.flatnonzero(images.train_labels == label)[:each]):
            top, left = row * side + 1, column * side + 1
            sheet[top : top + side - 2, left : left + side - 2] = images.images[sample]
    canvas, (axis,) = new_canvas(1, 7.0, 0.3 + 7.0 * len(shown) / each * 0.85)
    axis.imshow(sheet, interpolation="nearest")
    axis.grid(False)
    axis.set_xticks([])
    names = [shortened(images.class_names[label]) for label in shown]
    axis.set_yticks(side * (np.arange(len(shown)) + 0.5), names)
    axis.tick_params(length=0)
    for edge in axis.spines.values():
        edge.set_visible(False)
    return save(canvas, path)


class _PlainLogFormatter(LogFormatter):
    """Labels the ticks that matplotlib would, by numbers as they are printed."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""
