"""One style for all pictures, drawn without a display."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from everlight.plots import line_style, plot_accuracy_matrix
from everlight_data.sets.image_set import ImageSet
from everlight_data.writing import written_whole
from everlight_experiments.report.cells import deviation
from everlight_experiments.report.fonts import make_drawable

# Names come from data, and a dollar in one begins no formula.
mpl.rcParams["text.parse_math"] = False

STYLES = [line_style(number) for number in range(32)]
"""Colours and dashes of curves."""
LEVELS = (":", "-.", "--")
"""Line style of a level with one value, in grey."""
MARKERS = "os^D"
"""Markers of points; the next one where all colours have been used."""
MAX_CURVES = 8
"""Curves of a panel."""
COLUMNS = 6
"""Matrices side by side."""
SAMPLES = 10, 12
"""Classes, and images of each."""
NAME = 24
"""Characters of a class's name."""
Curves = Mapping[str, Float[np.ndarray, "runs t"]]
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
    # Publishers refuse the Type 3 fonts of the default.
    "pdf.fonttype": 42,
}


def new_canvas(
    columns: int = 1, width: float = 5.0, height: float = 3.6, rows: int = 1
) -> tuple[Canvas, list]:
    """Return axes in one style, row by row, each `width` by `height` inches."""
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(width * columns, height * rows))
        axes = canvas.subplots(rows, columns, squeeze=False)
    return canvas, list(axes.flat)


def save(canvas: Canvas, path: Path) -> Path:
    """Write a PNG or a PDF, by the path's suffix, whole or not at all."""
    absent = make_drawable(canvas)
    if absent:
        print(f"{path.name}: no font of this machine has {absent!a}; written so in the picture")
    with mpl.rc_context(STYLE), written_whole(path) as unfinished:
        canvas.savefig(unfinished, format=path.suffix[1:])
    return path


