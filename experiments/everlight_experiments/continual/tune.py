"""Settings of a benchmark tried on the draws that choose hyperparameters, which reports leave out.

    everlight continual tune icifar --preset small \\
        --vary learning-rate=1e-3,3e-3 hidden=64,128

No test sample of a reported draw is judged. What was trained is read back: the same command with
more values, methods or scenarios trains those alone.
"""

import ast
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import tyro
from jaxtyping import Float

from everlight.checks import Between
from everlight.plots import COLORS
from everlight_data.errors import DataError
from everlight_experiments.common.cells import deviation, spread
from everlight_experiments.common.compilation import release_programs
from everlight_experiments.common.plan_settings import (
    OPTION,
    PlannedRun,
    changed_plan,
    plan_in_force,
)
from everlight_experiments.common.plots import MARKERS, new_canvas, save
from everlight_experiments.common.report import (
    Column,
    Figure,
    FirstScreen,
    Section,
    Table,
    write_report,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, check_methods
from everlight_experiments.continual.benchmark import Benchmark
from everlight_experiments.continual.intervals import paired_interval
from everlight_experiments.continual.methods import METHODS, Method, why_not
from everlight_experiments.continual.plan import Option
from everlight_experiments.continual.report_tables import hyperparameters_table
from everlight_experiments.continual.run import check_benchmark, refuse_nowhere
from everlight_experiments.continual.runner import Runner
from everlight_experiments.continual.selection import (
    Choice,
    choose_hyperparameter,
    fixed_hyperparameter,
    not_told_from,
)
from everlight_experiments.continual.table import BENCHMARKS, ContinualRun, Side

WIDENING = ("vary", "methods", "setting", "validation_seeds")
"""Settings that say which runs there are, and change none of them."""
VARY = "--vary "
T = TypeVar("T")
RULE = (
    "{criterion} on the validation samples of the {draws} validation seeds (each with its own "
    "{what}), which `continual run --seeds {seeds}` does not report; each method has its best "
    "hyper-parameter there; the best configuration has the greatest mean over columns, a diverged "
    "run counting as 0; configurations within one standard error over seeds are statistically tied "
    "with it"
)


@dataclasses.dataclass(frozen=True)
class TuneRun(PlannedRun):
    """Grid-search configuration values on validation seeds."""

    benchmark: tyro.conf.Positional[str] = ""
    """Name of the benchmark, as in `continual run`."""
    vary: tuple[str, ...] = ()
    """Values of plan settings to combine, joined by commas, as in learning-rate=0.01,0.03
    protocol.epochs=5,10."""
    methods: tuple[str, ...] = ("joint", "ER")
    """Names of the methods over which scores are averaged, from the list above, in quotes where
    they contain spaces."""
    images: Path | None = None
    """Path of your own images, as in `continual run`."""
    data: str | None = None
    """Image set prepared by TFDS, tfds:NAME, as in `continual run`."""
    side: Side | None = None
    """Side of the images in pixels, as in `continual run`."""
    test_every: Annotated[int, Between(2, 1000)] = 5
    """Every N-th image of each class of your own images is a test image."""
    setting: tuple[Option, ...] | None = None
    """Settings of the image benchmarks and icifar: task-incremental, class-incremental (None is
    this one) or online. Other benchmarks run in their own settings."""
    features: str | None = None
    """Features instead of images, as in `continual run`."""
    validation_seeds: Count = 2
    """Number of validation seeds on which every combination runs, counted up from --seed + 1000;
    iirc and CORe50 take their last task orders instead."""


class Place(NamedTuple):
    """A column of the table."""

    scenario: str
    method: str


class Tried(NamedTuple):
    """One combination of settings."""

    changes: Mapping[str, Any]
    """Of the plan, by name."""
    training: str
    """In words, with the changes."""
    found: Mapping[Place, Float[np.ndarray, "draws"]]
    """Of the best hyperparameter, where a method has several; NaN where a run diverged."""
    choices: Mapping[Place, Choice]

    @property
    def label(self) -> str:
        """The settings as they are given."""
        return label_of(self.changes)

    @property
    def by_draw(self) -> Float[np.ndarray, "draws"]:
        """Means over columns; what diverged counts as 0."""
        return np.mean([np.nan_to_num(each) for each in self.found.values()], axis=0)


def run_tune(settings: TuneRun) -> Path:
    """Tries every combination; returns the report's path.

    Raises:
      DataError: a benchmark, method, setting or value that there is not, or nothing to vary;
        settings that change what is learnt from, which methods make sense, or nothing.
    """
    check_methods(settings.methods, METHODS)
    combinations = list(read_variations(settings.vary, settings.plan))
    first = _settings(settings, combinations[0])
    check_benchmark(first)
    benchmark = _named(lambda: BENCHMARKS[settings.benchmark](first))
    # All before the first is trained: a value that cannot be is known then.
    for changes in combinations[1:]:
        _named(lambda changes=changes: changed_plan(benchmark.plan, changes))
    rows = [method for name, method in METHODS.items() if name in settings.methods]
    refuse_nowhere(benchmark, settings.methods, rows)
    name = f"tune-{settings.benchmark}"
    folder = RunFolder("continual", name, settings, shared=True, widening=WIDENING)
    folder.tell_plan(plan_in_force(benchmark.plan))
    print(f"{len(combinations)} × {_runs_of(benchmark, rows, settings)} runs", flush=True)
    tried, seen = [], {}
    for changes in combinations:
        asked = _settings(settings, changes)
        changed = _named(lambda asked=asked: BENCHMARKS[settings.benchmark](asked))
        _refuse_others(benchmark, changed, label_of(changes))
        changed = changed.opened(folder)
        _refuse_repeated(changed, rows, label_of(changes), seen)
        draws = settings.seed, settings.validation_seeds
        runner = Runner(folder, changed, *draws, label_of(sorted_by_name(changes)))
        tried.append(_try_all(runner, changes, rows))
        print(f"{tried[-1].label}: {tried[-1].by_draw.mean():.3f}", flush=True)
        release_programs()
    folder.save_results(
        **{
            f"{each.label}/{place.scenario}/{place.method}": values
            for each in tried
            for place, values in each.found.items()
        }
    )
    return _report(folder, settings, benchmark, tried)


def _report(
    folder: RunFolder, settings: TuneRun, benchmark: Benchmark, tried: Sequence[Tried]
) -> Path:
    best, near = ranked(tried)
    rule = RULE.format(
        criterion=benchmark.criterion,
        draws=settings.validation_seeds,
        what=benchmark.draws,
        seeds=_settings(settings, {}).seeds,
    )
    summary = [
        ("Data", benchmark.note + benchmark.counts),
        ("Selection rule", rule),
        ("Training with the best", tried[best].training),
        ("Command for the best", run_command(settings, tried[best].changes)),
        ("Duration", folder.duration()),
    ]
    title = f"Grid search of {benchmark.name} on validation seeds"
    first = _first_screen(folder.path, benchmark, tried, best, near)
    return write_report(folder.path, title, summary, _hyperparameters(benchmark, tried), first)


def _runs_of(benchmark: Benchmark, rows: Sequence[Method], settings: TuneRun) -> int:
    """Of each combination."""
    return sum(
        settings.validation_seeds * max(len(benchmark.row(method).hyperparameters), 1)
        for method in rows
        for scenario in benchmark.scenarios
        if why_not(method, benchmark.offers(scenario)) is None
    )


def read_variations(asked: Sequence[str], plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of NAME=VALUE,..., the last name's values changing fastest.

    Args:
      asked: of the command line.
      plan: settings that are given in another way.

    Raises:
      DataError: none, no list of values, a name or a value twice, or a name that is given too.
    """
    if not asked:
        raise DataError(
            "--vary without a setting; give NAME=VALUE,..., as in learning-rate=0.01,0.03"
        )
    grids: dict[str, list] = {}
    for each in asked:
        name, equals, text = each.partition("=")
        name = name.replace("-", "_")
        if not (name and equals and text):
            raise DataError(
                f"--vary {each!a}; give NAME=VALUE,... with commas and no spaces, as in "
                "learning-rate=0.01,0.03"
            )
        if name in grids or name in plan:
            other = f"{OPTION}{name}" if name in plan else "it already"
            raise DataError(f"--vary has {name}, and {other} is given; give all its values at once")
        grids[name] = _values(text)
        if len(set(map(repr, grids[name]))) < len(grids[name]):
            raise DataError(f"--vary {each!a} has a value twice")
    for combination in itertools.product(*grids.values()):
        yield dict(zip(grids, combination, strict=True))


def sorted_by_name(changes: Mapping[str, Any]) -> dict[str, Any]:
    """So that the order in which they are given starts nothing anew."""
    return dict(sorted(changes.items()))


def label_of(changes: Mapping[str, Any]) -> str:
    """Settings as they are given, told from any others."""
    return ", ".join(f"{name}={value!r}" for name, value in changes.items())


def ranked(tried: Sequence[Tried]) -> tuple[int, list[int]]:
    """Which is best, and which others the draws do not tell from it.

    Raises:
      DataError: every run diverged.
    """
    if all(np.isnan(values).all() for each in tried for values in each.found.values()):
        raise DataError("every run diverged and none is best; give smaller learning rates")
    by_draw = np.stack([each.by_draw for each in tried])
    best = int(np.argmax(by_draw.mean(axis=1)))
    return best, [place for place in np.flatnonzero(not_told_from(best, by_draw)) if place != best]


def run_command(settings: TuneRun, changes: Mapping[str, Any]) -> str:
    """The command that trains by these settings."""
    given = {**settings.plan, **changes}
    options = [
        f"{OPTION}{name.replace('_', '-')} {_written(value)}" for name, value in given.items()
    ]
    return " ".join(
        [f"continual run {settings.benchmark} --preset {settings.preset}", *options, "..."]
    )


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _values(text: str) -> list:
    """Python's values, or texts, that commas join."""
    try:
        return ast.literal_eval(f"[{text}]")
    except (ValueError, SyntaxError):
        return text.split(",")


def _settings(settings: TuneRun, changes: Mapping[str, Any]) -> ContinualRun:
    own = {field.name: getattr(settings, field.name) for field in dataclasses.fields(TuneRun)}
    for other in ("vary", "methods", "plan"):
        del own[other]
    return ContinualRun(**own, plan={**settings.plan, **changes})


def _named(make: Callable[[], T]) -> T:
    """What it makes; what it refuses is named as it was given."""
    try:
        return make()
    except DataError as error:
        raise DataError(str(error).replace(OPTION, VARY)) from error
    except ValueError as error:
        raise DataError(f"--vary or {OPTION}...: {error}") from error


def _refuse_others(first: Benchmark, changed: Benchmark, label: str) -> None:
    """Refuses settings with which scores are of something else.

    Raises:
      DataError: which.
    """
    if (changed.note, changed.counts) != (first.note, first.counts):
        raise DataError(
            f"{VARY}{label} changes the data ({changed.note}{changed.counts}), so that "
            "scores cannot be compared; give it as --plan"
        )
    offers = [{name: each.offers(name) for name in each.scenarios} for each in (first, changed)]
    if offers[0] != offers[1]:
        raise DataError(f"{VARY}{label} changes which methods apply; run them separately")


def _refuse_repeated(
    changed: Benchmark, rows: Sequence[Method], label: str, seen: dict[str, str]
) -> None:
    """Refuses settings that train what others did.

    Raises:
      DataError: which.
    """
    facts = repr([changed.facts(name, row) for name in changed.scenarios for row in rows])
    if facts in seen:
        raise DataError(f"{VARY}{label} trains what {seen[facts]} does: it changes nothing here")
    seen[facts] = label


def _try_all(runner: Runner, changes: Mapping[str, Any], rows: Sequence[Method]) -> Tried:
    found, choices = {}, {}
    for method in map(runner.benchmark.row, rows):
        for scenario in runner.benchmark.scenarios:
            if why_not(method, runner.benchmark.offers(scenario)) is None:
                values, place = runner.on_unreported(scenario, method), Place(scenario, method.name)
                several = len(method.hyperparameters) > 1
                choice = (
                    choose_hyperparameter(method.hyperparameters, values)
                    if several
                    else fixed_hyperparameter()
                )
                row = method.hyperparameters.index(choice.hyperparameter) if several else 0
                found[place], choices[place] = values[row], choice
    return Tried(changes, runner.benchmark.training, found, choices)


def _first_screen(
    folder: Path, benchmark: Benchmark, tried: Sequence[Tried], best: int, near: Sequence[int]
) -> FirstScreen:
    columns = list(tried[0].found)
    table = Table(
        f"{benchmark.criterion} on validation samples, mean ± standard deviation over seeds.",
        [
            Column("settings"),
            *(Column(place.method, place.scenario) for place in columns),
            Column("mean"),
            Column("below the best", "paired by validation seed"),
        ],
        [
            [
                each.label,
                *(_cell(each.found[place]) for place in columns),
                f"{each.by_draw.mean():.3f}",
                "best" if number == best else spread(tried[best].by_draw - each.by_draw),
            ]
            for number, each in enumerate(tried)
        ],
        frozenset([best]),
    )
    mean, half = paired_interval(tried[best].by_draw)
    interval = "" if np.isnan(half) else f" [{mean - half:.3f}, {mean + half:.3f}]"
    said = [
        f"Which configuration has the highest {benchmark.criterion} on validation seeds?",
        f"Best, with 95% interval: {tried[best].label}, {mean:.3f}{interval}.",
    ]
    if best:
        said.append(f"Baseline, the first: {tried[0].label}, {tried[0].by_draw.mean():.3f}.")
    below = []
    if near:
        tied = "; ".join(tried[number].label for number in near)
        below.append(f"Settings statistically tied with the best: {tied}.")
    edges = _edges(tried, best)
    if edges:
        below.append(f"At the edge of the grid: {', '.join(edges)}.")
    caption = (
        f"{benchmark.criterion} on validation samples; bars are one standard deviation over "
        "validation seeds."
    )
    picture = _plot(folder / "tried.png", benchmark, tried, best)
    return FirstScreen(tuple(said), Figure(caption, picture), table, tuple(below))


def _edges(tried: Sequence[Tried], best: int) -> list[str]:
    """Numbers of which the best is the least or greatest of several."""
    found = []
    for name, value in tried[best].changes.items():
        values = {each.changes[name] for each in tried}
        numbers = all(
            isinstance(each, (int, float)) and not isinstance(each, bool) for each in values
        )
        if numbers and len(values) > 1 and value in (min(values), max(values)):
            found.append(name)
    return found


def _hyperparameters(benchmark: Benchmark, tried: Sequence[Tried]) -> list[Section]:
    choices: dict[str, dict[str, Choice]] = {}
    for each in tried:
        for place, choice in each.choices.items():
            choices.setdefault(f"{place.scenario}, {each.label}", {})[place.method] = choice
    table = hyperparameters_table(benchmark.criterion, choices)
    return [Section("Hyper-parameters", items=[table])] if table.rows else []


def _cell(values: Float[np.ndarray, "draws"]) -> str:
    gone = np.count_nonzero(np.isnan(values))
    return f"diverged in {gone} of {len(values)}" if gone else spread(values)


def _plot(path: Path, benchmark: Benchmark, tried: Sequence[Tried], best: int) -> Path:
    columns = list(tried[0].found)
    canvas, (axis,) = new_canvas(1, 8.0, 1.6 + 0.42 * len(tried))
    places = np.arange(len(tried))
    for number, column in enumerate(columns):
        values = [each.found[column] for each in tried]
        shift = 0.5 * ((number + 0.5) / len(columns) - 0.5)
        axis.errorbar(
            [each.mean() for each in values],
            places + shift,
            xerr=[deviation(each) for each in values] if len(values[0]) > 1 else None,
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number // len(COLORS) % len(MARKERS)],
            linestyle="none",
            capsize=3,
            label=f"{column.method}, {column.scenario}",
        )
    names = [each.label for each in tried]
    names[best] += " (best)"
    axis.set_yticks(places, names)
    axis.set_ylim(len(tried) - 0.5, -0.5)
    axis.set_xlabel(f"{benchmark.criterion}, on validation samples")
    canvas.legend(loc="outside upper right", ncols=min(len(columns), 3))
    return save(canvas, path)
