"""A reproduction table: published numbers beside ours, and how many standard errors lie between."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_experiments.continual.outcome import Outcomes
from everlight_experiments.report.cells import percent
from everlight_experiments.report.writer import PAPER, Column, Section, Table

TOLERANCE = 2.0
"""Largest difference, in standard errors, of a number that counts as reproduced."""


class Known(NamedTuple):
    """Mean of a final score over runs that are not ours."""

    mean: float
    deviation: float | None = None
    """Standard deviation over the runs; None where none is known."""
    runs: int = 1

    def standard_errors(self, ours: Float[np.ndarray, "seeds"]) -> float:
        """Return our mean minus this one in standard errors of both, or of ours if theirs is
        unknown; NaN for a single seed."""
        if len(ours) < 2:
            return float("nan")
        variance = ours.var(ddof=1) / len(ours) + (self.deviation or 0.0) ** 2 / self.runs
        return float((ours.mean() - self.mean) / np.sqrt(variance))

    @property
    def cell(self) -> str:
        """Mean and deviation in percent."""
        after = "" if self.deviation is None else f" ± {100 * self.deviation:.1f}"
        return f"{100 * self.mean:.1f}{after}"


class Reference(NamedTuple):
    """Numbers that are known of a method's final score in a column of the run."""

    column: str
    method: str
    published: Known | None = None
    code: Known | None = None
    """Score of the authors' code, run for this project on the same data."""


class Comparison(NamedTuple):
    """Our final score of every seed beside what is known."""

    reference: Reference
    ours: Float[np.ndarray, "seeds"]

    @property
    def from_published(self) -> float:
        """Return the difference from the published mean in standard errors; NaN if unknown."""
        return self._from(self.reference.published)

    @property
    def from_code(self) -> float:
        """Return the difference from the authors' code in standard errors; NaN if unknown."""
        return self._from(self.reference.code)

    def _from(self, known: Known | None) -> float:
        return float("nan") if known is None else known.standard_errors(self.ours)

    @property
    def verified(self) -> str:
        """Return which numbers ours agrees with: "table", "code", "both", or "no"."""
        found = {"table": self.from_published, "code": self.from_code}
        agree = [name for name, errors in found.items() if abs(errors) <= TOLERANCE]
        return "both" if len(agree) == 2 else "".join(agree) or "no"


def compare(references: Sequence[Reference], outcomes: Outcomes) -> list[Comparison]:
    """Return our final scores beside what is known, for the methods that the run has."""
    return [
        Comparison(each, np.asarray(outcomes[each.column][each.method].final, np.float64))
        for each in references
        if each.method in outcomes.get(each.column, {})
    ]


def reproduction_section(
    compared: Sequence[Comparison], causes: Mapping[str, str], source: str
) -> Section:
    """Return the table of known and own numbers.

    Args:
      compared: our scores beside what is known.
      causes: known cause of a difference by method, or by method and column joined by a comma.
      source: sentence on where the numbers are from.
    """
    columns = [
        Column("method"),
        Column("memory"),
        Column("published", PAPER),
        Column("authors' code", PAPER),
        Column("ours"),
        Column("from published", "standard errors"),
        Column("from the code", "standard errors"),
        Column("verified"),
        Column("cause of a difference"),
    ]
    rows = [
        [
            each.reference.method,
            each.reference.column,
            *("–" if known is None else known.cell for known in each.reference[2:]),
            percent(each.ours),
            *(_errors(value) for value in (each.from_published, each.from_code)),
            each.verified,
            "–" if each.verified in ("both", "table") else cause_of(each, causes),
        ]
        for each in compared
    ]
    caption = (
        "Final average accuracy in percent, mean ± standard deviation over seeds. Verified: ours "
        f"is within {TOLERANCE:g} standard errors of the published table, of the authors' code as "
        "run here on the same images, or of both."
    )
    return Section("Published and own numbers", [source], [Table(caption, columns, rows)])


def cause_of(compared: Comparison, causes: Mapping[str, str]) -> str:
    """Return the known cause of a difference, or that there is none."""
    method, column = compared.reference.method, compared.reference.column
    return causes.get(f"{method}, {column}", causes.get(method, "not known"))


def unexplained(compared: Sequence[Comparison], causes: Mapping[str, str]) -> list[str]:
    """Return a line for every number that agrees with neither and has no known cause."""
    return [
        f"{each.reference.method}, {each.reference.column}: {percent(each.ours)}, "
        f"{_errors(each.from_published)} standard errors from the published number and "
        f"{_errors(each.from_code)} from the authors' code"
        for each in compared
        if each.verified == "no" and cause_of(each, causes) == "not known"
    ]


def _errors(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:+.1f}"
