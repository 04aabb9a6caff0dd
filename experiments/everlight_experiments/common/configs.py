"""Configurations as options of the command line, as JSON, and changed by name."""

import contextlib
import dataclasses
import io
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import tyro

from everlight_data.errors import DataError
from everlight_experiments.common.settings import check_name, check_settings

C = TypeVar("C")


def with_config(options: type, config: Any) -> type:
    """Return a command's options with those of a configuration, whose values are the defaults.

    Args:
      options: dataclass of the command.
      config: dataclass instance, which becomes the field `config`.
    """
    kind = Annotated[type(config), tyro.conf.arg(name="")]
    found = dataclasses.make_dataclass(
        options.__name__,
        [("config", kind, dataclasses.field(default=config))],
        bases=(options,),
        frozen=True,
    )
    found.__doc__ = options.__doc__
    return found


def from_json(kind: Any, value: Any) -> Any:
    """Return a value of a type from what JSON holds of it.

    Args:
      kind: dataclass, or type of one of its fields.
      value: as `json.loads` gives it.

    Raises:
      KeyError, TypeError, ValueError: the value is not of that type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return from_json(arguments[0], value)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return from_json(next(each for each in arguments if each is not type(None)), value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return kind(**{name: from_json(hints[name], each) for name, each in value.items()})
    if isinstance(value, Mapping):
        return {name: from_json(arguments[1], each) for name, each in value.items()}
    if isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1:] == (Ellipsis,) else arguments
        return tuple(from_json(*each) for each in zip(kinds, value, strict=True))
    return Path(value) if kind is Path and value is not None else value


def changed(config: C, changes: Mapping[str, Any], option: str = "--") -> C:
    """Return a configuration with values changed by name, those of its parts after a dot.

    Args:
      config: dataclass instance.
      changes: values by name; a tuple is several values.
      option: what the message puts before the name.

    Raises:
      DataError: a name that does not exist, with the nearest ones, or a value of another type.
    """
    names = _option_names(config)
    for name, value in changes.items():
        name = name.replace("_", "-")
        meant = [each for each in names if each.split(".")[-1] == name]
        name = meant[0] if len(meant) == 1 else name
        check_name(f"setting {option}{name} among", name, names)
        texts = [str(each) for each in (value if isinstance(value, tuple) else (value,))]
        refusal = io.StringIO()
        try:
            with contextlib.redirect_stdout(refusal), contextlib.redirect_stderr(refusal):
                config = tyro.cli(type(config), args=[f"--{name}", *texts], default=config)
        except SystemExit as error:
            now = _value(config, name)
            said = f"{option}{name} {' '.join(texts)}; give something like {now!r}"
            raise DataError(said) from error
    check_settings(config)
    return config


def _option_names(config: Any, before: str = "") -> list[str]:
    """Return the names of a configuration's options as the command line writes them."""
    names = []
    parts = config if isinstance(config, Mapping) else _fields(config)
    for name, value in parts.items():
        written = name.replace("_", "-")
        if dataclasses.is_dataclass(value) or (isinstance(value, Mapping) and value):
            inner = before if _is_unnamed(config, name) else f"{before}{written}."
            names += _option_names(value, inner)
        else:
            names.append(before + written)
    return names


def _fields(config: Any) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _is_unnamed(config: Any, name: str) -> bool:
    """Return whether a part's options stand without its name."""
    if isinstance(config, Mapping):
        return False
    hint = typing.get_type_hints(type(config), include_extras=True)[name]
    return any(getattr(each, "name", None) == "" for each in getattr(hint, "__metadata__", ()))


def _value(config: Any, name: str) -> Any:
    for part in name.split("."):
        values = config if isinstance(config, Mapping) else _fields(config)
        spelled = {key.replace("_", "-"): each for key, each in values.items()}
        nested = [each for each in values.values() if dataclasses.is_dataclass(each)]
        if part not in spelled and nested:
            spelled |= {key.replace("_", "-"): x for key, x in _fields(nested[0]).items()}
        config = spelled[part]
    return config


def read_changes(given: Sequence[str], option: str) -> dict[str, str]:
    """Return NAME=VALUE texts of the command line by name.

    Raises:
      DataError: a text without a name or a value.
    """
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise DataError(f"{option} {each!a}; give NAME=VALUE, as in learning-rate=0.01")
        found[name] = value
    return found


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option among arguments; None if it is not there."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.partition("=")[2]
    return None