def plot_curves(
    path: Path,
    panels: Mapping[str, Curves],
    ylabel: str,
    xlabel: str = "tasks learned",
    order: Sequence[str] = (),
    published: Mapping[str, Mapping[str, Sequence[float]]] = {},
    paper: str = "",
    top: float | None = None,
    rows: int = 1,
    baseline: str = "",
    ticks: Sequence[str] = (),
) -> Path:
    """Draw means over runs with bands of one standard deviation, a panel per title.

    All panels of a row have one vertical scale. A panel has at most `MAX_CURVES` curves, those that
    end highest and the baseline. A method with one value, since it learns all tasks at once, is a
    level line. The legend goes from the curve that ends highest, in the mean over panels, to the
    lowest.

    Args:
      path: path of the picture.
      panels: curves by title and method.
      ylabel, xlabel: labels of the axes.
      order: methods in the order of colours and line styles; others follow.
      published: dashed curves in the methods' colours, by title and method.
      paper: name of the published curves in the legend.
      top: upper end of the vertical axis; None fits the curves.
      rows: number of rows of panels.
      baseline: name of a curve that every panel keeps.
      ticks: labels on the horizontal axis; without them they are numbers from 1.
    """
    panels = {title: highest_curves(curves, baseline) for title, curves in panels.items()}
    curve_names = [name for curves in panels.values() for name in curves]
    names = [name for name in dict.fromkeys((*order, *curve_names)) if name in curve_names]
    looks = dict(zip(names, itertools.cycle(STYLES), strict=False))
    columns = -(-len(panels) // rows)
    height = max(3.6, (0.6 + 0.2 * len(names)) / rows)
    canvas, axes = new_canvas(columns, max(5.0, height), height, rows)
    drawn, levels = {}, {}
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, values in curves.items():
            color, line = looks[name]
            mean = values.mean(axis=0)
            if len(mean) == 1:
                line = levels.setdefault(name, LEVELS[len(levels) % len(LEVELS)])
                drawn[name] = axis.axhline(mean[0], color="0.35", linestyle=line, lw=1.5)
                continue
            spread = deviation(values)
            places = 1 + np.arange(len(mean))
            marker = "o" if len(places) < 20 else None
            (drawn[name],) = axis.plot(places, mean, line, color=color, marker=marker, ms=3)
            axis.fill_between(places, mean - spread, mean + spread, color=color, alpha=0.12, lw=0)
            step = -(-len(places) // 10)
            axis.set_xticks(places[::step], ticks[::step] or None)
            if paper_curve := published.get(title, {}).get(name):
                axis.plot(places, paper_curve, "--", color=color, lw=1)
                drawn[paper] = axis.plot([], [], "--", color="black", lw=1)[0]
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, ylim=(0, top))
    for first in range(0, len(axes), columns):
        row = axes[first : first + columns]
        highest = max(axis.get_ylim()[1] for axis in row)
        for axis in row:
            axis.set_ylim(0, highest)
    names = sorted(names, key=lambda name: (-_end(panels.values(), name), name))
    names += [paper] if paper in drawn else []
    handles = [drawn[name] for name in names]
    canvas.legend(handles, names, loc="outside right center", fontsize="small")
    return save(canvas, path)


def highest_curves(curves: Curves, baseline: str = "") -> Curves:
    """Return the `MAX_CURVES` curves that end highest, the baseline among them, in their order."""
    ranked = sorted(curves, key=lambda name: (name != baseline, -_end([curves], name)))
    return {name: curves[name] for name in curves if name in ranked[:MAX_CURVES]}


def curves_left_out(panels: Mapping[str, Curves], baseline: str = "") -> str:
    """Return the caption's sentence on curves that are not drawn; empty where all are."""
    if all(len(curves) <= MAX_CURVES for curves in panels.values()):
        return ""
    prefix = f"the baseline {baseline} and " if baseline else ""
    return f" Shown are {prefix}the highest final values, {MAX_CURVES} curves; the table has all."


def _end(panels: Iterable[Curves], name: str) -> float:
    """Return a method's last value, averaged over its panels; a diverged method has the lowest."""
    ends = [curves[name].mean(axis=0)[-1] for curves in panels if name in curves]
    return float(np.nan_to_num(np.mean(ends), nan=-np.inf))


def plot_matrices(
    path: Path,
    matrices: Mapping[str, Float[np.ndarray, "n n"]],
    measure: str = "accuracy",
    draw: Callable[[Float[np.ndarray, "n n"], Axes], Axes] = plot_accuracy_matrix,
    side: float = 2.2,
) -> Path:
    """Draw matrices on one scale, in panels of `side` inches.

    They are scores after each task (row) on each task (column), or what `draw` shows.
    """
    columns = min(COLUMNS, len(matrices))
    canvas, axes = new_canvas(columns, side, side + 0.3, -(-len(matrices) // columns))
    for axis in axes[len(matrices) :]:
        axis.set_visible(False)
    for place, (axis, (name, matrix)) in enumerate(zip(axes, matrices.items(), strict=False)):
        draw(matrix, axis).set_title(name, fontsize="medium")
        if place % columns:
            axis.set_ylabel("")
        if place < len(matrices) - columns:
            axis.set_xlabel("")
    canvas.colorbar(axes[0].images[0], ax=axes, label=measure, shrink=0.8)
    return save(canvas, path)


def plot_samples(path: Path, images: ImageSet) -> Path:
    """Draw a row of training images for some of the classes, their names shortened."""
    count = len(images.class_names)
    shown = np.unique(np.linspace(0, count - 1, min(SAMPLES[0], count)).astype(int))
    side = images.images.shape[1] + 2
    sheet = np.full((side * len(shown), side * SAMPLES[1], 3), 255, np.uint8)
    for row, label in enumerate(shown):
        for column, sample in enumerate(np.flatnonzero(images.train_labels == label)[: SAMPLES[1]]):
            top, left = row * side + 1, column * side + 1
            # A grey image has one channel, which is written to all three.
            sheet[top : top + side - 2, left : left + side - 2] = images.images[sample]
    canvas, (axis,) = new_canvas(1, 7.0, 0.3 + 7.0 * len(shown) / SAMPLES[1] * 0.85)
    axis.imshow(sheet, interpolation="nearest")
    axis.grid(False)
    axis.set_xticks([])
    names = [images.class_names[label] for label in shown]
    names = [name if len(name) <= NAME else f"{name[: NAME - 1]}…" for name in names]
    axis.set_yticks(side * (np.arange(len(shown)) + 0.5), names)
    axis.tick_params(length=0)
    for edge in axis.spines.values():
        edge.set_visible(False)
    return save(canvas, path)
