"""The one report of strategies on a benchmark, and what papers' reports take from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from everlight.continual.registry import METHODS, Method
from everlight_experiments.common.cells import deviation, interval_cell, spread
from everlight_experiments.common.plots import curves_left_out, plot_curves, plot_matrices
from everlight_experiments.common.report import Column, Figure, FirstScreen, Section, Table
from everlight_experiments.continual.benchmark import Benchmark, Benchmarks
from everlight_experiments.continual.definitions import PUBLISHED, SCORES
from everlight_experiments.continual.matrix_scores import (
    drawn_matrix,
    forgetting_cell,
    why_white,
)
from everlight_experiments.continual.outcome import Outcome, Outcomes
from everlight_experiments.continual.report_metrics import metric_items
from everlight_experiments.continual.report_tables import (
    NOTHING_PUBLISHED,
    Published,
    choices_of,
    costs_table,
    criteria_tables,
    expected_table,
    hyperparameters_table,
    left_out_table,
    own_table,
    paired_differences,
    scores_table,
    settings_table,
)
from everlight_experiments.continual.selection import RULE

_MEANING = {
    "task-incremental": "Task-incremental: the task identity is given at test, and every task has "
    "its own head.",
    "class-incremental": "Class-incremental: one head has all classes seen so far.",
    "online": "Online: class-incremental in one pass over a stream, with task boundaries given to "
    "methods that need them.",
}


def report_summary(
    benchmark: Benchmark, seed: int, seeds: int, rule: int | str, duration: str
) -> list[tuple[str, str]]:
    """The facts that every report owes.

    Args:
      benchmark: that was learnt.
      seed, seeds: the first, and how many.
      rule: the selection rule, or the number of validation seeds for the common rule.
      duration: of the run.
    """
    what = benchmark.draws
    if isinstance(rule, int):
        rule = RULE.format(criterion=benchmark.criterion_words, draws=rule, what=what)
    return [
        ("Data", benchmark.note + benchmark.counts),
        (
            "Seeds",
            f"{seeds} evaluation seeds ({seed} to {seed + seeds - 1}), each with its own {what}; ± "
            "is the standard deviation over seeds",
        ),
        ("Selection rule", rule),
        ("Selection of network and training", benchmark.chosen),
        ("Training", benchmark.training),
        ("Duration", duration),
    ]


def report_sections(
    folder: Path,
    benchmarks: Benchmarks,
    outcomes: Outcomes,
    rows: Sequence[Method],
    published: Published = NOTHING_PUBLISHED,
) -> tuple[FirstScreen, list[Section]]:
    """Return the first screen and the sections between the summary and the settings.

    Args:
      folder: where pictures go.
      benchmarks: by column.
      outcomes: by column and method.
      rows: all methods, also those that do not apply somewhere.
      published: a paper's numbers.
    """
    benchmark = next(iter(benchmarks.values()))
    offers = {column: each.capabilities for column, each in benchmarks.items()}
    sections = [
        *_overview(outcomes),
        *(
            _column(folder, benchmarks[column], column, by_name, _naive(rows), published)
            for column, by_name in outcomes.items()
        ),
        *(
            Section(title, [], [table])
            for title, table in (
                ("Arguments of the methods", settings_table(outcomes)),
                ("Your own strategy against the others", own_table(outcomes, rows)),
                ("Orders expected from the literature", expected_table(outcomes)),
                (
                    "Selection of hyper-parameters",
                    hyperparameters_table(benchmark.criterion_words, choices_of(outcomes)),
                ),
                ("Methods not applicable here", left_out_table(rows, offers)),
            )
            if table.rows
        ),
        *benchmark.sections(folder),
    ]
    return _first_screen(folder, benchmark, outcomes, rows, published), sections


def _naive(rows: Sequence[Method]) -> str:
    """Return the name of plain finetuning in this report; empty without it."""
    return next((row.name for row in rows if row.made == METHODS["naive"].made), "")


def _first_screen(
    folder: Path,
    benchmark: Benchmark,
    outcomes: Outcomes,
    rows: Sequence[Method],
    published: Published,
) -> FirstScreen:
    run = {column: by_name for column, by_name in outcomes.items() if by_name}
    naive = _naive(rows)
    at_once = {row.name for row in rows if row.made == METHODS["joint"].made}
    curves = {
        column: {
            name: outcome.over_time[:, -1:] if name in at_once else outcome.over_time
            for name, outcome in by_name.items()
        }
        for column, by_name in outcomes.items()
    }
    picture = plot_curves(
        folder / "accuracy_over_time.png",
        curves,
        f"{benchmark.score} on {benchmark.tested}",
        order=[row.name for row in rows],
        published=published.curves,
        paper=published.name,
        rows=1 if len(curves) < 4 else 2,
        baseline=naive,
    )
    level = " Level line: joint training on all tasks." if at_once else ""
    dashed = f" Dashed: {published.name}." if published.curves else ""
    caption = (
        f"{sentence(benchmark.score)} on {benchmark.tested}, mean over seeds; bands are one "
        f"standard deviation.{level}{dashed}{curves_left_out(curves, naive)}"
    )
    return FirstScreen(
        _headline(benchmark, run, rows),
        Figure(caption, picture),
        _finals(benchmark, outcomes),
        tuple(_sentence(benchmark, column, by_name, rows) for column, by_name in run.items()),
    )


def _headline(benchmark: Benchmark, outcomes: Outcomes, rows: Sequence[Method]) -> tuple[str, ...]:
    """Return the question, the best method with its interval, and the baseline."""
    measure, naive = benchmark.score, _naive(rows)
    question = f"Which method has the highest final {measure} after the last task?"
    best = [
        f"{ranked[0]} {interval_cell(by_name[ranked[0]].final)} ({column})"
        for column, by_name in outcomes.items()
        if (ranked := ranked_methods(by_name, rows))
    ]
    baseline = [
        f"{spread(by_name[naive].final)} ({column})"
        for column, by_name in outcomes.items()
        if naive in by_name
    ]
    said = [question, f"Best, with 95% interval: {'; '.join(best) or 'none, all diverged'}."]
    if baseline:
        said.append(f"Baseline, {naive}: {'; '.join(baseline)}.")
    return tuple(said)


def ranked_methods(by_name: Mapping[str, Outcome], rows: Sequence[Method]) -> list[str]:
    """Return sequential methods from the best; references only where there is no other.

    A diverged method is last; where every method diverged, none is returned.
    """
    references = {row.name for row in rows if row.anew or row.setting != "incomplete"}
    finals = {name: each.final.mean() for name, each in by_name.items()}
    if np.isnan(list(finals.values())).all():
        return []
    # As in a grid's ranks, what diverged is last.
    finals = {name: -np.inf if np.isnan(final) else final for name, final in finals.items()}
    sequential = [name for name in finals if name not in references] or list(finals)
    return sorted(sequential, key=lambda name: -finals[name])


def _sentence(
    benchmark: Benchmark, column: str, by_name: Mapping[str, Outcome], rows: Sequence[Method]
) -> str:
    """Return the best sequential method of a column, its runner-up and the references."""
    ranked = ranked_methods(by_name, rows)
    if not ranked:
        return f"{sentence(column)}: every method has a diverged run and none is ranked."
    best, *_ = ranked
    made = {row.name: row.made for row in rows}
    # A method's other hyperparameter is no other method.
    second = next((name for name in ranked if made[name] != made[best]), None)
    references = {row.name for row in rows if row.anew or row.setting != "incomplete"}
    others = [
        f"{name} {spread(by_name[name].final)}"
        for name in dict.fromkeys((_naive(rows), *by_name))
        if name not in (best, second)
        and name in by_name
        and (name in references or name == _naive(rows))
    ]
    beside = f" References: {', '.join(others)}." if others else ""
    which = "the" if len(by_name) > 1 else "a"
    among = "highest final" if len(by_name) > 1 else "final"
    ahead = "" if second is None else _ahead(by_name[best], second, by_name[second])
    return (
        f"{sentence(column)}: {best} has {which} {among} {benchmark.score} of "
        f"{spread(by_name[best].final)}.{ahead}{beside}"
    )


def _ahead(best: Outcome, second: str, other: Outcome) -> str:
    """Return the runner-up's score and the paired difference from the best."""
    difference = paired_differences(best, other)
    said = f" Second is {second} with {spread(other.final)}"
    if np.isnan(difference).any():
        return f"{said}."
    if len(difference) < 2:
        return f"{said} (one seed)."
    if not difference.any():
        return f"{said} (equal on every seed)."
    larger = abs(difference.mean()) > deviation(difference)
    return (
        f"{said} (paired difference {spread(difference, '+')}, "
        f"{'more' if larger else 'no more'} than its standard deviation)."
    )


