"""The table of benchmarks: the presets of each and the function that builds it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.commands.options import SETTINGS, RunOptions, TuneOptions
from everlight_experiments.continual.benchmark import Benchmarks, Request
from everlight_experiments.continual.config import CONFIGS
from everlight_experiments.continual.image_benchmarks import image_benchmarks
from everlight_experiments.core50.benchmark import core50_benchmarks
from everlight_experiments.core50.config import PRESETS as CORE50
from everlight_experiments.facts.benchmark import facts_benchmarks
from everlight_experiments.facts.config import PRESETS as FACTS
from everlight_experiments.iirc.benchmark import iirc_benchmarks
from everlight_experiments.iirc.config import PRESETS as IIRC
from everlight_experiments.run_folder.config_options import changed_options
from everlight_experiments.run_folder.settings import Preset


class Entry(NamedTuple):
    """A row of the registry."""

    configs: Mapping[Preset, Any]
    make: Callable[[Request], Benchmarks]
    """Benchmarks by setting."""
    own_settings: bool = False
    """True if the benchmark has settings of its own."""


def image_entry(request: Request) -> Benchmarks:
    """Return a benchmark of images with classes."""
    name, config, settings, seed, _, _, runs = request
    return image_benchmarks(name, config, settings, seed, runs)


BENCHMARKS: dict[str, Entry] = {
    **{name: Entry(configs, image_entry) for name, configs in CONFIGS.items()},
    "icifar": Entry(ICIFAR, image_entry),
    "facts": Entry(FACTS, facts_benchmarks, True),
    "iirc": Entry(IIRC, iirc_benchmarks, True),
    "core50-ni": Entry(CORE50, partial(core50_benchmarks, "NI"), True),
    "core50-nc": Entry(CORE50, partial(core50_benchmarks, "NC"), True),
    "core50-nic": Entry(CORE50, partial(core50_benchmarks, "NIC"), True),
}


def split_preset(text: str, preset: Preset = "demo") -> tuple[str, Preset]:
    """Return the benchmark and preset of NAME or NAME:PRESET.

    Raises:
      DataError: there is no such benchmark or preset.
    """
    name, colon, suffix = text.partition(":")
    if not name:
        raise DataError(f"name a benchmark; there are {', '.join(BENCHMARKS)}")
    check_name("benchmark", name, list(BENCHMARKS))
    preset = suffix if colon else preset
    check_name("preset", preset, list(BENCHMARKS[name].configs))
    return name, preset


def default_config(text: str, preset: Preset = "demo") -> Any:
    """Return the configuration of NAME or NAME:PRESET."""
    name, preset = split_preset(text, preset)
    return BENCHMARKS[name].configs[preset]


def load_benchmarks(options: RunOptions | TuneOptions, config: Any = None) -> Benchmarks:
    """Return the benchmarks that the options select, by setting; `config` replaces theirs.

    Raises:
      DataError: data that cannot be read, parts that do not fit together, or a setting that the
        benchmark does not have.
    """
    name, preset = split_preset(options.benchmark, options.preset)
    entry = BENCHMARKS[name]
    if entry.own_settings and options.setting is not None:
        raise DataError(f"--setting is not for {name}, which has its own")
    selected = ("class-incremental",) if options.setting is None else options.setting
    config = options.config if config is None else config
    benchmarks = entry.make(
        Request(
            name,
            config,
            tuple(setting for setting in SETTINGS if setting in selected),
            options.seed,
            getattr(options, "seeds", RunOptions.seeds),
            options.validation_seeds,
            options.runs,
        )
    )
    changes = list(changed_options(entry.configs[preset], config))
    return {
        setting: benchmark.with_given(changes)._replace(validation_tasks=options.validation_tasks)
        for setting, benchmark in benchmarks.items()
    }
