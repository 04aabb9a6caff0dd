"""Pictures of IIRC runs, after the paper's figures 3 to 6."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.ticker import MaxNLocator

from everlight.plots import COLORS
from experiments.common.plots import new_canvas, save

LINES = ("-", "--")
Curves = Mapping[str, Float[np.ndarray, "runs t"]]


def plot_curves(
    path: Path,
    panels: Mapping[str, Curves],
    ylabels: Mapping[str, str],
    order: Sequence[str] = (),
) -> Path:
    """Mean and standard deviation over configurations after every task, a panel per title.

    A method that learns everything in one task is a level line. Names in `order` have the same
    colours in every picture that is given it.
    """
    canvas, axes = new_canvas(len(panels), 5.4, 4.0)
    every = [values for curves in panels.values() for values in curves.values()]
    longest = max(values.shape[1] for values in every)
    highest = max(np.nanmax(values) for values in every)
    names = dict.fromkeys([*order, *(name for curves in panels.values() for name in curves)])
    styles = {
        name: (COLORS[place % len(COLORS)], LINES[place // len(COLORS)])
        for place, name in enumerate(names)
    }
    handles = {}
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, values in curves.items():
            mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
            color, line = styles[name]
            if values.shape[1] == 1:
                handles[name] = axis.axhline(mean[0], color=color, linestyle=":", lw=1.5)
                continue
            tasks = 1 + np.arange(values.shape[1])
            (handles[name],) = axis.plot(
                tasks, mean, color=color, linestyle=line, marker="o", markersize=2.5
            )
            axis.fill_between(tasks, mean - spread, mean + spread, color=color, alpha=0.12, lw=0)
        axis.set(
            title=title,
            xlabel="tasks learnt",
            ylabel=ylabels[title],
            ylim=(0, np.ceil(10 * highest) / 10),
            xticks=1 + np.arange(0, longest, 1 if longest <= 12 else 3),
        )
    canvas.legend(handles.values(), handles, loc="outside right center")
    return save(canvas, path)


def plot_confusion(path: Path, matrices: Mapping[str, Float[np.ndarray, "c c"]]) -> Path:
    """True label by predicted label, classes in order of introduction."""
    columns = -(-len(matrices) // 2)
    canvas, axes = new_canvas(columns, 3.1, 3.3, rows=2)
    for axis in axes:
        axis.set_axis_off()
    for place, (axis, (name, matrix)) in enumerate(zip(axes, matrices.items(), strict=False)):
        axis.set_axis_on()
        picture = axis.imshow(matrix, vmin=0, vmax=1, cmap="magma_r", interpolation="nearest")
        axis.set(title=name, xlabel="predicted label")
        axis.set_ylabel("" if place % columns else "true label, by introduction")
        for direction in (axis.xaxis, axis.yaxis):
            direction.set_major_locator(MaxNLocator(5, integer=True))
        axis.grid(False)
    canvas.colorbar(picture, ax=axes, label="share of the true label's samples", shrink=0.6)
    return save(canvas, path)


def plot_exemplars(path: Path, values: Mapping[int, Float[np.ndarray, "runs"]]) -> Path:
    """A score by the number of exemplars of every class, mean and standard deviation."""
    canvas, (axis,) = new_canvas(1, 4.6, 3.4)
    means = [each.mean() for each in values.values()]
    spreads = [each.std() for each in values.values()]
    axis.errorbar(list(values), means, spreads, color=COLORS[0], marker="o", capsize=3)
    axis.set(xlabel="exemplars a class", ylabel="pw-JS, $R_j$", xticks=list(values), ylim=(0, None))
    return save(canvas, path)
