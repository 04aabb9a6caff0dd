"""The error of an argument that a function of the library refuses, and others' errors in a line."""

MAX_REASON_LENGTH = 200
"""Characters of another library's error that a message quotes."""


class ArgumentError(ValueError):
    """Error about an argument or a value that is checked; the message names it and a remedy.

    Every check of the library raises it or a kind of it. Any other `ValueError` is a fault of a
    program, so commands show the traceback of that and the message of this.
    """


def reason_of(error: Exception) -> str:
    """Return the kind of an error and the beginning of its text, as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_REASON_LENGTH]}"
