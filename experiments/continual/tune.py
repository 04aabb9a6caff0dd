"""Settings of a benchmark tried on draws that are not reported, so that reports choose nothing.

    python -m experiments continual tune icifar --scale cpu --vary rate=1e-3,3e-3 epochs=5,10

No reported test sample is read for it. Values, methods and scenarios can be added later: what was
trained is read back.
"""

import ast
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from jaxtyping import Float

from data_pipelines.errors import DataError
from everlight.plots import COLORS
from experiments.common.cells import deviation, spread
from experiments.common.plan_settings import PlannedRun
from experiments.common.plots import MARKERS, new_canvas, save
from experiments.common.report import Column, Figure, FirstScreen, Table, write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Count, check_methods, said_in_words
from experiments.continual.benchmark import Benchmark
from experiments.continual.methods import METHODS, Method, why_not
from experiments.continual.plan import Option
from experiments.continual.run import check_benchmark, refuse_nowhere
from experiments.continual.runner import Runner
from experiments.continual.table import BENCHMARKS, ContinualRun

WIDENING = ("vary", "methods", "scenario", "tuning_orders")
"""Settings that say which runs there are, and change none of them."""
RULE = (
    "none of this is reported elsewhere: {criterion} on the validation samples of {draws} draws "
    "({what}) that no report shows, the best strength of methods that have one; the settings "
    "marked are of the greatest mean over the columns, a run that diverges counting as 0"
)


@dataclasses.dataclass(frozen=True)
class TuneRun(PlannedRun):
    """Settings of a benchmark's plan, tried on draws that are not reported."""

    benchmark: tyro.conf.Positional[str] = ""
    """As in `continual run`."""
    vary: tuple[str, ...] = ()
    """Settings of the plan and the values to try, as in rate=.01,.03 protocol.epochs=5,10; all
    combinations are."""
    methods: tuple[str, ...] = ("joint", "ER")
    """Names of the table of methods, each in quotes, that are to agree on the settings."""
    images: Path | None = None
    """Your own, as in `continual run`."""
    data: str | None = None
    """tfds:NAME, as in `continual run`."""
    scenario: tuple[Option, ...] | None = None
    """Of benchmarks that have none of their own, and icifar; None is not told."""
    features: str | None = None
    """In the place of images, as in `continual run`."""
    tuning_orders: Count = 2
    """Unreported draws."""


class Tried(NamedTuple):
    """One combination of settings."""

    changes: Mapping[str, Any]
    """Of the plan, by name."""
    found: Mapping[tuple[str, str], Float[np.ndarray, "draws"]]
    """By scenario and method; 0 where a run diverged."""

    @property
    def label(self) -> str:
        """The settings in words."""
        return said_in_words(self.changes)

    @property
    def mean(self) -> float:
        """Over scenarios, methods and draws."""
        return float(np.mean(list(self.found.values())))


def run_tune(settings: TuneRun) -> Path:
    """Tries every combination; returns the report's path.

    Raises:
      DataError: a benchmark, method, setting or value that there is not, or nothing to vary.
    """
    check_methods(settings.methods, METHODS)
    combinations = list(read_variations(settings.vary))
    first = _settings(settings, combinations[0])
    check_benchmark(first)
    rows = [method for name, method in METHODS.items() if name in settings.methods]
    # Before a folder is made: a value that cannot be is known then.
    loaded = [BENCHMARKS[settings.benchmark](_settings(settings, each)) for each in combinations]
    benchmark = loaded[0]
    refuse_nowhere(benchmark, settings.methods, rows)
    name = f"tune-{settings.benchmark}"
    folder = RunFolder("continual", name, settings, shared=True, widening=WIDENING)
    tried = []
    for changes, changed in zip(combinations, loaded, strict=True):
        part = ", ".join(f"{key}={value}" for key, value in changes.items())
        draws = settings.seed, settings.tuning_orders
        runner = Runner(folder, changed.opened(folder), *draws, part)
        tried.append(Tried(changes, dict(_try_all(runner, map(changed.row, rows)))))
        print(f"{tried[-1].label}: {tried[-1].mean:.3f}", flush=True)
    folder.save_results(
        **{
            f"{each.label}/{scenario}/{method}": values
            for each in tried
            for (scenario, method), values in each.found.items()
        }
    )
    summary = [
        ("Data", benchmark.note + benchmark.counts),
        (
            "Selection rule",
            RULE.format(
                criterion=benchmark.criterion, draws=settings.tuning_orders, what=benchmark.draws
            ),
        ),
        ("Training, but for what is varied", benchmark.training),
        ("Duration", folder.duration()),
    ]
    title = f"Settings of {benchmark.name} on draws that are not reported"
    first = _first_screen(folder.path, benchmark, tried)
    return write_report(folder.path, title, summary, [], first)


