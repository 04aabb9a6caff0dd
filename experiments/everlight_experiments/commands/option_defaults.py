"""Options of each command, with the values of the named benchmark or `--config` as defaults."""

import dataclasses
import inspect
from functools import partial
from pathlib import Path
from typing import Any

from everlight.checks import check_fields
from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.formats.tables import read_json
from everlight_data.runs.descriptions import from_json
from everlight_data.user_code.objects import load_object
from everlight_experiments.commands.benchmark_registry import (
    BENCHMARKS,
    default_config,
    refuse_protocol,
    split_preset,
)
from everlight_experiments.commands.options import GridOptions, RunOptions, TuneOptions
from everlight_experiments.commands.protocol_presets import PROTOCOL_OPTIONS
from everlight_experiments.commands.user_benchmark import is_user_file
from everlight_experiments.continual.benchmarks.statements import with_statements
from everlight_experiments.images.config import Config
from everlight_experiments.images.user_stream import OF_THE_FILE
from everlight_experiments.run_folder.config_options import option_value, take_option, with_config
from everlight_experiments.terminal import printable
from everlight_experiments.usage import options_by_name

CONFIG = "--config"
_FORM = "give the config.json of a run, BENCHMARK:PRESET, or FILE.py:NAME, a configuration"


def grid_options(arguments: list[str]) -> type:
    """Return the options of `everlight grid`, whose help lists the benchmarks."""
    return _listing_benchmarks(GridOptions)


def options_of_benchmark(kind: type, arguments: list[str]) -> type:
    """Return the options of `everlight run` or `tune`: those of a benchmark, or of `--config`.

    `--config` is taken out of the arguments, and a benchmark that only it names is put first.

    Raises:
      DataError: a benchmark, preset or file that cannot be used.
    """
    source = take_option(arguments, CONFIG)
    if kind is RunOptions and arguments and is_user_file(arguments[0]):
        return _listing_benchmarks(_options_of_file(arguments, source))
    if source is not None and source.partition(":")[0] not in BENCHMARKS:
        _refuse_preset(source, arguments)
    config = None
    if source is not None and is_user_file(source):
        config = load_object(source, CONFIG, _FORM).value
    elif source is not None and source.partition(":")[0] in BENCHMARKS:
        arguments.insert(0, source)
    elif source is not None:
        return _listing_benchmarks(_options_of_run(kind, Path(source), arguments))
    if not arguments or arguments[0].startswith("-"):
        if config is None:
            return _listing_benchmarks(_options_of_help(kind, arguments))
        arguments.insert(0, _benchmark_of(source, config))
    return _listing_benchmarks(_options_of_benchmark(kind, arguments, source, config))


def _options_of_file(arguments: list[str], source: str | None) -> type:
    """Return the options of the user's benchmark or stream that comes first."""
    file = arguments[0]
    if source is not None:
        raise DataError(f"{CONFIG} is for benchmarks with a name; {file} has its own")
    config = default_config(file, option_value(arguments, "--preset") or "demo")
    options = with_config(RunOptions, config, benchmark=file)
    options.refused = "preset", *OF_THE_FILE
    return options


def _options_of_run(kind: type, path: Path, arguments: list[str]) -> type:
    """Return the options of a run's config.json, and print the Python files that they run."""
    options = read_options(kind, path)
    if arguments and not arguments[0].startswith("-"):
        name, _ = split_preset(arguments[0])
        _check_config(str(path), options.config, name, default_config(name))
        # CORe50's scenarios share their configurations.
        if name != options.benchmark and not BENCHMARKS[name].has_settings:
            raise DataError(
                f"{CONFIG} {path} is of {options.benchmark}; leave out {name}, or name that"
            )
    for file in _python_files(options, arguments):
        print(f"runs {printable(file)}, which {printable(str(path))} names", flush=True)
    return with_config(kind, **vars(options))


def _options_of_help(kind: type, arguments: list[str]) -> type:
    """Return the options of images with classes, which help without a benchmark shows."""
    if not {"-h", "--help", "--help-all"} & set(arguments):
        raise DataError(f"name a benchmark first; there are {', '.join(BENCHMARKS)}")
    return with_config(kind, default_config("digits"))


