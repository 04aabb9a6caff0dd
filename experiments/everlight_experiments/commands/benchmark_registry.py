"""The table of benchmarks: the presets of each and the function that builds it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_data.user_code.streams import UserStream
from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.commands.options import RunOptions, TuneOptions
from everlight_experiments.commands.protocol_presets import PROTOCOL_CONFIGS, PROTOCOL_OPTIONS
from everlight_experiments.commands.user_benchmark import (
    identified_by_file,
    is_user_file,
)
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    Benchmarks,
    Request,
)
from everlight_experiments.continual.benchmarks.config import (
    SETTINGS,
    BenchmarkConfig,
    part_of,
    refuse_options,
)
from everlight_experiments.continual.benchmarks.run_data import AddedData
from everlight_experiments.core50.benchmark import core50_benchmarks
from everlight_experiments.core50.config import PRESETS as CORE50
from everlight_experiments.facts.benchmark import facts_benchmarks
from everlight_experiments.facts.config import PRESETS as FACTS
from everlight_experiments.iirc.benchmark import iirc_benchmarks
from everlight_experiments.iirc.config import PRESETS as IIRC
from everlight_experiments.images.benchmark import image_benchmarks, user_stream_benchmarks
from everlight_experiments.images.config import CONFIGS, PICTURES, Config
from everlight_experiments.run_folder.config_options import changed_options, given_options
from everlight_experiments.run_folder.options import Preset, ProtocolPreset

AnyPreset = Preset | ProtocolPreset
C = TypeVar("C", bound=BenchmarkConfig)


class Entry(NamedTuple, Generic[C]):
    """A row of the registry."""

    configs: Mapping[AnyPreset, C]
    make: Callable[[Request[C]], Benchmarks]
    """Benchmarks by setting."""
    has_settings: bool = False
    """True if the benchmark has settings of its own."""


BENCHMARKS: dict[str, Entry] = {
    **{
        name: Entry({**configs, **PROTOCOL_CONFIGS.get(name, {})}, image_benchmarks)
        for name, configs in CONFIGS.items()
    },
    "icifar": Entry(ICIFAR, image_benchmarks),
    "facts": Entry(FACTS, facts_benchmarks, True),
    "iirc": Entry(IIRC, iirc_benchmarks, True),
    "core50-ni": Entry(CORE50, partial(core50_benchmarks, "NI"), True),
    "core50-nc": Entry(CORE50, partial(core50_benchmarks, "NC"), True),
    "core50-nic": Entry(CORE50, partial(core50_benchmarks, "NIC"), True),
}


def split_preset(text: str, preset: AnyPreset = "demo") -> tuple[str, AnyPreset]:
    """Return the benchmark and preset of NAME or NAME:PRESET.

    Raises:
      DataError: there is no such benchmark or preset, or it is of a user's file.
    """
    if is_user_file(text):
        raise DataError(f"{text} is for everlight run; other commands take {', '.join(BENCHMARKS)}")
    name, colon, suffix = text.partition(":")
    if not name:
        raise DataError(f"name a benchmark; there are {', '.join(BENCHMARKS)}")
    check_name("benchmark", name, list(BENCHMARKS))
    preset = suffix if colon else preset
    having = [other for other, configs in PROTOCOL_CONFIGS.items() if preset in configs]
    if having and name not in having:
        raise DataError(
            f"--preset {preset} is for {', '.join(having)}; {name} has "
            f"{', '.join(BENCHMARKS[name].configs)}"
        )
    check_name("preset", preset, list(BENCHMARKS[name].configs))
    return name, preset


def refuse_protocol(command: str, name: str, preset: AnyPreset) -> None:
    """Refuse a protocol of the literature in a command that has only sizes of benchmarks."""
    if preset in PROTOCOL_OPTIONS:
        raise DataError(
            f"--preset {preset} is for everlight run {name}; everlight {command} takes demo, small "
            "and paper"
        )


def benchmark_name(text: str) -> str:
    """Return the name of a benchmark, without its preset or its file."""
    return text.rpartition(":")[2] if is_user_file(text) else split_preset(text)[0]


def default_config(text: str, preset: AnyPreset = "demo") -> BenchmarkConfig:
    """Return the configuration of NAME or NAME:PRESET, or of a stream of a user's file."""
    if is_user_file(text):
        if preset != "demo":
            raise DataError(f"--preset {preset} is not for {text}, whose file has its size")
        return PICTURES
    name, preset = split_preset(text, preset)
    return BENCHMARKS[name].configs[preset]


