"""The error of an argument that a function of the library refuses, and others' errors in a line."""

from typing import Any, NamedTuple

MAX_REASON_LENGTH = 200
"""Characters of another library's error that a message quotes."""


class Argument(NamedTuple):
    """An argument with its value, as an error names it."""

    name: str
    value: Any
    owner: str = ""
    """Data class of which it is a field; empty for a function's argument."""
    index: str = ""
    """Position of the value in the argument, as in [1]."""

    def __str__(self) -> str:
        owner = f"{self.owner}: " if self.owner else ""
        value = repr(self.value) if isinstance(self.value, str) else self.value
        return f"{owner}{self.name}{self.index}={value}"


class ArgumentError(ValueError):
    """Error about an argument or a value that is checked; the message names it and a remedy.

    Every check of the library raises it or a kind of it. Any other `ValueError` is a fault of a
    program, so commands show the traceback of that and the message of this.

    Attributes:
      description: text and arguments that were refused.
      remedy: text and arguments after the semicolon; empty if the description has the remedy.
    """

    def __init__(self, *description: str | Argument, remedy: tuple[str | Argument, ...] = ()):
        self.description, self.remedy = description, remedy
        super().__init__("".join(map(str, self.parts)))

    @property
    def parts(self) -> tuple[str | Argument, ...]:
        """Texts and arguments of the message, one after another."""
        return (*self.description, "; ", *self.remedy) if self.remedy else self.description


def describe_error(error: Exception) -> str:
    """Return the kind of an error and the beginning of its text, as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_REASON_LENGTH]}"