def _options_of_benchmark(
    kind: type, arguments: list[str], source: str | None, config: Any
) -> type:
    """Return the options of the benchmark that comes first, or of a user's configuration of it."""
    replacing = option_value(arguments, "--preset")
    name, preset = split_preset(arguments[0], replacing or "demo")
    if replacing not in (None, preset):
        raise DataError(f"{arguments[0]} names its preset; leave out --preset {replacing}")
    if kind is TuneOptions:
        refuse_protocol("tune", name, preset)
    default = default_config(name, preset)
    if config is not None:
        _check_config(source, config, name, default)
        _refuse_other_data(source, config, name)
    defaults = {"benchmark": name, "preset": preset, **PROTOCOL_OPTIONS.get(preset, {})}
    return with_config(kind, default if config is None else config, **defaults)


def _refuse_preset(source: str, arguments: list[str]) -> None:
    """Refuse a preset beside a configuration, of which it would change the name alone."""
    _, colon, suffix = arguments[0].partition(":") if arguments else ("", "", "")
    preset = option_value(arguments, "--preset")
    if preset is not None or colon:
        words = f":{suffix}" if preset is None else f"--preset {preset}"
        raise DataError(f"{CONFIG} {source} has all values; leave out {words}")


def _check_config(source: str, config: Any, benchmark: str, default: Any) -> None:
    """Refuse a user's configuration that is not of the benchmark's type, or has wrong values."""
    if type(config) is not type(default):
        expected = _type_name(default)
        raise DataError(f"{CONFIG} {source} is {_type_name(config)}; {benchmark} takes {expected}")
    try:
        check_fields(config)
    except ArgumentError as error:
        raise DataError(f"{CONFIG} {source}: {error}") from error


def _refuse_other_data(source: str, config: Any, benchmark: str) -> None:
    """Refuse a user's configuration of images if its data are not those of the benchmark's name."""
    configs = BENCHMARKS[benchmark].configs.values()
    names = {preset.data for preset in configs if isinstance(preset, Config)}
    if benchmark != "images" and names and config.data and config.data not in names:
        raise DataError(
            f"{CONFIG} {source} has the data {config.data!a}; name images instead of {benchmark}"
        )


run_options = partial(options_of_benchmark, RunOptions)
tune_options = partial(options_of_benchmark, TuneOptions)


def _benchmark_of(source: str, config: Any) -> str:
    """Return the benchmark that takes a configuration of a user's file."""
    names = [
        name
        for name, entry in BENCHMARKS.items()
        if isinstance(config, type(next(iter(entry.configs.values()))))
    ]
    if not names:
        raise DataError(f"{CONFIG} {source} is {_type_name(config)}; {_FORM}")
    if len(names) > 1 and "images" not in names:
        raise DataError(f"name the benchmark of {CONFIG} {source} first: {', '.join(names)}")
    return "images" if "images" in names else names[0]


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _listing_benchmarks(options: type) -> type:
    """Return options whose help lists the benchmarks after its summary."""
    summary, _, details = inspect.cleandoc(options.__doc__).partition("\n\n")
    listing = type(options.__name__, (options,), {})
    listing.__doc__ = f"{summary}\n\nBenchmarks: {', '.join(BENCHMARKS)}.\n\n{details}"
    return listing


def read_options(kind: type, path: Path) -> Any:
    """Return the options that a run's config.json holds, of a command's dataclass.

    Raises:
      DataError: the file cannot be read, or is not of this command.
    """
    remedy = "Name the config.json of a run."
    content = read_json(path, remedy)
    with refusing(path, remedy):
        stored = dict(content["settings"])
        options = {field.name for field in dataclasses.fields(kind)}
        if others := sorted(stored.keys() - options):
            command = kind.__name__.removesuffix("Options").lower()
            raise DataError(
                f"{path} is of another command or version, with the option {others[0]!a}; give the "
                f"config.json of a run of everlight {command}"
            )
        config = stored.pop("config", None)
        if config is not None:
            default = default_config(stored["benchmark"])
            kind = with_config(kind, from_json(type(default), with_statements(config)))
        return from_json(kind, stored)


def _python_files(options: Any, arguments: list[str]) -> list[str]:
    """Return the Python files that options name, except those that arguments replace."""
    paths, named = [], ("strategy", "net", "benchmark")
    for option, value in options_by_name(options).items():
        if option in named and option_value(arguments, f"--{option}") is None:
            for text in value if isinstance(value, tuple) else (value,):
                path, _, _ = str(text).rpartition(":")
                paths += [path] * (option == "strategy" or path.endswith(".py"))
    return list(dict.fromkeys(paths))
