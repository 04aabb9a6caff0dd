"""Any strategies on any benchmark, and on a user's own images.

    everlight continual run digits --methods EWC ER
    everlight continual run images --images FOLDER --tasks 5

Seeds, methods and scenarios can be added to a finished run: what was trained is read back.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from everlight_data.errors import DataError
from everlight_experiments.common.checkpoint import checksums_of
from everlight_experiments.common.plan_settings import plan_in_force
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_methods, check_name
from everlight_experiments.continual.benchmark import Benchmark, Draw
from everlight_experiments.continual.methods import METHODS, Method, why_not, with_published
from everlight_experiments.continual.own_strategy import load_strategy
from everlight_experiments.continual.plan import WIDENING, StrategiesRun
from everlight_experiments.continual.report import report_sections, report_summary
from everlight_experiments.continual.runner import NETS, Outcome, Outcomes, Runner
from everlight_experiments.continual.table import BENCHMARKS, GENERAL, TFDS, ContinualRun

OF_PLANS = (
    *(
        "epochs",
        "batch_size",
        "learning_rate",
        "exemplars_per_class",
        "buffer_size",
        "replay_batch_size",
    ),
    *("dtype", "tasks", "side"),
)
"""Options of which the papers' benchmarks have their own kind in their plans."""
NETS_KEPT = ("Nets", f"after every task, in {NETS}/; `load_net` reads them")


def run_continual(settings: ContinualRun) -> Path:
    """Runs it all; returns the report's path.

    Raises:
      DataError: a benchmark or method that there is not; data, settings or a strategy that cannot
        be used.
    """
    check_benchmark(settings)
    load = BENCHMARKS[settings.benchmark]
    return run_strategies(settings, f"run-{settings.benchmark}", lambda: load(settings))


def check_benchmark(settings: ContinualRun) -> None:
    """Refuses a benchmark that there is not, and options that it has not.

    Raises:
      DataError: which.
    """
    name = settings.benchmark
    check_name("benchmark", name, list(BENCHMARKS))
    if settings.images is not None and name != "images":
        raise DataError(f"--images is for the benchmark 'images', not {name!r}")
    if settings.data is not None:
        if name != "images" or settings.images is not None:
            raise DataError("--data is for the benchmark 'images', in place of --images")
        if not settings.data.startswith(TFDS):
            raise DataError(f"--data {settings.data!a}; give tfds:NAME, a set that TFDS prepared")
    if settings.side is not None and name == "digits":
        raise DataError("--side is not for digits, which are images of 8x8")
    asked = [option for option in OF_PLANS if getattr(settings, option) is not None]
    if name not in GENERAL and asked:
        option = asked[0].replace("_", "-")
        raise DataError(
            f"--{option} is not for {name}, which has a plan: --plan.NAME VALUE, as in "
            "--plan.protocol.epochs 5"
        )
    if name not in (*GENERAL, "icifar") and settings.setting is not None:
        raise DataError(f"--setting is not for {name}, which has its own")


def run_strategies(settings: StrategiesRun, run: str, load: Callable[[], Benchmark]) -> Path:
    """Runs what the settings ask for on a benchmark; returns the report's path.

    Args:
      settings: of the run.
      run: its name, of which the folder's is made.
      load: gives the benchmark.

    Raises:
      DataError: as `run_continual`.
    """
    check_methods(settings.methods, METHODS)
    refuse_joined_nets(settings.keep_nets, settings.distributed)
    own = [load_strategy(asked) for asked in settings.strategy]
    if len({each.name for each in own}) < len(own):
        raise DataError("two --strategy of one name; rename one")
    benchmark = load()
    rows = rows_of(benchmark, settings, own)
    refuse_nowhere(benchmark, settings.methods or (), rows)
    folder = RunFolder("continual", run, settings, shared=True, widening=WIDENING)
    folder.tell_plan(plan_in_force(benchmark.plan))
    benchmark = benchmark.opened(folder)
    runner = Runner(
        folder, benchmark, settings.seed, settings.validation_seeds, keep_nets=settings.keep_nets
    )
    outcomes = train_rows(runner, rows, settings.seeds)
    save_outcomes(folder, benchmark, settings.seed, settings.seeds, outcomes)
    draws = settings.seed, settings.seeds, settings.validation_seeds
    summary = report_summary(benchmark, *draws, folder.duration())
    if settings.keep_nets:
        summary.append(NETS_KEPT)
    title = f"Continual learning of {benchmark.name}: {len(rows)} methods"
    first, sections = report_sections(folder.path, benchmark, outcomes, rows)
    return write_report(folder.path, title, summary, sections, first)


