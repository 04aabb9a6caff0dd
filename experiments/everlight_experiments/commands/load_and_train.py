"""Benchmarks and methods that options select, and the call that trains them.

The commands that train and `load_net` share it.
"""

import dataclasses
import inspect
import itertools
import shlex
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from everlight.continual.methods.method import (
    INCOMPATIBILITIES,
    Method,
    Requirement,
    incompatibility,
    why_left_out,
    with_published,
)
from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import with_variants
from everlight_data.errors import DataError
from everlight_experiments.commands.benchmark_registry import (
    benchmark_name,
    load_benchmarks,
    options_unlike_preset,
)
from everlight_experiments.commands.options import ALL, MethodOptions, RunOptions, TrainOptions
from everlight_experiments.commands.protocol_presets import PROTOCOL_OPTIONS
from everlight_experiments.commands.user_benchmark import (
    is_user_file,
    load_user_benchmark,
    with_user_config,
)
from everlight_experiments.commands.user_strategy import load_strategy
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    Benchmarks,
    Setting,
)
from everlight_experiments.continual.benchmarks.run_data import AddedData
from everlight_experiments.continual.training.hyperparameters import (
    read_hyperparameters,
    refuse_equal_names,
)
from everlight_experiments.continual.training.outcome import Outcomes
from everlight_experiments.continual.training.programs import MethodPrograms, method_on
from everlight_experiments.continual.training.queue import Job, jobs_of, runners_of
from everlight_experiments.continual.training.train import train_benchmarks
from everlight_experiments.images.config import Config
from everlight_experiments.images.methods.arguments import with_method_arguments
from everlight_experiments.images.methods.published import (
    WORD,
    selected_length,
    with_published_settings,
)
from everlight_experiments.run_folder.folder import NETS, RunFolder
from everlight_experiments.run_folder.options import check_methods

NETS_KEPT = ("Networks", f"after every task, in {NETS}/; `load_net` reads them")

_READ_AS = {
    "buffer-size": {"buffer_size", "exemplars_per_class"},
    "exemplars-per-class": {"buffer_size", "exemplars_per_class"},
    "replay-batch-size": {"replay_batch_size"},
}
"""Options of memories, and the parameters of methods that get their values."""
_REMEDIES = {
    INCOMPATIBILITIES["pretrained transformer"]: "--net vit --pretrained ViT-B_16.npz",
    INCOMPATIBILITIES["task boundaries"]: "--boundaries",
    INCOMPATIBILITIES["hidden layers"]: "--net mlp:256,256",
    INCOMPATIBILITIES["layer inputs"]: "--net mlp:256,256",
    INCOMPATIBILITIES["layer outputs"]: "--net mlp:256,256",
    INCOMPATIBILITIES["stages"]: "--net mlp:256,256",
    INCOMPATIBILITIES["pretrained layers"]: "--pretrained or --features",
}
"""Options that meet a requirement, by the reason with which a method is refused."""

OTHER_NAMES = {
    **dict.fromkeys(("replay", "replayplugin", "er"), "ER"),
    **dict.fromkeys(("sgd", "finetune"), "naive"),
    **dict.fromkeys(("slda", "streaminglda"), "streaming LDA"),
    "jointtraining": "joint",
    "ewc_on": "online EWC",
    "synapticintelligence": "SI",
    "derpp": "DER++",
    "xder_rpc": "X-DER-RPC",
    "cwrstar": "CWR*",
}
"""Names of methods in Avalanche and Mammoth, in lower case, which no spelling leads to here."""


class Suite(NamedTuple):
    """Benchmarks by setting, and the methods to train on them."""

    benchmarks: Benchmarks
    methods: list[Method]
    options: RunOptions
    """Options that a run records; a user's benchmark has no configuration in them."""
    lines: list[str]
    """Lines for the user on methods that are left out or of little use (`applicable_methods`)."""


def load_suite(options: RunOptions, added: Sequence[AddedData] = ()) -> Suite:
    """Return the benchmarks and methods that the options select, in the table's order.

    The baseline naive is among them; the user's own come last. `added` are images of further tasks.

    Raises:
      DataError: a benchmark or method that does not exist; data, values or a strategy that cannot
        be used; networks to be kept where several processes train them together.
    """
    requested = requested_methods(options)
    if options.keep_nets and options.distributed is not None:
        raise DataError("--keep-nets is for runs of one process; leave out --distributed")
    is_file = is_user_file(options.benchmark)
    user_benchmark = load_user_benchmark(options.benchmark) if is_file else None
    options = with_user_config(options, user_benchmark)
    benchmarks = load_benchmarks(configure_options(options, requested), user_benchmark, added)
    applicable, lines = applicable_methods(options, benchmarks, requested)
    methods = fitted_methods(options, next(iter(benchmarks.values())), applicable)
    ready = {name: bench for name, bench in benchmarks.items() if bench.prepare is None}
    trace_user_strategies(ready, methods)
    lines += _lines_on_memory(ready, methods)
    lines += _lines_on_options(benchmarks, methods, options)
    methods = with_published(methods) if options.published else methods
    return Suite(benchmarks, methods, options, lines)


