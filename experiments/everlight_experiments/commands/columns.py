"""Scores in rows and columns: ranks, table and picture of grid, tune and compare."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from everlight.plots import COLORS
from everlight_experiments.continual.report.tables import ColumnSpec
from everlight_experiments.report.cells import deviation, sentence
from everlight_experiments.report.plots import MARKERS, new_canvas, save
from everlight_experiments.report.writer import Figure

Scores = Mapping[str, Mapping[str, Float[np.ndarray, "seeds"]]]
"""Scores by column and row; NaN where a run diverged."""
DIVERGED = {"diverged": "Diverged runs have no score."}


def ranks_of(scores: Mapping[str, Float[np.ndarray, "seeds"]]) -> dict[str, float]:
    """Return ranks of mean scores from 1, the greatest first.

    Equals share their mean rank, and what diverged comes last.
    """
    means = np.array([values.mean() for values in scores.values()])
    return dict(zip(scores, rankdata(-np.nan_to_num(means, nan=-np.inf)), strict=True))


def mean_ranks(
    scores: Mapping[str, Mapping[str, Float[np.ndarray, "seeds"]]], benchmarks: Mapping[str, str]
) -> dict[str, list[float]]:
    """Return ranks of methods, one per benchmark: the mean over the benchmark's columns.

    Settings of a benchmark share images and tasks. They are not independent units of an interval.

    Args:
      scores: scores by column and method.
      benchmarks: benchmark of every column.
    """
    ranks = defaultdict(lambda: defaultdict(list))
    for column, finals in scores.items():
        for name, rank in ranks_of(finals).items():
            ranks[name][benchmarks[column]].append(rank)
    return {
        name: [float(np.mean(in_columns)) for in_columns in by_benchmark.values()]
        for name, by_benchmark in ranks.items()
    }


def values_column(
    name: str, values: Mapping[str, Any], cell: Callable[[Any], str] = str, group: str = ""
) -> ColumnSpec:
    """Return a table's column of values by row; rows without one have a dash."""
    return ColumnSpec(name, lambda row: cell(values[row]) if row in values else "–", group)


def score_figure(
    path: Path, rows: Sequence[str], scores: Scores, label: str, over: str = "seeds"
) -> Figure:
    """Return a picture of the mean score of every row in every column.

    Args:
      path: of the picture.
      rows: names from top to bottom.
      scores: scores by column and row; a row may be absent from a column.
      label: what a score is.
      over: what the bars of one standard deviation are over.
    """
    canvas, (axis,) = new_canvas(1, 8.0, 1.6 + 0.42 * len(rows))
    for number, (name, by_row) in enumerate(scores.items()):
        shift = 0.5 * ((number + 0.5) / len(scores) - 0.5)
        shown = [(place, by_row[row]) for place, row in enumerate(rows) if row in by_row]
        axis.errorbar(
            [values.mean() for _, values in shown],
            [place + shift for place, _ in shown],
            xerr=[np.nan_to_num(deviation(values)) for _, values in shown],
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number // len(COLORS) % len(MARKERS)],
            linestyle="none",
            capsize=3,
            label=name,
        )
    axis.set_yticks(range(len(rows)), rows)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(label)
    canvas.legend(loc="outside upper right", ncols=min(len(scores), 3))
    caption = f"{sentence(label)}, mean over {over}; bars are one standard deviation."
    return Figure(caption, save(canvas, path))
