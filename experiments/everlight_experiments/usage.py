"""Words of the command line as a dataclass of options, and why they are refused in one line.

The parser is tyro. It describes what it refuses by events, which are structured but private to it:
`pyproject.toml` bounds its version.
"""

import dataclasses
import shlex
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import tyro
from tyro import _errors as refusals
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from everlight.errors import Argument, ArgumentError
from everlight_data.names import nearest_names
from everlight_experiments.errors import UsageError

T = TypeVar("T")
_SUPPRESSED = tyro.conf.Suppress[int].__metadata__[0]
"""Mark of fields that are no options."""
LONGEST = 60
"""Characters of a word of the command line that a message repeats."""
NO_VALUE = "has no value; give one."
_TYPES = ConstructorRegistry()
"""Types of options that the parser constructs by rules of this module."""

OTHER_NAMES = {
    "--backbone": "--net",
    "--bs": "--batch-size",
    "--dataset": "--data",
    "--lr": "--learning-rate",
    "--lr-milestones": "--milestones",
    "--mem-size": "--buffer-size",
    "--memory-size": "--buffer-size",
    "--minibatch-size": "--replay-batch-size",
    "--model": "--methods",
    "--n-epochs": "--epochs",
    "--n-experiences": "--tasks",
    "--n-tasks": "--tasks",
    "--optim": "--optimizer",
    "--optim-wd": "--weight-decay",
    "--strategy-name": "--methods",
    "--train-epochs": "--epochs",
    "--train-mb-size": "--batch-size",
    "--wd": "--weight-decay",
}
"""Names of options in Mammoth, Avalanche and PyTorch's examples, with those of everlight."""


class Option(NamedTuple):
    """An option of a dataclass or of one of its parts."""

    name: str
    """Name on the command line, without dashes."""
    value: Any
    owner: type
    """Dataclass that has it as a field."""


@_TYPES.primitive_rule
def _path_spec(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Path] | None:
    """Return how words become paths; None of another type."""
    if info.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=_path_of,
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    )


def _path_of(words: Sequence[str]) -> Path:
    (word,) = words
    if not word:
        # An empty path would be the directory that the user is in.
        raise ValueError(f"no path {word!r}")
    return Path(word)


def parse_options(
    kind: type[T],
    words: Sequence[str],
    program: str = "",
    default: Any = tyro.MISSING_NONPROP,
    flags: bool = True,
) -> T:
    """Return words of a command line as a dataclass of options.

    Args:
      kind: dataclass, whose fields are the options.
      words: options with their values, in any order.
      program: name of the command, for its help; without it --help is no option.
      default: instance with the values of options that the words leave out; its fields have their
        defaults without one.
      flags: a truth value is set by --NAME and --no-NAME, and else by --NAME True or False.

    Raises:
      UsageError: an option does not exist, or has no value or none that can be parsed.
      ArgumentError: the dataclass, or a part of it, refuses a value.
      SystemExit: help was printed.
    """
    markers = [tyro.conf.PositionalMetavarFromFieldName]
    if not flags:
        markers.append(tyro.conf.FlagConversionOff)

    def refuse(event: refusals.ParseErrorEvent) -> None:
        if isinstance(event, refusals.InstantiationFailure) and event.argument is None:
            raise _refusal(event.message)
        reason = _reason(event, kind)
        # Events without a reason here are printed by the parser.
        if reason:
            raise UsageError(reason)

    with refusals.on_parse_error(refuse):
        return tyro.cli(
            kind,
            args=words,
            prog=program,
            default=default,
            add_help=bool(program),
            config=markers,
            registry=_TYPES,
        )


def _refusal(message: str) -> ArgumentError:
    """Return the error of a dataclass that the parser is handling; an event has its text alone."""
    error = sys.exception()
    while error is not None and not isinstance(error, ArgumentError):
        error = error.__context__
    return ArgumentError(message) if error is None else error


