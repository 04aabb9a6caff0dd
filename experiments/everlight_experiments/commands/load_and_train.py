"""Benchmarks and methods that options select, and the call that trains them.

The commands that train and `load_net` share it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from everlight.continual.methods.method import (
    INCOMPATIBILITIES,
    Method,
    incompatibility,
    why_left_out,
    with_published,
)
from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import with_variants
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.commands.benchmark_registry import benchmark_name, load_benchmarks
from everlight_experiments.commands.options import ALL, MethodOptions, RunOptions, TrainOptions
from everlight_experiments.commands.user_strategy import load_strategy
from everlight_experiments.continual.benchmark import Benchmark, Benchmarks
from everlight_experiments.continual.method_arguments import (
    refuse_unfit_argument,
    with_method_arguments,
)
from everlight_experiments.continual.method_programs import Programs, row_on
from everlight_experiments.continual.method_runner import NETS
from everlight_experiments.continual.outcome import Outcomes
from everlight_experiments.continual.published import WORD, with_published_settings
from everlight_experiments.continual.train_methods import (
    Job,
    jobs_of,
    print_size_of_nets,
    runners_of,
    train_jobs,
)
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import check_methods

NETS_KEPT = ("Networks", f"after every task, in {NETS}/; `load_net` reads them")

_REMEDIES = {
    INCOMPATIBILITIES["pretrained transformer"]: "--net vit --pretrained ViT-B_16.npz",
    INCOMPATIBILITIES["task boundaries"]: "--boundaries",
    INCOMPATIBILITIES["hidden layers"]: "--net mlp:256,256",
    INCOMPATIBILITIES["layer inputs"]: "--net mlp:256,256",
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


class Loaded(NamedTuple):
    """Benchmarks by setting, and the methods to train on them."""

    benchmarks: Benchmarks
    rows: list[Method]
    lines: list[str]
    """Lines for the user on methods that are left out or of little use (`applicable_methods`)."""


def load_requested(options: RunOptions) -> Loaded:
    """Return the benchmarks and methods that the options select, in the table's order.

    The baseline naive is among them; the user's own come last.

    Raises:
      DataError: a benchmark or method that does not exist; data, values or a strategy that cannot
        be used; networks to be kept where several processes train them together.
    """
    names = selected_methods(options.methods)
    if options.keep_nets and options.distributed is not None:
        raise DataError("--keep-nets is for runs of one process; leave out --distributed")
    strategies = [load_strategy(spec) for spec in options.strategy]
    if len({row.name for row in strategies}) < len(strategies):
        raise DataError("two strategies have the same name; rename one")
    rows = [row for name, row in METHODS.items() if name in names or name == "naive"] + strategies
    config, grid_texts = getattr(options, "config", None), list(options.hyperparameters)
    if WORD in grid_texts:
        grid_texts.remove(WORD)
        config = with_published_settings(config, rows)
    config = with_method_arguments(config, options.method_arguments, rows)
    benchmarks = load_benchmarks(options, config)
    rows, lines = applicable_methods(options, benchmarks, rows)
    first = next(iter(benchmarks.values()))
    grids = given_hyperparameters(grid_texts, [first.row(row) for row in rows])
    benchmarks = {name: with_grids(benchmark, grids) for name, benchmark in benchmarks.items()}
    first = next(iter(benchmarks.values()))
    rows = with_variants([row_on(first, row) for row in rows], options.variants or ())
    ready = {name: benchmark for name, benchmark in benchmarks.items() if benchmark.prepare is None}
    trace_user_strategies(ready, rows)
    return Loaded(benchmarks, with_published(rows) if options.published else rows, lines)


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
    options: MethodOptions, benchmarks: Benchmarks, rows: Sequence[Method]
) -> tuple[list[Method], list[str]]:
    """Return the methods without those that `--methods all` leaves out, and lines for the user.

    The lines name what is left out, and methods of little use that are named, each with the reason.
    """
    name = benchmark_name(options.benchmark)
    left_out: dict[str, list[str]] = {}
    warned: dict[str, list[str]] = {}
    selected = []
    for method in rows:
        offers = [benchmark.setting.capabilities for benchmark in benchmarks.values()]
        reasons = [why_left_out(method, name, offer) for offer in offers]
        reason, named = reasons[0], method.name in options.methods
        if named or not all(reasons):
            selected.append(method)
        if all(reasons) and not named:
            left_out.setdefault(reason, []).append(method.name)
        elif all(reasons) and reason in _REMEDIES:
            warned.setdefault(reason, []).append(method.name)
    lines = [
        f"--methods all leaves out {_listed(names, reason)}; --methods runs it by name"
        for reason, names in left_out.items()
    ]
    lines += [f"of little use here: {_listed(names, reason)}" for reason, names in warned.items()]
    return selected, lines


def _listed(names: Sequence[str], reason: str) -> str:
    remedy = _REMEDIES.get(reason)
    return f"{', '.join(names)}, which {reason}{f'; give {remedy}' if remedy else ''}"


def trace_user_strategies(benchmarks: Benchmarks, rows: Sequence[Method]) -> None:
    """Trace runs of the user's own strategies.

    Raises:
      DataError: a strategy fails; the message has the line of its file.
    """
    for job in jobs_of(benchmarks, [row for row in rows if row.version], 1):
        Programs(benchmarks[job.column]).trace(job.method)


def train_loaded(
    folder: RunFolder, options: TrainOptions, loaded: Mapping[str, Loaded]
) -> tuple[Benchmarks, Outcomes]:
    """Train all methods on all benchmarks; return the opened benchmarks, and outcomes by column.

    The argument has the benchmarks by their name in the folder; a single one may have the name "".
    """
    benchmarks: dict[str, Benchmark] = {}
    jobs: list[Job] = []
    for name, suite in loaded.items():
        columns = {}
        for setting, benchmark in suite.benchmarks.items():
            column = f"{name}, {setting}" if name else setting
            columns[column] = benchmark._replace(part=name).opened(folder)
            if benchmark.prepare is not None:
                # The others were traced before the folder was made.
                trace_user_strategies({column: columns[column]}, suite.rows)
        benchmarks |= columns
        jobs += jobs_of(columns, suite.rows, options.seeds)
    runners = runners_of(
        folder, benchmarks, options.seed, options.validation_seeds, options.keep_nets
    )
    if options.keep_nets:
        print_size_of_nets(runners, jobs, str(folder.path))
    return benchmarks, train_jobs(runners, jobs)


def with_grids(benchmark: Benchmark, grids: Mapping[str, tuple[float, ...]]) -> Benchmark:
    """Return a benchmark with other hyper-parameters of some methods."""
    selection = benchmark.selection
    grids = {**selection.grids, **grids}
    return benchmark._replace(selection=selection._replace(grids=grids))


def given_hyperparameters(
    texts: Sequence[str], rows: Sequence[Method]
) -> dict[str, tuple[float, ...]]:
    """Return the grids of the command line by method, ascending.

    Raises:
      DataError: a text is not NAME=NUMBER,...; a method is not run, has no hyper-parameter or
        occurs twice; or a value is negative, not a number, or infinite in 32 bits.
    """
    known, grids = {row.name: row for row in rows if row.hyperparameters}, {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise DataError(
                f"--hyperparameters {text!a}; give NAME=NUMBER,..., as in EWC=1e2,1e4,1e6"
            )
        check_name("method with hyper-parameters among those that are run:", name, list(known))
        try:
            hyperparameters = {float(value) for value in values.split(",")}
        except ValueError as error:
            raise DataError(
                f"--hyperparameters {text!a}; give numbers, as in {name}=1e2,1e4"
            ) from error
        # Programs have them in 32 bits.
        with np.errstate(over="ignore"):
            known_to_programs = [float(np.float32(value)) for value in hyperparameters]
        if not all(0 <= value < np.inf for value in known_to_programs):
            raise DataError(f"--hyperparameters {text!a}; give finite numbers of 0 or more")
        option = f"--hyperparameters {text!a}: "
        for value in hyperparameters:
            refuse_unfit_argument(known[name], known[name].tunes, value, option)
        if name in grids:
            raise DataError(f"--hyperparameters has {name!r} twice; give all its values in one")
        grids[name] = tuple(sorted(hyperparameters))
    return grids


def refuse_inapplicable(
    benchmarks: Benchmarks, names: Sequence[str], rows: Sequence[Method]
) -> None:
    """Refuse requested methods, and strategies of the user, that apply in no setting.

    Raises:
      DataError: the message names the methods and the reason.
    """
    for method in rows:
        capabilities = [benchmark.setting.capabilities for benchmark in benchmarks.values()]
        reasons = [incompatibility(method, offered) for offered in capabilities]
        if (method.name in names or method.version) and all(reasons):
            fits_multi_head = (
                incompatibility(method, capabilities[0] | {"task-incremental"}) is None
            )
            remedy = "--setting task-incremental" if fits_multi_head else _REMEDIES.get(reasons[0])
            advice = f"; give {remedy}" if remedy else ""
            raise DataError(f"{method.name} {reasons[0]}{advice}")
