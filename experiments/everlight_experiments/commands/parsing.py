"""Options whose defaults depend on the benchmark, preset or configuration that is named."""

from dataclasses import field as defaulted
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Any

from everlight_data.files import read_json, refusing
from everlight_experiments.commands.benchmarks import BENCHMARKS, default_config, named
from everlight_experiments.commands.options import RunOptions
from everlight_experiments.common.configs import from_json, option_value, with_config

CONFIG = "--config"


def run_options(arguments: list[str]) -> type:
    """Return the options of `everlight run`: those of its benchmark, or of a run's config.json.

    Args:
      arguments: of the command line; `--config FILE` is taken out of them.

    Raises:
      DataError: a benchmark, preset or file that cannot be used.
    """
    return _options(RunOptions, arguments)


def tune_options(arguments: list[str]) -> type:
    """Return the options of `everlight tune`."""
    return _options(RunOptions, arguments)


def _options(kind: type, arguments: list[str]) -> type:
    stored = option_value(arguments, CONFIG)
    if stored is not None:
        place = next(n for n, each in enumerate(arguments) if each.startswith(CONFIG))
        del arguments[place : place + (1 if "=" in arguments[place] else 2)]
        if stored.partition(":")[0] not in BENCHMARKS:
            return with_defaults(kind, read_options(kind, Path(stored)))
        arguments.insert(0, stored)
    preset = option_value(arguments, "--preset") or "demo"
    if not arguments or arguments[0].startswith("-"):
        # Help without a benchmark shows the options of images with classes.
        return with_config(kind, default_config("digits", "demo"))
    name, preset = named(arguments[0], preset)
    found = with_config(kind, BENCHMARKS[name].configs[preset])
    return with_defaults(found, found(benchmark=name, preset=preset))


def with_defaults(kind: type, options: Any) -> type:
    """Return a class of options whose defaults are the values of an instance."""
    changed = [
        (field.name, field.type, defaulted(default=getattr(options, field.name)))
        for field in fields(options)
    ]
    found = make_dataclass(kind.__name__, changed, bases=(type(options),), frozen=True)
    found.__doc__ = kind.__doc__
    return found


def read_options(kind: type, path: Path) -> Any:
    """Return the options that a run's config.json holds.

    Args:
      kind: dataclass of the command, without the configuration.
      path: of the file.

    Raises:
      DataError: the file cannot be read, or is not of this command.
    """
    way_out = "Name the config.json of a run."
    content = read_json(path, way_out)
    with refusing(path, way_out):
        stored = dict(content["settings"])
        config = from_json(type(default_config(stored["benchmark"])), stored.pop("config"))
        return from_json(with_config(kind, config), stored)
