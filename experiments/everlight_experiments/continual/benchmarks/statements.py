"""Statements of reports on the choice of a configuration's values, with the options they name."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tyro

from everlight_experiments.run_folder.options import TEXTS


@dataclass(frozen=True)
class Statement:
    """A statement on how values were chosen."""

    statement: str
    """Sentences, or what follows the names of the options and a colon."""
    options: tuple[str, ...] = ()
    """Options whose values the statement is about, if it is about these alone."""

    @property
    def words(self) -> str:
        """The statement in sentences, as in `Epochs and batch size: not tuned.`"""
        if not self.options:
            return self.statement
        *first, last = (option.replace("-", " ") for option in self.options)
        listed = f"{', '.join(first)} and {last}" if first else last
        return f"{listed[0].upper()}{listed[1:]}: {self.statement}"

    def drop_options(self, options: Collection[str]) -> "Statement | None":
        """Return the statement on the other options; None if it is about none of them."""
        left = tuple(option for option in self.options if option not in options)
        return replace(self, options=left) if left or not self.options else None


Statements = tyro.conf.Suppress[tyro.conf.Fixed[tuple[Statement, ...]]]
"""Statements on how network, learning rate and epochs were selected, for the report."""


def general_statement(text: str) -> tuple[Statement, ...]:
    """Return the statements of a configuration that are about no option alone."""
    return (Statement(text),)


NOTHING_TUNED = general_statement("Nothing was tuned.")
AS_PUBLISHED = general_statement("All is as published.")


def statement_paragraph(statements: Sequence[Statement]) -> str:
    """Return statements as a paragraph of a report."""
    return " ".join(part.words for part in statements)


def with_statements(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored configuration whose statements are records; older ones have one text."""
    return {
        name: [{"statement": value}] if name in TEXTS and isinstance(value, str) else value
        for name, value in stored.items()
    }
