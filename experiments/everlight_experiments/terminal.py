"""Text for a terminal, in which names of files and values cannot act as control sequences."""

import sys
from collections.abc import Iterable, Iterator
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