def _lines_on_options(
    benchmarks: Benchmarks, methods: Sequence[Method], options: RunOptions
) -> list[str]:
    """Return lines for the user on options that a setting, or no method of the run, reads."""
    changed = [benchmark.selection.changed for benchmark in benchmarks.values()]
    names = {option.rpartition(".")[2] for options in changed for option in options}
    lines = []
    if "epochs" in names and "online" in benchmarks:
        lines.append(
            "--epochs changes nothing in the setting online, which has one pass over each task"
        )
    # Published settings are chosen by the buffer.
    if WORD not in options.hyperparameters and not any(method.derived for method in methods):
        read = {name for method in methods for name in inspect.signature(method.factory).parameters}
        lines += [
            f"--{option} changes nothing: no method of this run reads it"
            for option, parameters in _READ_AS.items()
            if option in names and not read & parameters
        ]
    return lines


def requested_methods(options: RunOptions) -> list[Method]:
    """Return naive and the methods and strategies that the options name, as their tables have them.

    Raises:
      DataError: a method that does not exist, or a strategy that cannot be used.
    """
    names = selected_methods(options.methods)
    strategies = [load_strategy(spec) for spec in options.strategy]
    if len({strategy.name for strategy in strategies}) < len(strategies):
        raise DataError("two strategies have the same name; rename one")
    named = [method for name, method in METHODS.items() if name in names or name == "naive"]
    return named + strategies


def configure_options(options: RunOptions, methods: Sequence[Method]) -> RunOptions:
    """Return the options with a configuration that has the published and the given arguments.

    Values that the user gives for some methods leave a preset's published settings to the others.

    Raises:
      DataError: settings or arguments that the benchmark or a method does not have.
    """
    config, values = options.config, options.hyperparameters
    preset = PROTOCOL_OPTIONS.get(options.preset, {}).get("hyperparameters", ())
    if values and WORD in preset and WORD not in values:
        values = (WORD, *values)
    if WORD in values:
        config = with_published_settings(config, methods, options_unlike_preset(options))
        if other_length := selected_length(config):
            print(f"WARNING: --hyperparameters {WORD}: {other_length}", file=sys.stderr)
    config = with_method_arguments(config, options.method_arguments, methods)
    return dataclasses.replace(options, config=config, hyperparameters=values)


def fitted_methods(
    options: RunOptions, benchmark: Benchmark, methods: Sequence[Method]
) -> list[Method]:
    """Return the methods with the grids of a benchmark or of the user, each before its variants.

    All settings of a benchmark have the same grids and boundaries.

    Raises:
      DataError: values of hyper-parameters that cannot be used.
    """
    methods = [method_on(benchmark, method) for method in methods]
    texts = [text for text in options.hyperparameters if text != WORD]
    grids = read_hyperparameters(texts, methods)
    fitted = [
        method._replace(hyperparameters=grids.get(method.name, method.hyperparameters))
        for method in methods
    ]
    for method in fitted:
        refuse_equal_names(method)
    return with_variants(fitted, options.variants or ())


def selected_methods(names: Sequence[str]) -> list[str]:
    """Return the names of the methods that `--methods` selects, in the table's order.

    Raises:
      DataError: no method has the name, or no name is given.
    """
    for name in names or ():
        current_name = OTHER_NAMES.get(name.casefold())
        if current_name is not None and name not in METHODS:
            raise DataError(f"no method {name!a}; it is {current_name!r} here")
    check_methods(names, [*METHODS, ALL])
    return [name for name in METHODS if name in names or ALL in names]


def applicable_methods(
    options: MethodOptions, benchmarks: Benchmarks, methods: Sequence[Method]
) -> tuple[list[Method], list[str]]:
    """Return the methods without those that `--methods all` leaves out, and lines for the user.

    The lines name what is left out, and methods of little use that are named, each with the reason.
    """
    name = benchmark_name(options.benchmark)
    settings = [benchmark.setting for benchmark in benchmarks.values()]
    left_out, warned, selected = defaultdict(list), defaultdict(list), []
    for method in methods:
        reasons = [why_left_out(method, name, setting.capabilities) for setting in settings]
        named = method.name in options.methods
        if named or not all(reasons):
            selected.append(method)
        if all(reasons) and not named:
            left_out[reasons[0]].append(method.name)
        elif all(reasons) and reasons[0] in _REMEDIES:
            warned[reasons[0]].append(method.name)
    lines = [
        f"--methods all leaves out {_name_list(names, reason)}; --methods runs it by name"
        for reason, names in left_out.items()
    ]
    lines += [
        f"of little use here: {_name_list(names, reason)}" for reason, names in warned.items()
    ]
    return selected, lines