def read_variations(asked: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All combinations of NAME=VALUE,..., the last name's values changing fastest.

    Raises:
      DataError: none, a name twice, or what is no list of Python's values.
    """
    if not asked:
        raise DataError("--vary without a setting; give NAME=VALUE,..., as in rate=.01,.03")
    grids: dict[str, list] = {}
    for each in asked:
        name, equals, values = each.partition("=")
        name = name.replace("-", "_")
        try:
            grid = ast.literal_eval(f"[{values}]")
        except (ValueError, SyntaxError):
            grid = []
        if not (name and equals and grid):
            raise DataError(f"--vary {each!a}; give NAME=VALUE,..., as in rate=.01,.03")
        if name in grids:
            raise DataError(f"--vary has {name} twice; give all its values at once")
        grids[name] = grid
    for combination in itertools.product(*grids.values()):
        yield dict(zip(grids, combination, strict=True))


def _settings(settings: TuneRun, changes: Mapping[str, Any]) -> ContinualRun:
    same = ("benchmark", "images", "data", "scenario", "features", "tuning_orders")
    own = {name: getattr(settings, name) for name in (*same, "scale", "seed", "runs")}
    return ContinualRun(**own, seeds=1, plan={**settings.plan, **changes})


def _try_all(
    runner: Runner, rows: Iterable[Method]
) -> Iterator[tuple[tuple[str, str], Float[np.ndarray, "draws"]]]:
    """By scenario and method, of its best strength."""
    for method in rows:
        for scenario in runner.benchmark.scenarios:
            if why_not(method, runner.benchmark.offers(scenario)) is None:
                found = np.nan_to_num(runner.on_unreported(scenario, method))
                yield (scenario, method.name), found[np.argmax(found.mean(axis=1))]


def _first_screen(folder: Path, benchmark: Benchmark, tried: Sequence[Tried]) -> FirstScreen:
    columns = list(tried[0].found)
    ranked = sorted(range(len(tried)), key=lambda place: -tried[place].mean)
    table = Table(
        f"{benchmark.criterion} on validation samples, mean ± standard deviation over draws.",
        [
            Column("settings"),
            *(Column(method, scenario) for scenario, method in columns),
            Column("mean"),
        ],
        [
            [each.label, *(spread(each.found[column]) for column in columns), f"{each.mean:.3f}"]
            for each in tried
        ],
        frozenset(ranked[:1]),
    )
    best, *others = (tried[place] for place in ranked)
    sentence = f"Best is {best.label}: {best.mean:.3f} in the mean over methods and scenarios"
    if others:
        sentence += f"; next {others[0].label}: {others[0].mean:.3f}"
    caption = f"{benchmark.criterion} by setting; bars are standard deviations over draws."
    picture = _plot(folder / "tried.png", benchmark, tried)
    return FirstScreen(f"{sentence}.", Figure(caption, picture), table)


def _plot(path: Path, benchmark: Benchmark, tried: Sequence[Tried]) -> Path:
    canvas, (axis,) = new_canvas(1, 3.0 + 0.7 * len(tried), 4.2)
    places = np.arange(len(tried))
    columns = list(tried[0].found)
    for number, column in enumerate(columns):
        scenario, method = column
        values = [each.found[column] for each in tried]
        axis.errorbar(
            places + 0.06 * (number - (len(columns) - 1) / 2),
            [each.mean() for each in values],
            np.nan_to_num([deviation(each) for each in values]),
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number // len(COLORS) % len(MARKERS)],
            capsize=3,
            label=f"{method}, {scenario}",
        )
    axis.set_xticks(places, [each.label for each in tried], rotation=20, ha="right")
    axis.set_ylabel(benchmark.criterion)
    canvas.legend(loc="outside right upper")
    return save(canvas, path)