def _finals(benchmark: Benchmark, outcomes: Outcomes) -> Table:
    columns, rows = [Column("method")], []
    for column in outcomes:
        columns += [
            Column(f"final {benchmark.score}", column),
            Column("forgetting", column, SCORES["forgetting"].format(measure=benchmark.score)),
        ]
    for name in dict.fromkeys(name for by_name in outcomes.values() for name in by_name):
        row = [name]
        for by_name in outcomes.values():
            outcome = by_name.get(name)
            row += (
                ["–"] * 2 if outcome is None else [spread(outcome.final), forgetting_cell(outcome)]
            )
        rows.append(row)
    caption = (
        f"{sentence(benchmark.note)}. Mean ± standard deviation over seeds, after the last task, "
        "on all tasks."
    )
    return Table(caption, columns, rows, marks=PUBLISHED)


def _overview(outcomes: Outcomes) -> list[Section]:
    """Return the section on settings and diverged runs; none where nothing is to be said."""
    gone = [
        f"{name}, {column}: {outcome.diverged} of {len(outcome.matrices)} runs"
        for column, by_name in outcomes.items()
        for name, outcome in by_name.items()
        if outcome.diverged
    ]
    said = [" ".join(_MEANING[column] for column in outcomes if column in _MEANING)]
    if any("joint" in by_name for by_name in outcomes.values()):
        said.append("Method joint trains once, on all tasks together, at the last task.")
    if gone:
        said.append(
            f"Diverged runs, shown as nan: {'; '.join(gone)}. A lower learning rate may help."
        )
    said = [each for each in said if each]
    return [Section("Settings of continual learning", said)] if said else []


def _column(
    folder: Path,
    benchmark: Benchmark,
    column: str,
    by_name: Mapping[str, Outcome],
    naive: str,
    published: Published,
) -> Section:
    matrices = {name: drawn_matrix(outcome) for name, outcome in by_name.items()}
    path = folder / f"matrices_{column.replace(', ', '_').replace(' ', '_')}.png"
    items = [
        scores_table(benchmark, by_name, naive),
        *criteria_tables(by_name, naive, published, column),
        *metric_items(folder, column, benchmark, by_name),
        Figure(
            f"{sentence(benchmark.score)}, mean over seeds: after learning the task of the row, "
            f"on the test data of the task of the column.{why_white(by_name.values())}",
            plot_matrices(path, matrices, benchmark.score),
        ),
        costs_table(by_name),
    ]
    return Section(sentence(column), [], items)


def sentence(name: str) -> str:
    """A name as it begins a sentence."""
    return name[:1].upper() + name[1:]