def refuse_joined_nets(keep_nets: bool, distributed: str | None) -> None:
    """Refuses to keep nets where several processes train them together.

    Raises:
      DataError: both were asked for.
    """
    if keep_nets and distributed is not None:
        raise DataError("--keep-nets is for runs of one process; leave out --distributed")


def rows_of(
    benchmark: Benchmark, settings: StrategiesRun, own: Sequence[Method] = ()
) -> list[Method]:
    """The methods asked for, in the table's order, naive among them, and the user's own."""
    asked = {*(METHODS if settings.methods is None else settings.methods), "naive"}
    rows = [benchmark.row(method) for name, method in METHODS.items() if name in asked]
    grids = given_hyperparameters(settings.hyperparameters, [*rows, *own])
    rows, own = (
        [row._replace(hyperparameters=grids.get(row.name, row.hyperparameters)) for row in each]
        for each in (rows, own)
    )
    return [*(with_published(rows) if settings.published else rows), *own]


def given_hyperparameters(
    asked: Sequence[str], rows: Sequence[Method]
) -> dict[str, tuple[float, ...]]:
    """Grids of the command line by method, ascending.

    Raises:
      DataError: no NAME=NUMBER,..., a method that is not run or has no hyperparameter, a
        value that is negative or no number.
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


def refuse_nowhere(benchmark: Benchmark, asked: Sequence[str], rows: Sequence[Method]) -> None:
    """Refuses methods that were asked for and make sense in no scenario.

    Raises:
      DataError: which, and why.
    """
    for method in rows:
        reasons = {
            scenario: why_not(method, benchmark.offers(scenario))
            for scenario in benchmark.scenarios
        }
        if method.name in asked and all(reasons.values()):
            told = why_not(method, benchmark.offers("task-incremental")) is None
            way_out = "; give --setting task-incremental" if told else ""
            raise DataError(f"{method.name} {next(iter(reasons.values()))}{way_out}")


def train_rows(runner: Runner, rows: Sequence[Method], seeds: int) -> Outcomes:
    """Every method in every scenario where it makes sense."""
    benchmark = runner.benchmark
    for method in rows:
        # A user's own, before anything is trained.
        if method.version:
            runner.strategy(benchmark.scenarios[0], method)
    runner.tell_size(rows, seeds)
    found: dict[tuple[str, str], Outcome] = {}
    # Scenarios inside: they may share programs, which are let go with their method.
    left = [
        (scenario, method)
        for method in rows
        for scenario in benchmark.scenarios
        if why_not(method, benchmark.offers(scenario)) is None
    ]
    while left:
        # What other processes are at comes last.
        free = (each for each in left if not runner.is_elsewhere(*each, seeds))
        scenario, method = next(free, left[0])
        left.remove((scenario, method))
        outcome = found[scenario, method.name] = runner.outcome(scenario, method, seeds)
        print(
            f"{scenario}, {method.name}: final {benchmark.measure} {outcome.final.mean():.3f}",
            flush=True,
        )
    return {
        scenario: {
            method.name: found[scenario, method.name]
            for method in rows
            if (scenario, method.name) in found
        }
        for scenario in benchmark.scenarios
    }


def save_outcomes(
    folder: RunFolder,
    benchmark: Benchmark,
    seed: int,
    seeds: int,
    outcomes: Outcomes,
    **more: np.ndarray,
) -> None:
    """What `compare` and `export` read, and what else a run has."""
    folder.save_results(
        draws=np.array([_checksum(benchmark, Draw("reported", seed, n)) for n in range(seeds)]),
        data=np.array(benchmark.checksums),
        **{key: np.array(getattr(benchmark, key)) for key in ("measure", "tested")},
        **arrays_of(outcomes),
        **more,
    )


def _checksum(benchmark: Benchmark, draw: Draw) -> int:
    """Of which samples come when, in all scenarios: what seeds number may be another order."""
    sequences = [
        benchmark.sequence(scenario, METHODS["naive"], draw) for scenario in benchmark.scenarios
    ]
    (checksum,) = checksums_of(np.array(checksums_of(*map(np.asarray, jax.tree.leaves(sequences)))))
    return checksum


def arrays_of(outcomes: Outcomes) -> dict[str, np.ndarray]:
    """All of them under names of their own."""
    return {
        f"{scenario}/{name}/{field}": value
        for scenario, by_name in outcomes.items()
        for name, outcome in by_name.items()
        for field, value in outcome.arrays.items()
    }
