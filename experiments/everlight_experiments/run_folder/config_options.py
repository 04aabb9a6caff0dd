"""Configurations as options of the command line, and changed by name."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import tyro

from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.errors import UsageError
from everlight_experiments.run_folder.options import check_options
from everlight_experiments.usage import NO_VALUE, options_by_name, parse_options

C = TypeVar("C")


def with_config(options: type, config: Any = None, **defaults: Any) -> type:
    """Return a command's options with a configuration, whose values are defaults, as `config`.

    Args:
      options: dataclass of the command.
      config: dataclass instance, whose options stand beside those of the command; None adds none.
      defaults: values of the command's options that replace their defaults, by field.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(options)}
    changed_fields = [
        (name, kinds[name], dataclasses.field(default=value)) for name, value in defaults.items()
    ]
    if config is not None:
        kind = Annotated[type(config), tyro.conf.arg(name="")]
        changed_fields.append(("config", kind, dataclasses.field(default=config)))
    options_type = dataclasses.make_dataclass(
        options.__name__, changed_fields, bases=(options,), frozen=True
    )
    options_type.__doc__ = options.__doc__
    return options_type


def change_config(config: C, changes: Mapping[str, Any], option: str) -> C:
    """Return a configuration with values changed by name, those of its parts after a dot.

    Args:
      config: dataclass instance.
      changes: values by name; a tuple is several values.
      option: option of the command that holds the changes, for messages.

    Raises:
      DataError: a name does not exist, and the message has the nearest ones; or a value is refused.
    """
    names = list(options_by_name(config))
    for key, value in changes.items():
        name = find_option(names, key)
        check_name(f"setting of {option}", name, names)
        words = _texts(value)
        try:
            setting = [f"--{name}", *words]
            config = parse_options(type(config), setting, default=config, flags=False)
            check_options(config)
        except ArgumentError as error:
            # A part's own checks, which name its field.
            reason = "".join(map(str, error.remedy)) or error
            raise DataError(f"{option} {name}={' '.join(words)}: {reason}") from error
        except DataError as error:
            raise DataError(f"{option} {name}={' '.join(words)}: {error}") from error
    return config


def find_option(names: Sequence[str], key: str) -> str:
    """Return the option that a name means, which may be the part after its last dot."""
    key = key.replace("_", "-")
    matches = [name for name in names if name.split(".")[-1] == key]
    return matches[0] if len(matches) == 1 and key not in names else key


def changed_options(default: Any, config: Any) -> dict[str, list[str]]:
    """Return the command-line words that turn one configuration into another, by option."""
    defaults, words = options_by_name(default), {}
    for name, value in options_by_name(config).items():
        if name not in defaults:
            # A mapping that is empty by default is one option, of keys and values.
            mapping, _, key = name.rpartition(".")
            words.setdefault(mapping, [f"--{mapping}"]).extend([key, *_texts(value)])
        elif value != defaults[name]:
            words[name] = option_words(name, value)
    return words


def given_options(options: Any) -> list[str]:
    """Return the configuration's options that a command line set, without `--`.

    They differ from the defaults of the options' type, which are those of a preset or `--config`.
    """
    return list(changed_options(type(options).config, options.config))


def option_words(name: str, value: Any) -> list[str]:
    """Return the words that set an option on the command line."""
    if value is False:
        before, dot, last = name.rpartition(".")
        return [f"--{before}{dot}no-{last}"]
    return [f"--{name}", *([] if value is True else _texts(value))]


def _texts(value: Any) -> list[str]:
    return [str(word) for word in (value if isinstance(value, tuple) else (value,))]


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option, `--` before its name, among arguments; None without it.

    Raises:
      UsageError: the option stands there without a value.
    """
    return take_option(list(arguments), option)


def take_option(arguments: list[str], option: str) -> str | None:
    """Take an option and its value out of arguments; return the value, None without the option.

    Raises:
      UsageError: the option stands there without a value.
    """
    value = None
    for place, word in reversed(list(enumerate(arguments))):
        name, equals, after = word.partition("=")
        if name.replace("_", "-") != option:
            continue
        values = [after] if equals else arguments[place + 1 : place + 2]
        if not values or not values[0] or values[0].startswith("--"):
            raise UsageError(f"{option} {NO_VALUE}")
        value = values[0] if value is None else value
        del arguments[place : place + (1 if equals else 2)]
    return value
