"""Any methods on any benchmark, and on a user's own images.

    everlight run digits --methods EWC ER
    everlight run images --data FOLDER --tasks 5

Seeds, methods and settings can be added to a finished run: what was trained is read back.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from everlight.continual.registry import METHODS, Method, why_not, with_published
from everlight_data.errors import DataError
from everlight_experiments.commands.benchmarks import load, named
from everlight_experiments.commands.options import WIDENING, RunOptions
from everlight_experiments.commands.own_strategy import load_strategy
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_methods, check_name
from everlight_experiments.continual.benchmark import Benchmark, Benchmarks
from everlight_experiments.continual.kept_nets import NETS
from everlight_experiments.continual.report import report_sections, report_summary
from everlight_experiments.continual.train import (
    Training,
    jobs_of,
    print_size_of_nets,
    runners_of,
    save_outcomes,
    train_jobs,
)

NETS_KEPT = ("Networks", f"after every task, in {NETS}/; `load_net` reads them")


def run_benchmark(options: RunOptions) -> Path:
    """Train the methods on the benchmark; returns the report's path.

    Raises:
      DataError: a benchmark or method that does not exist; data, settings or a strategy that cannot
        be used.
    """
    check_methods(options.methods, METHODS)
    refuse_joined_nets(options.keep_nets, options.distributed)
    own = own_methods(options.strategy)
    benchmarks = load(options)
    benchmark = next(iter(benchmarks.values()))
    rows = rows_of(benchmark, options, own)
    refuse_inapplicable(benchmarks, options.methods or (), rows)
    folder = RunFolder("run", named(options.benchmark)[0], options, True, WIDENING)
    given = given_hyperparameters(options.hyperparameters, rows)
    benchmarks = opened_benchmarks(benchmarks, folder, given)
    benchmark = next(iter(benchmarks.values()))
    training = Training(folder, options.seed, options.validation_seeds, options.keep_nets)
    runners = runners_of(training, benchmarks)
    jobs = jobs_of(benchmarks, rows, options.seeds)
    if options.keep_nets:
        print_size_of_nets(runners, jobs, str(folder.path))
    outcomes = train_jobs(runners, jobs)
    save_outcomes(folder, benchmarks, options.seed, options.seeds, outcomes)
    numbers = options.seed, options.seeds, options.validation_seeds
    summary = report_summary(benchmark, *numbers, folder.duration())
    if options.keep_nets:
        summary.append(NETS_KEPT)
    title = f"Continual learning of {benchmark.name}: {len(rows)} methods"
    first, sections = report_sections(folder.path, benchmarks, outcomes, rows)
    return write_report(folder.path, title, summary, sections, first)


def opened_benchmarks(
    benchmarks: Benchmarks, folder: RunFolder, grids: Mapping[str, tuple[float, ...]]
) -> Benchmarks:
    """Return the benchmarks with all that comes before the first task, and with given grids."""
    opened = {name: each.opened(folder) for name, each in benchmarks.items()}
    return {
        name: each._replace(hyperparameters={**each.hyperparameters, **grids})
        for name, each in opened.items()
    }


def own_methods(asked: Sequence[str]) -> list[Method]:
    """Return the methods of a user's files.

    Raises:
      DataError: a file that cannot be used, or two functions of one name.
    """
    own = [load_strategy(each) for each in asked]
    if len({each.name for each in own}) < len(own):
        raise DataError("two --strategy of one name; rename one")
    return own


def refuse_joined_nets(keep_nets: bool, distributed: str | None) -> None:
    """Refuse to keep networks where several processes train them together.

    Raises:
      DataError: both were asked for.
    """
    if keep_nets and distributed is not None:
        raise DataError("--keep-nets is for runs of one process; leave out --distributed")


def rows_of(benchmark: Benchmark, options: RunOptions, own: Sequence[Method] = ()) -> list[Method]:
    """Return the requested methods in the table's order, naive among them, and the user's own."""
    asked = {*(METHODS if options.methods is None else options.methods), "naive"}
    rows = [benchmark.row(method) for name, method in METHODS.items() if name in asked]
    grids = given_hyperparameters(options.hyperparameters, [*rows, *own])
    rows, own = (
        [row._replace(hyperparameters=grids.get(row.name, row.hyperparameters)) for row in each]
        for each in (rows, own)
    )
    return [*(with_published(rows) if options.published else rows), *own]


def given_hyperparameters(
    asked: Sequence[str], rows: Sequence[Method]
) -> dict[str, tuple[float, ...]]:
    """Return the grids of the command line by method, ascending.

    Raises:
      DataError: no NAME=NUMBER,..., a method that is not run or has no hyper-parameter, a value
        that is negative or no number.
    """
    known, found = [row.name for row in rows if row.hyperparameters], {}
    for each in asked:
        name, equals, values = each.partition("=")
        if not equals:
            raise DataError(
                f"--hyperparameters {each!a}; give NAME=NUMBER,..., as in EWC=1e2,1e4,1e6"
            )
        check_name("method with hyperparameters among those that are run:", name, known)
        try:
            hyperparameters = {float(value) for value in values.split(",")}
        except ValueError as error:
            raise DataError(f"--hyperparameters {each!a}; {error}") from error
        if not all(0 <= value < np.inf for value in hyperparameters):
            raise DataError(f"--hyperparameters {each!a}; give finite numbers of 0 or more")
        found[name] = tuple(sorted(hyperparameters))
    return found


def refuse_inapplicable(
    benchmarks: Benchmarks, asked: Sequence[str], rows: Sequence[Method]
) -> None:
    """Refuse methods that were asked for and apply in no setting.

    Raises:
      DataError: which, and why.
    """
    for method in rows:
        reasons = [why_not(method, each.capabilities) for each in benchmarks.values()]
        if method.name in asked and all(reasons):
            benchmark = next(iter(benchmarks.values()))
            given = why_not(method, benchmark.capabilities | {"task-incremental"}) is None
            way_out = "; give --setting task-incremental" if given else ""
            raise DataError(f"{method.name} {reasons[0]}{way_out}")
