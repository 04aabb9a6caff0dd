"""Tables and pictures of the metrics beside the score."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight.metrics import confusion_shares
from everlight.plots import plot_confusion
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.report.tables import ColumnSpec, table_of
from everlight_experiments.continual.training.outcome import Outcome
from everlight_experiments.report.cells import dash, sentence, spread
from everlight_experiments.report.plots import plot_curves, plot_matrices
from everlight_experiments.report.writer import Figure, Table, file_names

MAX_COLUMNS = 50
"""Names of an axis that a table shows as columns."""


def metric_items(
    prefix: Path, column: str, benchmark: Benchmark, by_name: Mapping[str, Outcome]
) -> list[Table | Figure]:
    """Return a table or a picture of every metric with a meaning beside the score.

    Args:
      prefix: folder of the pictures and the beginning of their names, before _ and the metric's.
      column: the benchmark's column.
      benchmark: benchmark of the metrics.
      by_name: outcomes by method.
    """
    metrics = benchmark.setting.metrics.others
    files = file_names([metric.name for metric in metrics])
    return [
        _item(
            prefix.with_name(f"{prefix.name}_{files[metric.name]}.png"),
            column,
            metric,
            {name: runs.metrics[metric.name] for name, runs in by_name.items()},
        )
        for metric in metrics
        if metric.meaning and by_name
    ]


def _item(
    path: Path, column: str, metric: Metric, values: Mapping[str, np.ndarray]
) -> Table | Figure:
    caption = f"{sentence(metric.name)}. {metric.meaning}"
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
        return table_of(
            caption, values, [ColumnSpec(metric.name, lambda values: dash(spread(values)))]
        )
    (names,) = axes
    if len(names) > MAX_COLUMNS:
        caption += f" The first {MAX_COLUMNS} of {len(names):,}; results.npz has all."

    def cell(place: int) -> Callable[[np.ndarray], str]:
        return lambda values: dash(spread(values[:, place]))

    shown = enumerate(names[:MAX_COLUMNS])
    specs = [ColumnSpec(name, cell(place), metric.name) for place, name in shown]
    return table_of(caption, values, specs)


def plot_shares(path: Path, shares: Mapping[str, np.ndarray], what: str = "class") -> Path:
    """Draw shares of true against predicted classes, `[true, predicted]`, a panel per name."""
    label = f"share of the true {what}, first seed"
    return plot_matrices(
        path, shares, label, lambda matrix, axis: plot_confusion(matrix, what, axis), 3.4
    )


def curves_within(
    values: Mapping[str, Float[np.ndarray, "runs n t"]],
) -> dict[str, dict[str, Float[np.ndarray, "runs k"]]]:
    """Return accuracy over the evaluations, of the first task and of all so far, by method.

    Evaluations that not all seeds have are left out. Joint training has its last one alone.
    """
    curves: dict[str, dict[str, np.ndarray]] = {"first task": {}, "tasks so far, mean": {}}
    for name, accuracies in values.items():
        places, tasks = accuracies.shape[1:]
        learned = np.tri(tasks, dtype=bool).repeat(places // tasks, axis=0)
        means = accuracies.mean(axis=2, where=learned)
        for title, curve in zip(curves, (accuracies[..., 0], means), strict=True):
            finite = np.isfinite(curve).all(axis=0)
            curves[title][name] = curve[:, finite] if finite[0] else curve[:, -1:]
    return curves
