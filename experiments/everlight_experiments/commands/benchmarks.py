"""The registry of benchmarks: configurations by preset, and what composes them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from everlight_data.errors import DataError
from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.commands.options import SETTINGS, BenchmarkOptions, RunOptions
from everlight_experiments.common.configs import changed_options
from everlight_experiments.common.settings import Preset, check_name
from everlight_experiments.continual.benchmark import Benchmarks
from everlight_experiments.continual.config import CONFIGS
from everlight_experiments.continual.images import image_benchmarks


class Request(NamedTuple):
    """What is asked of a benchmark."""

    name: str
    config: Any
    settings: tuple[str, ...]
    """Settings to run; benchmarks with their own ignore them."""
    seed: int
    seeds: int
    validation_seeds: int
    runs: Path
    """Folder of run folders; computed features are kept there."""


class Entry(NamedTuple):
    """A row of the registry."""

    configs: Mapping[Preset, Any]
    make: Callable[[Request], Benchmarks]
    """Benchmarks by setting."""
    own_settings: bool = False
    """Whether it has settings of its own."""


def composed(request: Request) -> Benchmarks:
    """Return a benchmark of images with classes."""
    name, config, settings, seed, _, _, runs = request
    return image_benchmarks(name, config, settings, seed, runs)


BENCHMARKS: dict[str, Entry] = {
    **{name: Entry(configs, composed) for name, configs in CONFIGS.items()},
    "icifar": Entry(ICIFAR, composed),
}


def named(text: str, preset: Preset = "demo") -> tuple[str, Preset]:
    """Return the benchmark and preset of NAME or NAME:PRESET.

    Raises:
      DataError: there is no such benchmark or preset.
    """
    name, colon, own = text.partition(":")
    if not name:
        raise DataError(f"name a benchmark; there are {', '.join(BENCHMARKS)}")
    check_name("benchmark", name, list(BENCHMARKS))
    preset = own if colon else preset
    check_name("preset", preset, list(BENCHMARKS[name].configs))
    return name, preset


def default_config(text: str, preset: Preset = "demo") -> Any:
    """Return the configuration of NAME or NAME:PRESET."""
    name, preset = named(text, preset)
    return BENCHMARKS[name].configs[preset]


def load(options: BenchmarkOptions, config: Any = None) -> Benchmarks:
    """Return the benchmarks that options ask for, by setting.

    Args:
      options: of a command, with the field `config`.
      config: another configuration in its place.

    Raises:
      DataError: data that cannot be read, parts that do not fit together, or a setting that the
        benchmark does not have.
    """
    name, preset = named(options.benchmark, options.preset)
    entry = BENCHMARKS[name]
    if entry.own_settings and options.setting is not None:
        raise DataError(f"--setting is not for {name}, which has its own")
    asked = ("class-incremental",) if options.setting is None else options.setting
    config = options.config if config is None else config
    benchmarks = entry.make(
        Request(
            name,
            config,
            tuple(each for each in SETTINGS if each in asked),
            options.seed,
            getattr(options, "seeds", RunOptions.seeds),
            options.validation_seeds,
            options.runs,
        )
    )
    given = changed_options(entry.configs[preset], config)
    if not given:
        return benchmarks
    said = f"Given by the user: {', '.join(given)}. "
    return {
        setting: each._replace(chosen=f"{said}The rest: {each.chosen}")
        for setting, each in benchmarks.items()
    }
