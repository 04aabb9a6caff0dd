"""List of all methods with their paper, the data kept of earlier tasks, and requirements."""

from typing import NamedTuple

from everlight.continual.methods.method import Method, Requirement
from everlight.continual.methods.registry import METHODS


class MethodRow(NamedTuple):
    """A row of the list."""

    name: str
    year: str
    """Year of the paper; empty without one."""
    paper: str
    """Authors and venue."""
    keeps: str
    """Kinds of data that are kept of earlier tasks; "nothing" without any."""
    applies: str
    """Requirements of a benchmark, or all benchmarks; then where `--methods all` has it."""


_WORDS: dict[Requirement, str] = {
    "task-incremental": "task identity at test",
    "multi-label": "multi-label",
    "disjoint classes": "disjoint classes",
    "one label": "one label",
    "hidden layers": "named hidden layers",
    "stages": "two stages of layers",
    "pretrained transformer": "a pretrained vision transformer",
}
"""Requirements that decide on which benchmarks a method runs, and networks of which kind."""


def method_rows() -> list[MethodRow]:
    """Return a row per method, in the order of the registry."""
    return [_row(method) for method in METHODS.values()]


def _row(method: Method) -> MethodRow:
    publication = method.publication
    paper = f"{publication.authors}, {publication.venue}" if publication.authors else ""
    year = str(publication.year or "")
    features = ["pretrained features"] if method.trains == "head" else []
    needed = features + [word for name, word in _WORDS.items() if name in method.requirements]
    stored = ", ".join(publication.keeps) or "nothing"
    applies = ", ".join(needed) or "all benchmarks"
    conditions = [*method.benchmarks, *method.advised]
    within = f"; in --methods all only with {', '.join(conditions)}" if conditions else ""
    return MethodRow(method.name, year, paper, stored, applies + within)
