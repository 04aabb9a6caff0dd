"""A reproduction table: published numbers beside ours, and how many standard errors lie between."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from everlight_experiments.common.cells import percent
from everlight_experiments.common.report import PAPER, Column, Section, Table
from everlight_experiments.continual.outcome import Outcomes

TOLERANCE = 2.0
"""Largest difference, in standard errors, of a number that counts as reproduced."""


class Reference(NamedTuple):
    """A published final score of a method in a column of the run."""

    column: str
    method: str
    mean: float
    deviation: float | None = None
    """Published standard deviation over runs; None where none is known."""
    runs: int = 10
    """Number of published runs."""


class Comparison(NamedTuple):
    """A published number and ours."""

    reference: Reference
    ours: np.ndarray
    """Final score of every seed."""
    difference: float
    """Our mean minus the published one."""
    standard_errors: float
    """The difference in standard errors of both means, or of ours where theirs is not known."""

    @property
    def agrees(self) -> bool:
        """Return whether the difference is within the tolerance; never for a single seed."""
        return abs(self.standard_errors) <= TOLERANCE


def compare(references: Sequence[Reference], outcomes: Outcomes) -> list[Comparison]:
    """Return the comparison of every published number that the run has."""
    found = []
    for each in references:
        outcome = outcomes.get(each.column, {}).get(each.method)
        if outcome is None:
            continue
        ours = np.asarray(outcome.final, np.float64)
        difference = float(ours.mean() - each.mean)
        variance = ours.var(ddof=1) / len(ours) if len(ours) > 1 else np.nan
        variance += (each.deviation or 0.0) ** 2 / each.runs
        errors = difference / np.sqrt(variance) if variance > 0 else np.nan
        found.append(Comparison(each, ours, difference, float(errors)))
    return found


def reproduction_section(
    compared: Sequence[Comparison], causes: Mapping[str, str], source: str
) -> Section:
    """Return the table of published and own numbers.

    Args:
      compared: published numbers beside ours.
      causes: known cause of a difference by method, or by method and column joined by a comma.
      source: sentence on where the published numbers are from.
    """
    columns = [
        Column("method"),
        Column("memory"),
        Column("published", PAPER),
        Column("ours", meaning="Ours: mean ± standard deviation over seeds, in percent."),
        Column("difference"),
        Column("standard errors"),
        Column("verified"),
        Column("cause of the difference"),
    ]
    rows = [
        [
            each.reference.method,
            each.reference.column,
            _published(each.reference),
            percent(each.ours),
            f"{100 * each.difference:+.1f}",
            "–" if np.isnan(each.standard_errors) else f"{each.standard_errors:+.1f}",
            "yes" if each.agrees else "no",
            "–" if each.agrees else cause_of(each, causes),
        ]
        for each in compared
    ]
    caption = (
        f"Final average accuracy in percent. Verified: at most {TOLERANCE:g} standard errors "
        "between the means."
    )
    return Section("Published and own numbers", [source], [Table(caption, columns, rows)])


def cause_of(compared: Comparison, causes: Mapping[str, str]) -> str:
    """Return the known cause of a difference, or that there is none."""
    method, column = compared.reference.method, compared.reference.column
    return causes.get(f"{method}, {column}", causes.get(method, "not known"))


def unexplained(compared: Sequence[Comparison], causes: Mapping[str, str]) -> list[str]:
    """Return a line for every difference above the tolerance without a known cause."""
    return [
        f"{each.reference.method}, {each.reference.column}: {percent(each.ours)}, published "
        f"{_published(each.reference)} ({each.standard_errors:+.1f} standard errors)"
        for each in compared
        if not each.agrees and cause_of(each, causes) == "not known"
    ]


def _published(reference: Reference) -> str:
    after = "" if reference.deviation is None else f" ± {100 * reference.deviation:.1f}"
    return f"{100 * reference.mean:.1f}{after}"
