"""Names with arguments in one text, as in `mlp:256,256` and `sgd:momentum=0.9`."""

import ast
from typing import Any, NamedTuple

from everlight.errors import ArgumentError


class NamedCall(NamedTuple):
    """A name and its arguments."""

    name: str
    values: tuple[Any, ...]
    """Arguments without a name, in order."""
    options: dict[str, Any]
    """Arguments by name."""


def parse_call(text: str, words: bool = False) -> NamedCall:
    """Parse a name with arguments after a colon, which commas separate.

    Args:
      text: NAME, or NAME:VALUE,OPTION=VALUE,...; values are literals of Python.
      words: take an option's value as text if it is not a literal, as in classifier=nearest mean.

    Raises:
      ValueError: an argument is neither a literal nor OPTION=LITERAL.
    """
    name, _, after = text.partition(":")
    values, options = [], {}
    for argument in after.split(",") if after else ():
        option, equals, value = argument.partition("=") if "=" in argument else ("", "", argument)
        try:
            parsed = ast.literal_eval(value)
        # A thousand minus signs are too deep for Python's parser.
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            if words and equals and option.isidentifier() and value:
                options[option] = value
                continue
            raise ArgumentError(f"{argument!a} is neither a number nor NAME=NUMBER") from None
        if not equals:
            values.append(parsed)
        elif option.isidentifier():
            options[option] = parsed
        else:
            raise ArgumentError(f"{argument!a} is neither a number nor NAME=NUMBER")
    return NamedCall(name, tuple(values), options)
