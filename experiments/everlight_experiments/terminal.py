"""Text for a terminal: aligned tables, and names that cannot act as control sequences."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

CURSOR_UP = "\x1b[A"
"""Sequence that progress bars write, alone, to go back to a line above."""


def printable(text: str) -> str:
    """Return a text with unprintable characters escaped, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\r\t" else ascii(char)[1:-1] for char in text
    )


def aligned_rows(rows: Sequence[Sequence[str]], left: int | None = None) -> list[str]:
    """Return rows of a table as lines, with columns as wide as their longest cell.

    Args:
      rows: cells, as many in each row.
      left: number of first columns that are aligned left, the others right; None is all.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [aligned_row(row, widths, left) for row in rows]


def aligned_row(cells: Iterable[str], widths: Sequence[int], left: int | None = None) -> str:
    """Return one row of a table with columns of given widths, as `aligned_rows` does."""
    padded = (
        cell.ljust(width) if left is None or column < left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


class PrintableStream:
    """A text stream on which control characters are written as escapes, as in \\x1b."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; returns its number of characters."""
        is_move = not text.replace(CURSOR_UP, "").strip("\n\r")
        self._stream.write(text if is_move else printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_output() -> Iterator[None]:
    """Write what this process prints without control characters, such as those of users' paths."""
    out, errors = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
    with redirect_stdout(out), redirect_stderr(errors):
        yield
