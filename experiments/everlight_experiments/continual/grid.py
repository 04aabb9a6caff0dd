"""Every strategy on every benchmark: one table with ranks, one picture.

    everlight continual grid --benchmarks digits core50-nc facts --methods joint EWC ER
    everlight continual grid --benchmarks digits iirc:small \\
        --plan.iirc:small.superclasses 2

Benchmarks, methods, scenarios and seeds can be added to a finished grid: what was trained is read
back.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from jaxtyping import Float
from scipy.stats import rankdata

from everlight_data.errors import DataError
from everlight_experiments.common.cells import dash, spread
from everlight_experiments.common.plan_settings import OPTION, PlannedRun, plan_in_force
from everlight_experiments.common.plots import new_canvas, save
from everlight_experiments.common.report import (
    Column,
    Figure,
    FirstScreen,
    Section,
    Table,
    write_report,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, check_methods, check_name
from everlight_experiments.continual.benchmark import Benchmark
from everlight_experiments.continual.intervals import interval_cell
from everlight_experiments.continual.matrix_scores import forgetting_cell, median_seconds
from everlight_experiments.continual.methods import METHODS, Method
from everlight_experiments.continual.plan import Option, Seeds
from everlight_experiments.continual.report_tables import (
    choices_of,
    hyperparameters_table,
    left_out_table,
)
from everlight_experiments.continual.run import (
    NETS_KEPT,
    arrays_of,
    refuse_joined_nets,
    rows_of,
    train_rows,
)
from everlight_experiments.continual.runner import Outcome, Outcomes, Runner
from everlight_experiments.continual.selection import RULE
from everlight_experiments.continual.table import BENCHMARKS, GENERAL, ContinualRun

PRESETS: tuple[Preset, ...] = ("demo", "small", "paper")
WIDENING = ("benchmarks", "methods", "setting", "seeds", "plan")
"""Settings that say which runs there are, and change none: a plan stands in each unit's facts."""


