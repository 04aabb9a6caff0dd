"""Configurations as options of the command line, and changed by name."""

import argparse
import contextlib
import dataclasses
import io
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import tyro

from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.run_folder.settings import check_settings
from everlight_experiments.usage import UsageError, usage_error

C = TypeVar("C")
_SUPPRESSED = tyro.conf.Suppress[int].__metadata__[0]
"""Mark of fields that are not options."""


def with_config(options: type, config: Any) -> type:
    """Return a command's options with a configuration, whose values are defaults, as `config`."""
    kind = Annotated[type(config), tyro.conf.arg(name="")]
    options_type = dataclasses.make_dataclass(
        options.__name__,
        [("config", kind, dataclasses.field(default=config))],
        bases=(options,),
        frozen=True,
    )
    options_type.__doc__ = options.__doc__
    return options_type


def changed(config: C, changes: Mapping[str, Any], option: str = "--") -> C:
    """Return a configuration with values changed by name, those of its parts after a dot.

    Args:
      config: dataclass instance.
      changes: values by name; a tuple is several values.
      option: what the message puts before the name.

    Raises:
      DataError: a name does not exist, and the message has the nearest ones; or a value has another
        type.
    """
    names = list(options_by_name(config))
    for key, value in changes.items():
        name = full_name(names, key)
        check_name(f"setting of {option.split()[0]}", name, names)
        texts = _texts(value)
        refusal = io.StringIO()
        try:
            with contextlib.redirect_stdout(refusal), contextlib.redirect_stderr(refusal):
                config = tyro.cli(
                    type(config),
                    args=[f"--{name}", *texts],
                    default=config,
                    config=(tyro.conf.FlagConversionOff,),
                )
        except SystemExit as error:
            now = options_by_name(config)[name]
            like = repr(now) if now is not None else _form_in(refusal.getvalue())
            message = f"{option}{name} {' '.join(texts)}; give something like {like}"
            raise DataError(message) from error
        # A part's own checks.
        except ArgumentError as error:
            remedy = str(error).partition("; ")[2]
            raise DataError(f"{option}{name} {' '.join(texts)}; {remedy}") from error
    check_settings(config)
    return config


def _form_in(box: str) -> str:
    """Return the form of an option's value, or its choices, from the parser's message."""
    form = re.search(r"(?:give --\S+|There are) (.+?)\. ", str(usage_error(box, "")))
    return form[1].removeprefix("{None}|") if form else "None"


def full_name(names: Sequence[str], key: str) -> str:
    """Return the option that a name means, which may be the part after its last dot."""
    key = key.replace("_", "-")
    matches = [name for name in names if name.split(".")[-1] == key]
    return matches[0] if len(matches) == 1 and key not in names else key


def changed_options(default: Any, config: Any) -> dict[str, list[str]]:
    """Return the command-line words that turn one configuration into another, by option."""
    words, defaults = {}, options_by_name(default)
    for name, value in options_by_name(config).items():
        if value == defaults[name]:
            continue
        before, dot, last = name.rpartition(".")
        if value is False:
            words[name] = [f"--{before}{dot}no-{last}"]
        else:
            words[name] = [f"--{name}", *([] if value is True else _texts(value))]
    return words


def _texts(value: Any) -> list[str]:
    return [str(word) for word in (value if isinstance(value, tuple) else (value,))]


def options_by_name(config: Any, before: str = "") -> dict[str, Any]:
    """Return the values of a configuration's options by the name on the command line."""
    values: dict[str, Any] = {}
    is_mapping = isinstance(config, Mapping)
    hints = {} if is_mapping else typing.get_type_hints(type(config), include_extras=True)
    for name in config if is_mapping else [field.name for field in dataclasses.fields(config)]:
        value = config[name] if is_mapping else getattr(config, name)
        marks = getattr(hints.get(name), "__metadata__", ())
        if _SUPPRESSED in marks:
            continue
        written = name.replace("_", "-")
        if dataclasses.is_dataclass(value) or (isinstance(value, Mapping) and value):
            # A part's options may stand without its name.
            is_unnamed = any(getattr(mark, "name", None) == "" for mark in marks)
            values |= options_by_name(value, before if is_unnamed else f"{before}{written}.")
        else:
            values[before + written] = value
    return values


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option among arguments; None if it is missing."""
    return _parsed(list(arguments), option)[0].value


def take_option(arguments: list[str], option: str) -> str | None:
    """Take an option and its value out of arguments; return the value, None without the option.

    Raises:
      UsageError: the option stands there without a value.
    """
    parsed, arguments[:] = _parsed(arguments, option, "")
    if parsed.value == "":
        raise UsageError(f"{option} has no value; give one, or leave it out.")
    return parsed.value


def _parsed(
    arguments: list[str], option: str, bare: str | None = None
) -> tuple[argparse.Namespace, list[str]]:
    """Return an option's value, `bare` if it stands without one, and the other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(option, dest="value", nargs="?", const=bare)
    return parser.parse_known_args(arguments)
