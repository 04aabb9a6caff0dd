"""A reproduction table: published numbers and everlight's, with differences in standard errors."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight.metrics import standard_errors_apart
from everlight_experiments.continual.report.tables import ColumnSpec, table_of
from everlight_experiments.continual.training.outcome import Outcomes
from everlight_experiments.report.cells import percent
from everlight_experiments.report.writer import PUBLISHED_GROUP, Section

TOLERANCE = 2.0
"""Largest difference, in standard errors, of a number that counts as reproduced."""


class ReferenceScore(NamedTuple):
    """Mean of a final score over runs of others' code."""

    mean: float
    deviation: float | None = None
    """Standard deviation over the runs; None where none is known."""
    runs: int = 1

    @classmethod
    def summarize(cls, scores: Sequence[float]) -> "ReferenceScore":
        """Return mean and deviation of scores; one alone has no deviation."""
        deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
        return cls(float(np.mean(scores)), deviation, len(scores))

    @property
    def cell(self) -> str:
        """Mean and deviation in percent."""
        after = "" if self.deviation is None else f" ± {100 * self.deviation:.1f}"
        return f"{100 * self.mean:.1f}{after}"


class PublishedComparison(NamedTuple):
    """Known numbers of a method's final score in a column of the run, and everlight's."""

    column: str
    method: str
    published: ReferenceScore | None = None
    code: ReferenceScore | None = None
    """Score of the authors' code, run for this project on the same data."""
    scores: Float[np.ndarray, "seeds"] = np.zeros(0)

    @property
    def name(self) -> str:
        """Method and column."""
        return f"{self.method}, {self.column}"

    @property
    def verification(self) -> str:
        """Return which numbers everlight's agrees with: "table", "code", "both", or "no"."""
        known = {"table": self.published, "code": self.code}
        agree = [name for name, number in known.items() if abs(self.errors(number)) <= TOLERANCE]
        return "both" if len(agree) == 2 else "".join(agree) or "no"

    def errors(self, known: ReferenceScore | None) -> float:
        """Return our difference from a known number in standard errors; NaN if it is unknown."""
        if known is None:
            return float("nan")
        return standard_errors_apart(self.scores, known.mean, known.deviation or 0.0, known.runs)

    def cause(self, causes: Mapping[str, str]) -> str:
        """Return the known cause of a difference, or that there is none."""
        return causes.get(self.name, causes.get(self.method, "not known"))


def compare_scores(
    references: Sequence[PublishedComparison], outcomes: Outcomes
) -> list[PublishedComparison]:
    """Return known numbers with our final scores, for the methods that the run has."""
    return [
        row._replace(scores=np.asarray(outcomes[row.column][row.method].final, np.float64))
        for row in references
        if row.method in outcomes.get(row.column, {})
    ]


def reproduction_section(
    comparisons: Sequence[PublishedComparison], causes: Mapping[str, str], source: str
) -> Section:
    """Return the table of known and own numbers.

    Known causes of differences are by method, or by method and column joined by a comma. `source`
    names their source.
    """
    specs = [
        ColumnSpec(
            "published",
            lambda row: "–" if row.published is None else row.published.cell,
            PUBLISHED_GROUP,
        ),
        ColumnSpec(
            "authors' code", lambda row: "–" if row.code is None else row.code.cell, PUBLISHED_GROUP
        ),
        ColumnSpec("everlight", lambda row: percent(row.scores)),
        ColumnSpec(
            "from published", lambda row: _errors(row.errors(row.published)), "standard errors"
        ),
        ColumnSpec("from the code", lambda row: _errors(row.errors(row.code)), "standard errors"),
        ColumnSpec("verified", lambda row: row.verification),
        ColumnSpec(
            "cause of a difference",
            lambda row: "–" if row.verification in ("both", "table") else row.cause(causes),
        ),
    ]
    caption = (
        "Final average accuracy in percent, mean ± standard deviation over seeds. Verified: "
        f"everlight is within {TOLERANCE:g} standard errors of the published table, of the "
        "authors' code as run here on the same images, or of both."
    )
    table = table_of(caption, {row.name: row for row in comparisons}, specs)
    return Section("Published and own numbers", [source], [table])


def unexplained_lines(
    comparisons: Sequence[PublishedComparison], causes: Mapping[str, str]
) -> list[str]:
    """Return a line for every number that agrees with neither and has no known cause."""
    return [
        f"{row.name}: {percent(row.scores)}, {_errors(row.errors(row.published))} standard "
        f"errors from the published number and {_errors(row.errors(row.code))} from the "
        "authors' code"
        for row in comparisons
        if row.verification == "no" and row.cause(causes) == "not known"
    ]


def _errors(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:+.1f}"