def _name_list(names: Sequence[str], reason: str) -> str:
    remedy = _REMEDIES.get(reason)
    return f"{', '.join(names)}, which {reason}{f'; give {remedy}' if remedy else ''}"


def trace_user_strategies(benchmarks: Benchmarks, methods: Sequence[Method]) -> None:
    """Trace runs of the user's own strategies.

    Raises:
      DataError: a strategy fails; the message has the line of its file.
    """
    for job in jobs_of(benchmarks, [method for method in methods if method.version], 1):
        MethodPrograms(benchmarks[job.column]).trace(job.method)


def _lines_on_memory(benchmarks: Benchmarks, methods: Sequence[Method]) -> list[str]:
    """Return a line for every strategy of the user that does not declare its stored samples."""
    programs = [MethodPrograms(benchmark) for benchmark in list(benchmarks.values())[:1]]
    return [
        f"{method.name} declares no stored_samples; if it stores samples, the report counts 0"
        for method in methods
        if method.version and any(of.strategy(method).stored_samples is None for of in programs)
    ]


def train_suites(
    folder: RunFolder, options: TrainOptions, suites: Mapping[str, Suite]
) -> tuple[Benchmarks, Outcomes]:
    """Train all methods on all benchmarks; return the benchmarks, prepared, and the outcomes.

    The argument has the benchmarks by their name in the folder; a single one may have the name "".
    """
    requested: dict[str, Benchmark] = {}
    jobs: list[Job] = []
    for name, suite in suites.items():
        columns = {
            f"{name}, {setting}" if name else setting: benchmark._replace(prefix=name)
            for setting, benchmark in suite.benchmarks.items()
        }
        requested |= columns
        jobs += jobs_of(columns, suite.methods, options.seeds)
    runners = runners_of(
        folder, requested, options.seed, options.validation_seeds, options.keep_nets
    )
    benchmarks = {column: runner.benchmark for column, runner in runners.items()}
    for column, benchmark in requested.items():
        # The others were traced before the folder was made.
        if benchmark.prepare is not None:
            methods = [job.method for job in jobs if job.column == column]
            trace_user_strategies({column: benchmarks[column]}, methods)
    return benchmarks, train_benchmarks(folder, runners, jobs)


def refuse_without_values(suite: Suite) -> None:
    """Refuse methods with several values of their hyper-parameter where nothing selects one.

    Raises:
      DataError: the message names the methods.
    """
    config = suite.options.config
    if not isinstance(config, Config) or config.validation_fraction:
        return
    values = [
        shlex.quote(f"{method.name}={method.hyperparameters[0]:g}")
        for method in suite.methods
        if len(method.hyperparameters) > 1
    ]
    if values:
        raise DataError(
            "--validation-fraction 0 leaves nothing to select hyper-parameters on; give values, as "
            f"in --hyperparameters {' '.join(values)} (`everlight methods` lists those that are "
            "tried), or a fraction"
        )


def refuse_inapplicable(
    benchmarks: Benchmarks, names: Sequence[str], methods: Sequence[Method]
) -> None:
    """Refuse requested methods, and strategies of the user, that apply in no setting.

    Raises:
      DataError: the message names the methods and the reason.
    """
    settings = [benchmark.setting for benchmark in benchmarks.values()]
    for method in methods:
        reasons = [incompatibility(method, setting.capabilities) for setting in settings]
        if (method.name in names or method.version) and all(reasons):
            remedy = _remedy(method, settings[0])
            advice = f"; give {remedy}" if remedy else ""
            raise DataError(f"{method.name} {reasons[0]}{advice}")


def _remedy(method: Method, setting: Setting) -> str:
    """Return options that meet all requirements of a method, or else the first; empty if none."""
    missing = [name for name in method.requirements if name not in setting.capabilities]
    options = [_options_that_meet(name, setting) for name in missing]
    met = options if all(options) else options[:1]
    return " and ".join(dict.fromkeys(itertools.chain(*met)))


def _options_that_meet(requirement: Requirement, setting: Setting) -> tuple[str, ...]:
    if requirement in setting.remedies:
        return setting.remedies[requirement]
    if requirement == "task-incremental":
        return ("--setting task-incremental",)
    return tuple(filter(None, [_REMEDIES.get(INCOMPATIBILITIES[requirement])]))