def has_own_settings(options: RunOptions | TuneOptions) -> bool:
    """Return True if the benchmark has settings of its own, which --setting does not select.

    A user's `Benchmark` has no configuration in the options that a run records.
    """
    if is_user_file(options.benchmark):
        return options.config is None
    return BENCHMARKS[benchmark_name(options.benchmark)].has_settings


def options_unlike_preset(options: RunOptions | TuneOptions) -> list[str]:
    """Return the configuration's options that differ from the benchmark's preset, without `--`.

    They are the same when a run is repeated (`--config`) or read back. A user's `Benchmark`, which
    has no configuration, has none.
    """
    if options.config is None:
        return []
    default = default_config(options.benchmark, options.preset)
    return list(changed_options(default, options.config))


def load_benchmarks(
    options: RunOptions | TuneOptions,
    user_benchmark: Benchmark | UserStream | None = None,
    added: Sequence[AddedData] = (),
) -> Benchmarks:
    """Return the benchmarks that the options select, by setting.

    `user_benchmark` is what `load_user_benchmark` read, if the options name a user's file. `added`
    are images of further tasks.

    Raises:
      DataError: data that cannot be read, parts that do not fit together, or a setting that the
        benchmark does not have.
    """
    name, has_settings = benchmark_name(options.benchmark), has_own_settings(options)
    if options.setting is not None and has_settings:
        raise DataError(f"--setting is not for {name}, which has its own")
    if added and has_settings:
        raise DataError(
            f"{name} cannot be updated: its tasks have a form of their own; only runs on images "
            "with one class each can"
        )
    if isinstance(user_benchmark, Benchmark):
        benchmarks, changes = {user_benchmark.setting.name: user_benchmark}, []
    else:
        request = _request_of(options, name)._replace(added=tuple(added))
        changes = options_unlike_preset(options)
        has_rows = user_benchmark is not None and user_benchmark.features is not None
        strategies = options.strategy if isinstance(options, RunOptions) else ()
        names = [*METHODS, *(reference.rpartition(":")[2] for reference in strategies)]
        request.config.check_method_names(names)
        unread = request.config.unread(name, request.settings, has_rows)
        refuse_options(given_options(options), unread)
        changes = [option for option in changes if part_of(option) not in unread]
        benchmarks = (
            BENCHMARKS[name].make(request)
            if user_benchmark is None
            else _of_stream(request, user_benchmark)
        )

    def selecting(benchmark: Benchmark) -> Benchmark:
        selection = benchmark.selection.with_changed(changes)
        if options.validation_tasks is not None:
            selection = selection._replace(validation_tasks=options.validation_tasks)
        return benchmark._replace(selection=selection)

    return {setting: selecting(benchmark) for setting, benchmark in benchmarks.items()}


def _request_of(options: RunOptions | TuneOptions, name: str) -> Request:
    selected = options.setting or ("class-incremental",)
    return Request(
        name=name,
        config=options.config,
        settings=tuple(setting for setting in SETTINGS if setting in selected),
        seed=options.seed,
        seeds=options.seeds,
        validation_seeds=options.validation_seeds,
        runs=options.runs,
    )


def _of_stream(request: Request[Config], user_stream: UserStream) -> Benchmarks:
    benchmarks = user_stream_benchmarks(request, user_stream)
    return {
        setting: identified_by_file(benchmark, user_stream.version)
        for setting, benchmark in benchmarks.items()
    }
