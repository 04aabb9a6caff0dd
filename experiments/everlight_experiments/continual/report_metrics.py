"""Tables and pictures of any metric, from its declaration."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from everlight.metrics import confusion_shares
from everlight.plots import plot_confusion
from everlight_experiments.continual.benchmark import Benchmark, Metric
from everlight_experiments.continual.metrics import curves_within
from everlight_experiments.continual.outcome import Outcome
from everlight_experiments.continual.report_tables import Measure, table_of
from everlight_experiments.report.cells import dash, spread
from everlight_experiments.report.plots import plot_curves, plot_matrices
from everlight_experiments.report.writer import Figure, Table

MOST_COLUMNS = 50
"""Names of an axis that a table shows as columns."""


def metric_items(
    folder: Path, column: str, benchmark: Benchmark, by_name: Mapping[str, Outcome]
) -> list[Table | Figure]:
    """Return a table or a picture of every metric that has a meaning, but for the score."""
    return [
        _item(folder, column, metric, {k: each.metrics[metric.name] for k, each in by_name.items()})
        for metric in benchmark.metrics[2:]
        if metric.meaning and by_name
    ]


def _item(
    folder: Path, column: str, metric: Metric, values: Mapping[str, np.ndarray]
) -> Table | Figure:
    path = folder / f"{_file_name(column)}_{_file_name(metric.name)}.png"
    title = metric.name[:1].upper() + metric.name[1:]
    caption = f"{title}. {metric.meaning}"
    axes = metric.axes
    if axes == ("time",):
        return Figure(caption, plot_curves(path, {column: dict(values)}, metric.name))
    if axes == ("time", "task"):
        means = {name: value.mean(axis=0) for name, value in values.items()}
        return Figure(caption, plot_matrices(path, means, metric.name))
    if axes == ("evaluation", "task"):
        panels = curves_within(values)
        return Figure(caption, plot_curves(path, panels, "accuracy", "evaluations within tasks"))
    if len(axes) == 2 and all(isinstance(axis, tuple) for axis in axes):
        first = {
            name: confusion_shares(np.nan_to_num(value[0]).astype(int))
            for name, value in values.items()
        }
        return Figure(caption, plot_shares(path, first))
    if axes[:1] == ("time",):
        values = {name: value[:, -1] for name, value in values.items()}
        axes = axes[1:]
    if not axes:
        return table_of(caption, values, [Measure(metric.name, lambda of: dash(spread(of)))])
    (names,) = axes
    if len(names) > MOST_COLUMNS:
        caption += f" The first {MOST_COLUMNS} of {len(names):,}; results.npz has all."

    def cell(place: int) -> Callable[[np.ndarray], str]:
        return lambda of: dash(spread(of[:, place]))

    shown = enumerate(names[:MOST_COLUMNS])
    measures = [Measure(name, cell(place), metric.name) for place, name in shown]
    return table_of(caption, values, measures)


def plot_shares(path: Path, shares: Mapping[str, np.ndarray], what: str = "class") -> Path:
    """Draw shares of true against predicted classes, `[true, predicted]`, a panel per name."""
    label = f"share of the true {what}, first seed"
    return plot_matrices(
        path, shares, label, lambda each, axis: plot_confusion(each, what, axis), 3.4
    )


def _file_name(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name.lower())
