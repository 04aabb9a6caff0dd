"""The short help of a command: a sentence per option, and the values of its configuration."""

import dataclasses
import inspect
import re
import shlex
import shutil
import textwrap
from collections.abc import Mapping, Sequence

import docstring_parser
import tyro

from everlight_experiments.run_folder.config_options import option_words
from everlight_experiments.usage import options_in

WIDTH = 100
"""Most columns of a line; a narrower terminal has fewer."""
NAMES = 18
"""Columns of the options' names."""
EPILOG = "--help-all describes all options in full."
_POSITIONAL = tyro.conf.Positional[int].__metadata__[0]
_SPACE = "\N{NO-BREAK SPACE}"


def short_help(kind: type, program: str) -> str:
    """Return about a screen of help.

    Args:
      kind: dataclass of the command's options; of its field `config` only the values are listed.
      program: name of the command.
    """
    width = min(shutil.get_terminal_size().columns, WIDTH)
    refused = getattr(kind, "refused", ())
    fields = {
        field.name: field
        for field in dataclasses.fields(kind)
        if field.name.replace("_", "-") not in refused
    }
    config = fields.pop("config", None)
    has_config = config is not None and dataclasses.is_dataclass(config.default)
    places = [_name(field) for field in fields.values() if _is_positional(field)]
    lines = ["usage: " + " ".join([program, *places, "[options]"])]
    for paragraph in inspect.cleandoc(kind.__doc__ or "").split("\n\n")[:2]:
        lines += ["", *textwrap.wrap(paragraph, width)]
    for owner, members in _options_by_class(kind, fields).items():
        # A command's own options come under its summary.
        lines += ["", *([_summary(owner)] if owner.__name__ != kind.__name__ else [])]
        for field in members:
            lines += _row(field, _sentence(kind, field), width)
    if has_config:
        lines += ["", "Options of the configuration, with their values:"]
        lines += _values(config, width, refused)
    return "\n".join([*lines, "", EPILOG])


def _options_by_class(
    kind: type, fields: Mapping[str, dataclasses.Field]
) -> dict[type, list[dataclasses.Field]]:
    """Return fields by the class that introduces them, the command's own class first."""
    groups: dict[type, list[dataclasses.Field]] = {}
    for name, field in fields.items():
        bases = reversed(kind.__mro__)
        owner = next(base for base in bases if name in inspect.get_annotations(base))
        groups.setdefault(owner, []).append(field)
    return dict(reversed(groups.items()))


def _sentence(kind: type, field: dataclasses.Field) -> str:
    """Return the first sentence on a field of a dataclass."""
    texts = [getattr(mark, "help", None) for mark in getattr(field.type, "__metadata__", ())]
    for base in kind.__mro__[:-1]:
        entries = docstring_parser.parse_from_object(base).params
        texts += [entry.description for entry in entries if entry.arg_name == field.name]
    text = " ".join(next(filter(None, texts)).split())
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0]


def _summary(owner: type) -> str:
    return inspect.cleandoc(owner.__doc__ or "").partition("\n")[0]


def _row(field: dataclasses.Field, sentence: str, width: int) -> list[str]:
    """Return lines with an option's name, a sentence on it and its default."""
    default = field.default
    if default not in (None, (), "", False, True, dataclasses.MISSING):
        sentence += f" [{shlex.join(option_words('', default)[1:])}]"
    return textwrap.wrap(
        sentence,
        width,
        initial_indent=f"  {_name(field):<{NAMES}}  ",
        subsequent_indent=" " * (NAMES + 4),
        break_on_hyphens=False,
    )


def _name(field: dataclasses.Field) -> str:
    name = field.name.replace("_", "-")
    if _is_positional(field):
        return name.upper()
    return f"--[no-]{name}" if isinstance(field.default, bool) else f"--{name}"


def _is_positional(field: dataclasses.Field) -> bool:
    return _POSITIONAL in getattr(field.type, "__metadata__", ())


def _values(config: dataclasses.Field, width: int, refused: Sequence[str]) -> list[str]:
    """Return the options of each part of a configuration with their values, under its summary.

    Refused options are left out.
    """
    groups: dict[type, list[str]] = {}
    for option in options_in(config.default):
        if option.name in refused:
            continue
        words = shlex.join(option_words(option.name, option.value))
        # An option and its value stay in one line.
        groups.setdefault(option.owner, []).append(words.replace(" ", _SPACE))
    wrapper = textwrap.TextWrapper(
        width, "  ", "  ", break_long_words=False, break_on_hyphens=False
    )
    lines = []
    for owner, words in groups.items():
        lines += [_summary(owner), *wrapper.wrap(" ".join(words))]
    return [line.replace(_SPACE, " ") for line in lines]