def _reason(event: refusals.ParseErrorEvent, kind: type) -> str:
    if isinstance(event, refusals.UnrecognizedArgs):
        word = event.tokens[0].partition("=")[0].replace("_", "-")
        options = [f"--{name}" for name in options_by_name(kind)]
        other = OTHER_NAMES.get(word.lower())
        hint = f"; did you mean {other}?" if other in options else _hint(word, options)
        return f"no option {shorten_text(ascii(word))}{hint}"
    if isinstance(event, refusals.MissingArgs):
        missing = event.missing_arguments[0].arg
        text = missing.field.helptext
        text = " ".join(str(text() if callable(text) else text).split())
        return f"{missing.lowered.metavar} is missing: {text}"
    argument = getattr(event, "argument", None)
    option = "" if argument is None else argument.display_name()
    if isinstance(event, refusals.BadValue):
        return f"{option} {NO_VALUE}"
    if isinstance(event, refusals.InvalidChoice):
        hint, listed = _hint(event.value, event.choices), ", ".join(sorted(event.choices))
        return f"no {option} {shorten_text(repr(event.value))}{hint} There are {listed}."
    if not isinstance(event, refusals.InstantiationFailure):
        return ""
    # Reasons quote the words that they refuse; an empty one is a value of no type but text.
    if repr("") in event.message:
        return f"{option} {NO_VALUE}"
    form = argument.get_invocation_text()[1].as_str_no_ansi()
    no_reason = event.message.startswith("no type matching")
    reason = "" if no_reason else " ".join(map(shorten_text, event.message.split())) + "; "
    return f"{option}: {reason}give {form}."


def _hint(word: str, known: Iterable[str]) -> str:
    near = nearest_names(word, list(known))
    return f"; did you mean {' or '.join(near)}?" if near else "."


def options_by_name(config: Any) -> dict[str, Any]:
    """Return the values of a configuration's options by the name on the command line."""
    return {option.name: option.value for option in options_in(config)}


def options_in(config: Any, before: str = "") -> Iterator[Option]:
    """Yield the options of a dataclass and its parts.

    Args:
      config: dataclass instance, or a dataclass for the defaults of its fields.
      before: text before the names of its options, such as `mid-scale.`.
    """
    kind = config if isinstance(config, type) else type(config)
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(config):
        marks = getattr(hints[field.name], "__metadata__", ())
        if _SUPPRESSED in marks:
            continue
        value = _default(field) if isinstance(config, type) else getattr(config, field.name)
        name = before + field.name.replace("_", "-")
        # A part's options may stand without its name.
        is_unnamed = any(getattr(mark, "name", None) == "" for mark in marks)
        within = before if is_unnamed else f"{name}."
        if dataclasses.is_dataclass(value):
            yield from options_in(value, within)
        elif isinstance(value, Mapping) and value:
            for key, part in value.items():
                key = f"{within}{key}".replace("_", "-")
                if dataclasses.is_dataclass(part):
                    yield from options_in(part, f"{key}.")
                else:
                    yield Option(key, part, kind)
        else:
            yield Option(name, value, kind)


def _default(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def name_options(error: ArgumentError, options: Iterable[str]) -> str:
    """Return the message of an error with options in place of the arguments that they set.

    Args:
      error: of the library, as in `Protocol: epochs=0; give 1 or more`.
      options: names of options without dashes; the part after the last dot is the argument's.
    """
    names: dict[str, list[str]] = {}
    for option in options:
        names.setdefault(option.rpartition(".")[2].replace("-", "_"), []).append(option)
    return "".join(
        _as_option(part, names.get(part.name, ())) if isinstance(part, Argument) else part
        for part in error.parts
    )


def _as_option(argument: Argument, options: Sequence[str]) -> str:
    """Return the words that set an argument if one option does, and else the argument."""
    if len(options) != 1:
        return str(argument)
    if isinstance(argument.value, bool):
        before, dot, last = options[0].rpartition(".")
        return f"--{before}{dot}{'' if argument.value else 'no-'}{last}"
    value = argument.value
    return f"--{options[0]} {shlex.quote(value) if isinstance(value, str) else value}"


def shorten_text(word: str) -> str:
    """Return a word of the command line for a message, cut where it is long."""
    return word if len(word) <= LONGEST else f"{word[:LONGEST]}..."
