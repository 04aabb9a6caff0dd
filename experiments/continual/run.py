"""Any strategies on any benchmark, and on a user's own images.

    python -m experiments continual run digits --methods EWC ER
    python -m experiments continual run images --images FOLDER --tasks 5

Seeds, methods and scenarios can be added to a finished run: what was trained is read back.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from data_pipelines.errors import DataError
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import check_methods, check_name
from experiments.continual.benchmark import BENCHMARKS, TFDS, Benchmark, ContinualRun
from experiments.continual.features import load_on_features
from experiments.continual.methods import METHODS, Method, Scenario
from experiments.continual.own_strategy import load_strategy
from experiments.continual.plan import OPTIONS, WIDENING, StrategiesRun
from experiments.continual.report import report_sections, report_summary
from experiments.continual.runner import Outcome, Runner, rows_of


def run_continual(settings: ContinualRun) -> Path:
    """Runs it all; returns the report's path.

    Raises:
      DataError: a benchmark or method that there is not; data, settings or a strategy that cannot
        be used.
    """
    check_name("benchmark", settings.benchmark, list(BENCHMARKS))
    if settings.images is not None and settings.benchmark != "images":
        raise DataError(f"--images is for the benchmark 'images', not {settings.benchmark!r}")
    if settings.data is not None:
        if settings.benchmark != "images" or settings.images is not None:
            raise DataError("--data is for the benchmark 'images', in place of --images")
        if not settings.data.startswith(TFDS):
            raise DataError(f"--data {settings.data!a}; give tfds:NAME, a set that TFDS prepared")
    if settings.side is not None and settings.benchmark == "digits":
        raise DataError("--side is not for digits, which are images of 8x8")
    load = BENCHMARKS[settings.benchmark] if settings.features is None else load_on_features
    return run_strategies(settings, f"run-{settings.benchmark}", lambda: load(settings))


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
    own = [load_strategy(asked) for asked in settings.strategy]
    if len({each.name for each in own}) < len(own):
        raise DataError("two --strategy of one name; rename one")
    rows = rows_of(settings, own)
    _refuse_nowhere(settings, rows)
    benchmark = load()
    rows = _with_layers(settings, rows, benchmark)
    folder = RunFolder("continual", run, settings, shared=True, widening=WIDENING)
    runner = Runner(folder, benchmark, settings, own)
    for each in own:
        runner.strategy(settings.scenarios[0], each.method)
    outcomes: dict[Scenario, dict[str, Outcome]] = {}
    for scenario in settings.scenarios:
        outcomes[scenario] = {}
        for name, method in rows.items():
            if scenario in method.scenarios:
                outcome = runner.outcome(scenario, name, method)
                outcomes[scenario][name] = outcome
                print(f"{scenario}, {name}: {outcome.final.mean():.3f} in the end", flush=True)
    orders = settings.seed + np.arange(settings.seeds)
    folder.save_results(
        orders=orders,
        data=np.array(benchmark.checksums),
        **{
            f"{scenario}/{name}/{field}": value
            for scenario, by_name in outcomes.items()
            for name, outcome in by_name.items()
            for field, value in outcome.arrays.items()
        },
    )
    summary = report_summary(benchmark, settings, folder.duration())
    title = f"Continual learning of {benchmark.images.name}: {len(rows)} methods"
    return write_report(
        folder.path, title, summary, report_sections(folder.path, benchmark, outcomes)
    )


def _with_layers(
    settings: StrategiesRun, rows: dict[str, Method], benchmark: Benchmark
) -> dict[str, Method]:
    """The rows but for those that need hidden layers, where the benchmark's net has none."""
    if benchmark.layers:
        return rows
    for name in settings.methods or ():
        if rows[name].hidden:
            raise DataError(f"{name} needs hidden layers, and a head on features has none")
    return {name: method for name, method in rows.items() if not method.hidden}


def _refuse_nowhere(settings: StrategiesRun, rows: dict[str, Method]) -> None:
    for name in settings.methods or ():
        possible = rows[name].scenarios
        if not set(possible) & set(settings.scenarios):
            options = " ".join(option for option in OPTIONS if OPTIONS[option] in possible)
            raise DataError(f"{name} makes sense only with --scenario {options}")
