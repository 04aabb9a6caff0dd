"""Usage errors in one line: the parser's box of several lines becomes a sentence."""

import ast
import re
from collections.abc import Iterable

from everlight_data.errors import DataError
from everlight_data.names import nearest_names

LONGEST = 60
"""Characters of a word of the command line that a message repeats."""


_ARGUMENT = re.compile(r"(?:\b[A-Z]\w+: )?\b([a-z][a-z_]*)=('?)([^\s;,']+)\2")
"""An argument with its value in a message of the library, perhaps after its class."""


class UsageError(DataError):
    """Words of the command line that cannot be parsed; the command ends with status 2."""


def usage_error(box: str, program: str) -> UsageError:
    """Return the parser's message as one sentence, with the nearest name where a name is wrong.

    Args:
      box: text of the parser. Where the output is in UTF-8 it has a frame with the title in its
        first line; elsewhere the title stands above a line.
      program: command, for its help.
    """
    parts = [part.strip() for part in re.split(r"^[─-]{3,}$", _without_frame(box), flags=re.M)]
    is_framed = box.lstrip().startswith("╭")
    body, *others = parts if is_framed or len(parts) == 1 else parts[1:]
    # A long word of dashes may look like a line between two parts.
    body, details = " ".join(body.split()), "\n".join(others).splitlines()
    return UsageError(f"{_sentence(body, details)} {program} --help lists all options.")


def in_options(message: str, options: Iterable[str]) -> str:
    """Return a message of the library with options in place of the arguments that they set.

    Args:
      message: text, as in `Protocol: epochs=0; give 1 or more`.
      options: names of options without dashes; the part after the last dot is the argument's.
    """
    names: dict[str, list[str]] = {}
    for option in options:
        names.setdefault(option.rpartition(".")[2].replace("-", "_"), []).append(option)

    def as_option(match: re.Match[str]) -> str:
        argument, _, value = match.groups()
        named = names.get(argument, [])
        if len(named) != 1:
            return match[0]
        before, dot, last = named[0].rpartition(".")
        if value in ("True", "False"):
            return f"--{before}{dot}{'' if value == 'True' else 'no-'}{last}"
        return f"--{named[0]} {value}"

    return _ARGUMENT.sub(as_option, message)


def shortened(word: str) -> str:
    """Return a word of the command line for a message, cut where it is long."""
    return word if len(word) <= LONGEST else f"{word[:LONGEST]}..."


def _without_frame(box: str) -> str:
    lines = (line.strip("│┃ \t") for line in box.splitlines())
    return "\n".join(line for line in lines if not line.startswith(("╭", "╰")))


def _sentence(body: str, details: list[str]) -> str:
    choice = re.match(r"invalid choice (.+) for argument '(\S+)'\. Expected one of (\(.*\))", body)
    if choice:
        word, option, listed = choice.groups()
        names = [str(name) for name in ast.literal_eval(listed)]
        near = nearest_names(word.strip("'\""), names)
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        return f"no {option} {shortened(word)}{hint} There are {', '.join(names)}."
    value = re.match(r"Error parsing (\S+): (.+)", body)
    if value:
        option, reason = value.groups()
        if not option.startswith("-"):
            # The options' dataclass, of which the reason names the field.
            return f"{_short_words(reason)}."
        forms = (line.strip() for line in details if line.strip().startswith(f"{option} "))
        form = next(forms, option)
        why = "" if reason.startswith("no type matching") else f" {_short_words(reason)};"
        return f"{option}:{why} give {form}."
    missing = re.match(r"Missing value for argument '(\S+)'", body)
    if missing:
        return f"{missing[1]} has no value; give one."
    required = re.match(r"Missing from [^:]+: (.+)", body)
    if required:
        named = re.sub(r"\b([A-Z]{3,}) (?=[A-Z])", r"\1: ", required[1])
        return f"Missing: {named.replace(' (required)', '')}"
    return _short_words(body)


def _short_words(text: str) -> str:
    return " ".join(map(shortened, text.split()))