@dataclasses.dataclass(frozen=True)
class GridRun(PlannedRun):
    """Rank strategies over several benchmarks in one table."""

    plan: tyro.conf.Suppress[dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Settings of a benchmark's plan by both names, as in --plan.iirc:small.superclasses 2; they
    are written to config.json."""
    benchmarks: tuple[str, ...] = ("digits", "core50-ni", "core50-nc", "facts")
    """Names of benchmarks, each with an optional preset of its own, as in icifar:small."""
    methods: tuple[str, ...] | None = ("joint", "EWC", "SI", "ER", "DER++", "nearest mean")
    """Names of methods from the list above, in quotes where they contain spaces. None is all. The
    baseline naive always runs."""
    setting: tuple[Option, ...] | None = None
    """Settings of the image benchmarks and icifar: task-incremental, class-incremental (None is
    this one) or online. Other benchmarks run in their own settings."""
    hyperparameters: tuple[str, ...] = ()
    """Values to try instead of those in the list above, one entry per method, as in EWC=1e2,1e4
    SI=0.1. A single value is used without tuning."""
    seeds: Seeds = 3
    """Number of evaluation seeds per method and benchmark, counted up from --seed."""
    features: str | None = None
    """Features instead of images, as in `continual run`."""
    validation_seeds: Count = 2
    """Number of validation seeds, which select hyper-parameters and are never evaluated. They are
    counted up from --seed + 1000; iirc and CORe50 take their last task orders instead."""
    keep_nets: bool = False
    """Save every trained network after every task, in the folder models/ of the run; the Python
    function `load_net` loads them."""


class Place(NamedTuple):
    """A column of the grid, and a method's cell in it."""

    benchmark: str
    scenario: str

    @property
    def title(self) -> str:
        """For tables and pictures."""
        return f"{self.benchmark}, {self.scenario}"


def run_grid(settings: GridRun) -> Path:
    """Runs it all; returns the report's path.

    Raises:
      DataError: a benchmark, preset or method that there is not, or data that cannot be used.
    """
    check_methods(settings.methods, METHODS)
    refuse_joined_nets(settings.keep_nets, settings.distributed)
    asked = settings_of(settings)
    if not asked:
        raise DataError(f"--benchmarks without a name; there are {', '.join(BENCHMARKS)}")
    # All before the first is trained: one whose data are missing is then known.
    loaded = {name: BENCHMARKS[each.benchmark](each) for name, each in asked.items()}
    folder = RunFolder("continual", "grid", settings, shared=True, widening=WIDENING)
    benchmarks, outcomes = {}, {}
    for name, each in asked.items():
        benchmark = loaded[name].opened(folder)
        rows = rows_of(benchmark, each)
        print(f"{name}: {benchmark.note}{benchmark.counts}", flush=True)
        orders = each.validation_seeds
        runner = Runner(folder, benchmark, each.seed, orders, name, settings.keep_nets)
        outcomes[name] = train_rows(runner, rows, each.seeds)
        benchmarks[name] = benchmark
    folder.tell_plan({name: plan_in_force(each.plan) for name, each in benchmarks.items()})
    folder.save_results(
        **{
            f"{name}/{key}": value
            for name, found in outcomes.items()
            for key, value in arrays_of(found).items()
        }
    )
    names = ["naive", *(METHODS if settings.methods is None else settings.methods)]
    rows = [method for name, method in METHODS.items() if name in names]
    criterion = _criterion(benchmarks)
    summary = [
        *(
            (f"Data: {name}", benchmark.note + benchmark.counts)
            for name, benchmark in benchmarks.items()
        ),
        (
            "Seeds",
            f"{settings.seeds} evaluation seeds; ± is the standard deviation over seeds; each has "
            "its own " + ", ".join(f"{each.draws} ({name})" for name, each in benchmarks.items()),
        ),
        (
            "Selection rule",
            RULE.format(criterion=criterion, draws=settings.validation_seeds, what="data"),
        ),
        *((f"Training: {name}", each.training) for name, each in benchmarks.items()),
        *((f"Selection: {name}", each.chosen) for name, each in benchmarks.items()),
        ("Duration", folder.duration()),
        *([NETS_KEPT] if settings.keep_nets else []),
    ]
    title = f"Continual learning: {len(rows)} methods on {', '.join(benchmarks)}"
    first, sections = _sections(folder.path, benchmarks, outcomes, rows)
    return write_report(folder.path, title, summary, sections, first)


def settings_of(settings: GridRun) -> dict[str, ContinualRun]:
    """Those of every benchmark, by its name in the grid.

    Raises:
      DataError: a benchmark or preset that there is not, or a plan of none of them.
    """
    plans = _plans(settings)
    return {name: _settings(name, settings, plans[name]) for name in settings.benchmarks}


def _plans(settings: GridRun) -> dict[str, dict[str, Any]]:
    """What is given of every benchmark's plan."""
    # As the command line writes names of settings.
    spelt = {name.replace("-", "_"): name for name in settings.benchmarks}
    plans: dict[str, dict[str, Any]] = {name: {} for name in settings.benchmarks}
    for key, value in settings.plan.items():
        benchmark, _, setting = key.partition(".")
        check_name(f"benchmark in this grid for {OPTION}{key}:", benchmark, list(spelt))
        plans[spelt[benchmark]][setting] = value
    return plans


def _settings(name: str, settings: GridRun, plan: Mapping[str, Any]) -> ContinualRun:
    benchmark, colon, preset = name.partition(":")
    check_name("benchmark", benchmark, [each for each in BENCHMARKS if each != "images"])
    if colon:
        check_name("preset", preset, PRESETS)
    return ContinualRun(
        benchmark=benchmark,
        preset=preset or settings.preset,
        seed=settings.seed,
        methods=settings.methods,
        setting=settings.setting if benchmark in (*GENERAL, "icifar") else None,
        hyperparameters=settings.hyperparameters,
        seeds=settings.seeds,
        plan=dict(plan),
        features=settings.features,
        validation_seeds=settings.validation_seeds,
        published=False,
        runs=settings.runs,
    )


def ranks_of(finals: Mapping[str, float]) -> dict[str, float]:
    """Ranks from 1, the greatest first, equals sharing their mean; NaN comes last."""
    values = np.array(list(finals.values()))
    return dict(zip(finals, rankdata(-np.nan_to_num(values, nan=-np.inf)), strict=True))


def _sections(
    path: Path,
    benchmarks: Mapping[str, Benchmark],
    outcomes: Mapping[str, Outcomes],
    rows: Sequence[Method],
) -> tuple[FirstScreen, list[Section]]:
    """Return the first screen and the sections after the summary."""
    columns: dict[Place, Mapping[str, Outcome]] = {
        Place(name, scenario): by_name
        for name, found in outcomes.items()
        for scenario, by_name in found.items()
    }
    ranks = {
        place: ranks_of({name: outcome.final.mean() for name, outcome in by_name.items()})
        for place, by_name in columns.items()
    }
    found = {
        method.name: [ranked[method.name] for ranked in ranks.values() if method.name in ranked]
        for method in rows
    }
    found_on = list(columns.values())
    order = sorted(
        (name for name, own in found.items() if own), key=lambda name: np.mean(found[name])
    )
    table = Table(
        "Final score, mean ± standard deviation over seeds, in each benchmark's own measure. In "
        "brackets: the rank within the column. The mean rank is over the benchmarks where a method "
        "ran.",
        [
            Column("method"),
            *(Column(f"{place.title}: {benchmarks[place.benchmark].measure}") for place in columns),
            Column("mean", "rank"),
            Column("benchmarks", "rank"),
        ],
        [
            [
                name,
                *(
                    score_cell(columns[place].get(name), ranks[place].get(name))
                    for place in columns
                ),
                f"{np.mean(found[name]):.2f}",
                str(len(found[name])),
            ]
            for name in order
        ],
        marks={
            "–": "–: not applicable, see below. Compare mean ranks over equally many benchmarks.",
            "diverged": "Diverged methods have the last rank.",
        },
    )
    forgotten = Table(
        "Forgetting: the drop from a task's best score to its final score, in each benchmark's own "
        "measure. Seconds per run: median over runs, compilation included, on a machine that may "
        "be shared; the sum is over the benchmarks where the method ran.",
        [
            Column("method"),
            *(Column(place.title, "forgetting") for place in columns),
            Column("sum", "seconds per run"),
            Column("benchmarks", "seconds per run"),
        ],
        [
            [
                name,
                *("–" if name not in each else forgetting_cell(each[name]) for each in found_on),
                dash(
                    f"{sum(median_seconds(each[name]) for each in found_on if name in each):,.1f}"
                ),
                str(len(found[name])),
            ]
            for name in order
        ],
        marks={"–": "–: not defined, or not known."},
    )
    picture = _plot(
        path / "grid.png",
        order,
        [place.title for place in columns],
        np.array([[_final(by_name.get(name)) for by_name in columns.values()] for name in order]),
        np.array([[ranked.get(name, np.nan) for ranked in ranks.values()] for name in order]),
    )
    figure = Figure("Mean final scores. Colours: rank within a column.", picture)
    titled = {place.title: by_name for place, by_name in columns.items()}
    offers = {place.title: benchmarks[place.benchmark].offers(place.scenario) for place in columns}
    more = (
        ("Methods not applicable", left_out_table(rows, offers)),
        (
            "Selection of hyper-parameters",
            hyperparameters_table(_criterion(benchmarks), choices_of(titled)),
        ),
    )
    first = FirstScreen(_headline(found, rows), figure, table)
    return first, [
        Section("Forgetting and time", items=[forgotten]),
        *(Section(title, items=[each]) for title, each in more if each.rows),
    ]


def _headline(ranks: Mapping[str, Sequence[float]], rows: Sequence[Method]) -> tuple[str, ...]:
    """Return the question, the method of the best mean rank with its interval, and the baseline.

    Methods compete that ran on the most benchmarks; those with all data at once are references.
    """
    references = {row.name for row in rows if row.anew or row.setting != "incomplete"}
    most = max(map(len, ranks.values()))
    full = [name for name, own in ranks.items() if len(own) == most]
    ranked = [name for name in full if name not in references] or full
    best = min(ranked, key=lambda name: np.mean(ranks[name]))
    among = f"{most} benchmark{'s' * (most > 1)}"
    said = f"{best}, {np.mean(ranks[best]):.2f}"
    if most > 1:
        highest = float(max(max(own, default=1) for own in ranks.values()))
        said = f"{best}, {interval_cell(np.array(ranks[best]), 1.0, highest, 2)}"
    return (
        f"Which continual-learning method has the best mean rank over {among}?",
        f"Best mean rank{', with 95% interval' * (most > 1)}: {said}.",
        f"Baseline, naive: {np.mean(ranks['naive']):.2f}.",
    )


def _criterion(benchmarks: Mapping[str, Benchmark]) -> str:
    """Return what selects hyper-parameters, for each benchmark where they differ."""
    by_name = {name: each.criterion for name, each in benchmarks.items()}
    if len(set(by_name.values())) == 1:
        return next(iter(by_name.values()))
    return " and ".join(f"{criterion} ({name})" for name, criterion in by_name.items())


def _final(outcome: Outcome | None) -> float:
    return np.nan if outcome is None else float(outcome.final.mean())


def score_cell(outcome: Outcome | None, rank: float | None) -> str:
    """Mean, deviation and rank; how many runs diverged, where any did; a dash where none was."""
    if outcome is None:
        return "–"
    gone = np.count_nonzero(outcome.diverged_at[:, 0] >= 0)
    told = f"diverged in {gone} of {len(outcome.final)}" if gone else spread(outcome.final)
    return f"{told} ({rank:g})"


def _plot(
    path: Path,
    methods: Sequence[str],
    columns: Sequence[str],
    finals: Float[np.ndarray, "m c"],
    ranks: Float[np.ndarray, "m c"],
) -> Path:
    """Ranks as colours, scores as numbers."""
    canvas, (axis,) = new_canvas(1, 2.2 + 1.1 * len(columns), 1.6 + 0.3 * len(methods))
    image = axis.imshow(ranks, cmap="viridis_r", aspect="auto")
    axis.grid(False)
    for (row, column), rank in np.ndenumerate(ranks):
        value, dark = finals[row, column], rank > np.nanmax(ranks) / 2
        said = "–" if np.isnan(rank) else "diverged" if np.isnan(value) else f"{value:.2f}"
        axis.text(column, row, said, ha="center", va="center", color="w" if dark else "k")
    axis.set_yticks(range(len(methods)), methods)
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right")
    canvas.colorbar(image, ax=axis, label="rank")
    return save(canvas, path)
