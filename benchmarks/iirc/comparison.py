"""Means over seeds of both sides, and their difference in standard errors."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Scores = Mapping[tuple[str, int], Sequence[float]]
"""Scores after every task by method and seed."""


class Row(NamedTuple):
    """A method after a task."""

    method: str
    task: int
    """Task, counted from 1."""
    seeds: tuple[int, int]
    """Numbers of seeds, the authors' first."""
    means: tuple[float, float]
    spreads: tuple[float, float]
    """Standard deviations over seeds."""

    @property
    def difference(self) -> float:
        """Return everlight's mean less the authors'."""
        return self.means[1] - self.means[0]

    @property
    def error(self) -> float:
        """Return the standard error of the difference of the means."""
        pairs = zip(self.spreads, self.seeds, strict=True)
        return float(np.sqrt(sum(spread**2 / count for spread, count in pairs)))

    @property
    def errors_apart(self) -> float:
        """Return the difference in standard errors."""
        if self.error:
            return self.difference / self.error
        return float(np.sign(self.difference) * np.inf) if self.difference else 0.0


def rows_of(official: Scores, local: Scores, methods: Sequence[str]) -> list[Row]:
    """Return every method after every task, for methods that both sides have."""
    rows = []
    for method in methods:
        sides = [_of(side, method) for side in (official, local)]
        if any(len(side) < 2 for side in sides):
            continue
        for task in range(sides[0].shape[1]):
            columns = [side[:, task] for side in sides]
            means = tuple(float(column.mean()) for column in columns)
            spreads = tuple(float(column.std(ddof=1)) for column in columns)
            rows.append(Row(method, task + 1, (len(sides[0]), len(sides[1])), means, spreads))
    return rows


def _of(scores: Scores, method: str) -> Float[np.ndarray, "seeds t"]:
    return np.array([row for (name, _), row in sorted(scores.items()) if name == method])


def table(rows: Sequence[Row]) -> str:
    """Return the comparison as a Markdown table; differences above two errors are bold."""
    lines = [
        "method | after task | the authors' pw-JS | everlight's pw-JS | difference | "
        "standard errors | seeds",
        " | ".join(["---"] * 7),
    ]
    for row in rows:
        sides = [
            f"{mean:.3f} ± {spread:.3f}"
            for mean, spread in zip(row.means, row.spreads, strict=True)
        ]
        apart = f"{row.errors_apart:+.1f}"
        apart = apart if abs(row.errors_apart) <= 2 else f"**{apart}**"
        counts = f"{row.seeds[0]}, {row.seeds[1]}"
        lines.append(
            f"{row.method} | {row.task} | {sides[0]} | {sides[1]} | {row.difference:+.3f} | "
            f"{apart} | {counts}"
        )
    return "\n".join(f"| {line} |" for line in lines)
