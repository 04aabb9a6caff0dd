"""Pictures of many methods on one benchmark."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight.plots import COLORS, plot_accuracy_matrix
from experiments.common.plots import new_canvas, save

LINES = ("-", "--", ":", "-.")
COLUMNS = 6
"""Matrices side by side."""
NAME = 24
"""Characters of a class's name that a picture shows."""


def deviation(values: Float[np.ndarray, "seeds *rest"]) -> Float[np.ndarray, "*rest"]:
    """The sample's standard deviation over seeds; 0 of one."""
    return np.std(values, axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def plot_over_time(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "seeds tasks"]]]
) -> Path:
    """Means over seeds with bands of one deviation: a panel a scenario, a curve a method."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    styles = dict(zip(names, itertools.cycle(itertools.product(LINES, COLORS)), strict=False))
    canvas, axes = new_canvas(len(panels), 5.2, max(3.8, 0.6 + 0.2 * len(names)))
    drawn = {}
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, values in curves.items():
            line, color = styles[name]
            tasks = 1 + np.arange(values.shape[1])
            mean, spread = values.mean(axis=0), deviation(values)
            (drawn[name],) = axis.plot(
                tasks, mean, line, color=color, marker="o", markersize=3, linewidth=1.3
            )
            axis.fill_between(tasks, mean - spread, mean + spread, color=color, alpha=0.12, lw=0)
        axis.set(
            title=title,
            xlabel="tasks learned",
            ylabel="accuracy on the tasks learned so far",
            # Where the task is told nothing falls far.
            ylim=(0.5 if min(map(np.min, curves.values())) > 0.5 else 0, 1.02),
            xticks=tasks,
        )
    handles = [drawn[name] for name in names]
    canvas.legend(handles, names, loc="outside right center", fontsize="small")
    return save(canvas, path)


def plot_finals(path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "seeds"]]]) -> Path:
    """Means with bars of one deviation: methods in the table's order, a panel for each scenario."""
    names = list(dict.fromkeys(name for finals in panels.values() for name in finals))
    canvas, axes = new_canvas(len(panels), 3.4, 1.0 + 0.24 * len(names))
    for axis, (title, finals), color in zip(
        axes, panels.items(), itertools.cycle(COLORS), strict=False
    ):
        for place, name in enumerate(names):
            if name in finals:
                values = finals[name]
                axis.errorbar(values.mean(), place, xerr=deviation(values), fmt="o", color=color)
        axis.set(title=title, xlabel="final accuracy", ylim=(len(names) - 0.5, -0.5))
        axis.set_xlim(right=1.02)
        axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names))
    return save(canvas, path)


def plot_matrices(path: Path, matrices: Mapping[str, Float[np.ndarray, "t t"]]) -> Path:
    """Accuracy matrices in rows, on one scale."""
    columns = min(COLUMNS, len(matrices))
    rows = -(-len(matrices) // columns)
    canvas, axes = new_canvas(columns, 2.0, 2.3, rows)
    for axis in axes[len(matrices) :]:
        axis.set_visible(False)
    for place, (axis, (name, matrix)) in enumerate(zip(axes, matrices.items(), strict=False)):
        plot_accuracy_matrix(matrix, axis).set_title(name, fontsize="medium")
        if place % columns:
            axis.set_ylabel("")
        if place < len(matrices) - columns:
            axis.set_xlabel("")
    canvas.colorbar(axes[0].images[0], ax=axes, label="accuracy", shrink=0.8)
    return save(canvas, path)


def short_name(name: str) -> str:
    """A class's name as a picture shows it."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"
