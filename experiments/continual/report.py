"""The one report of strategies on a benchmark, and what papers' reports take from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.common.cells import deviation, spread
from experiments.common.plots import plot_curves, plot_matrices
from experiments.common.report import Column, Figure, FirstScreen, Section, Table
from experiments.continual.benchmark import Benchmark
from experiments.continual.methods import METHODS, Method
from experiments.continual.plots import plot_finals
from experiments.continual.report_tables import (
    NOTHING_PUBLISHED,
    Published,
    choices_of,
    class_types_tables,
    costs_table,
    criteria_tables,
    expected_table,
    forgetting_cell,
    hyperparameters_table,
    left_out_table,
    own_table,
    paired_differences,
    scores_table,
    settings_table,
)
from experiments.continual.runner import Outcome, Outcomes
from experiments.continual.selection import RULE

_MEANING = {
    "task-incremental": "Told: every task has a head of its own, and the test tells the task.",
    "class-incremental": "Not told: one head over all classes seen so far.",
    "online": "Online: not told, and every sample comes once; strategies that need to know where a "
    "task ends are told.",
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
        rule = RULE.format(criterion=benchmark.criterion, draws=rule, what=what)
    return [
        ("Data", benchmark.note + benchmark.counts),
        (
            "Seeds",
            f"{seeds} ({seed} to {seed + seeds - 1}), each with its own {what}; ± is the standard "
            "deviation over them",
        ),
        ("Selection rule", f"{rule}; net, rate and lengths: {benchmark.chosen}"),
        ("Training", benchmark.training),
        ("Duration", duration),
    ]


def report_sections(
    folder: Path,
    benchmark: Benchmark,
    outcomes: Outcomes,
    rows: Sequence[Method],
    published: Published = NOTHING_PUBLISHED,
) -> tuple[FirstScreen, list[Section]]:
    """What came out, and everything between the summary and the settings.

    Args:
      folder: where pictures go.
      benchmark: that was learnt.
      outcomes: by scenario and method.
      rows: all methods, those that make no sense somewhere too.
      published: a paper's numbers.
    """
    offers = {scenario: benchmark.offers(scenario) for scenario in benchmark.scenarios}
    sections = [
        _overview(folder, benchmark, outcomes),
        *(
            _scenario(folder, benchmark, scenario, by_name, _naive(rows), published)
            for scenario, by_name in outcomes.items()
        ),
        *(
            Section(title, [], [table])
            for title, table in (
                ("What methods were made with", settings_table(outcomes)),
                ("Your own strategy beside the others", own_table(outcomes, rows)),
                ("The order that the literature leads one to expect", expected_table(outcomes)),
                (
                    "How hyperparameters were chosen",
                    hyperparameters_table(benchmark.criterion, choices_of(outcomes)),
                ),
                ("What makes no sense here", left_out_table(rows, offers)),
            )
            if table.rows
        ),
        *benchmark.sections(folder),
    ]
    return _first_screen(folder, benchmark, outcomes, rows, published), sections


def _naive(rows: Sequence[Method]) -> str:
    """What a report calls the learner that does nothing against forgetting; empty without it."""
    return next((row.name for row in rows if row.made == METHODS["naive"].made), "")


def _first_screen(
    folder: Path,
    benchmark: Benchmark,
    outcomes: Outcomes,
    rows: Sequence[Method],
    published: Published,
) -> FirstScreen:
    said = [
        _sentence(benchmark, scenario, by_name, rows)
        for scenario, by_name in outcomes.items()
        if by_name
    ]
    at_once = {row.name for row in rows if row.made == METHODS["joint"].made}
    curves = {
        scenario: {
            name: outcome.over_time[:, -1:] if name in at_once else outcome.over_time
            for name, outcome in by_name.items()
        }
        for scenario, by_name in outcomes.items()
    }
    picture = plot_curves(
        folder / "accuracy_over_time.png",
        curves,
        f"{benchmark.measure} on {benchmark.tested}",
        order=[row.name for row in rows],
        published=published.curves,
        paper=published.name,
        rows=1 if len(curves) < 4 else 2,
    )
    level = " Level line: joint, which learns all at once." if at_once else ""
    dashed = f" Dashed: {published.name}." if published.curves else ""
    caption = (
        f"{sentence(benchmark.measure)} on {benchmark.tested}; bands are one standard deviation "
        f"over seeds.{level}{dashed}"
    )
    return FirstScreen(" ".join(said), Figure(caption, picture), _finals(benchmark, outcomes))


def _sentence(
    benchmark: Benchmark, scenario: str, by_name: Mapping[str, Outcome], rows: Sequence[Method]
) -> str:
    """The best of what learns task after task, and the learners that bound it."""
    bounds = {row.name for row in rows if row.anew or row.setting != "incomplete"}
    finals = {name: each.final.mean() for name, each in by_name.items()}
    if np.isnan(list(finals.values())).all():
        return f"{sentence(scenario)}: of every method a run diverged, so that none is ranked."
    # As in a grid's ranks, what diverged is last.
    finals = {name: -np.inf if np.isnan(final) else final for name, final in finals.items()}
    sequential = [name for name in finals if name not in bounds] or list(finals)
    best = max(sequential, key=finals.__getitem__)
    made = {row.name: row.made for row in rows}
    # A method's other hyperparameter is no other method.
    behind = [name for name in sequential if made[name] != made[best]]
    second = max(behind, key=finals.__getitem__, default=None)
    others = [
        f"{name} {spread(by_name[name].final)}"
        for name in dict.fromkeys((_naive(rows), *by_name))
        if name not in (best, second)
        and name in by_name
        and (name in bounds or name == _naive(rows))
    ]
    beside = f"; {', '.join(others)}" if others else ""
    first = "" if len(by_name) == 1 else " is the best that learns task after task, and"
    ahead = "" if second is None else _ahead(by_name[best], second, by_name[second])
    return (
        f"{sentence(scenario)}: {best}{first} has a final {benchmark.measure} of "
        f"{spread(by_name[best].final)}{ahead}{beside}."
    )


def _ahead(best: Outcome, second: str, other: Outcome) -> str:
    """How far the best is before the next, and whether that says anything."""
    difference = paired_differences(best, other)
    said = f", before {second} with {spread(other.final)}"
    if np.isnan(difference).any():
        return said
    if len(difference) < 2:
        return f"{said} (one seed tells no spread)"
    if not difference.any():
        return f"{said} (the same on every seed)"
    larger = abs(difference.mean()) > deviation(difference)
    return (
        f"{said} (by seed {spread(difference, '+')}, "
        f"{'more' if larger else 'no more'} than the spread)"
    )


def _finals(benchmark: Benchmark, outcomes: Outcomes) -> Table:
    columns, rows = [Column("method")], []
    for scenario in outcomes:
        columns += [Column(f"final {benchmark.measure}", scenario), Column("forgetting", scenario)]
    for name in dict.fromkeys(name for by_name in outcomes.values() for name in by_name):
        row = [name]
        for by_name in outcomes.values():
            outcome = by_name.get(name)
            row += (
                ["–"] * 2 if outcome is None else [spread(outcome.final), forgetting_cell(outcome)]
            )
        rows.append(row)
    caption = f"{benchmark.note}. Mean ± standard deviation over seeds, after the last task."
    return Table(caption, columns, rows)


def _overview(folder: Path, benchmark: Benchmark, outcomes: Outcomes) -> Section:
    finals = {
        scenario: {name: outcome.final for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    gone = [
        f"{name}, {scenario}: {outcome.diverged} of {len(outcome.matrices)} runs"
        for scenario, by_name in outcomes.items()
        for name, outcome in by_name.items()
        if outcome.diverged
    ]
    said = [" ".join(_MEANING[scenario] for scenario in outcomes if scenario in _MEANING)]
    if any("joint" in by_name for by_name in outcomes.values()):
        said.append("joint learns nothing before the last task, and then all of them at once.")
    if gone:
        said.append(
            f"Diverged, and nan wherever they count: {'; '.join(gone)}. A lower rate may help."
        )
    picture = plot_finals(folder / "final_accuracy.png", finals, benchmark.measure)
    caption = (
        f"{sentence(benchmark.measure)} on all tasks after the last; bars are one standard "
        "deviation."
    )
    said = [each for each in said if each]
    return Section(f"Final {benchmark.measure}", said, [Figure(caption, picture)])


def _scenario(
    folder: Path,
    benchmark: Benchmark,
    scenario: str,
    by_name: Mapping[str, Outcome],
    naive: str,
    published: Published,
) -> Section:
    matrices = {name: outcome.matrices.mean(axis=0) for name, outcome in by_name.items()}
    path = folder / f"matrices_{scenario.replace(', ', '_').replace(' ', '_')}.png"
    items = [
        scores_table(benchmark, by_name, naive),
        *criteria_tables(by_name, naive, published, scenario),
        *class_types_tables(benchmark, by_name),
        Figure(
            f"{sentence(benchmark.measure)}, mean over seeds: after learning the task of the "
            "row, on the task of the column; white where nothing is told, or a run diverged.",
            plot_matrices(path, matrices, benchmark.measure),
        ),
        costs_table(by_name),
    ]
    return Section(sentence(scenario), [], items)


def sentence(name: str) -> str:
    """A name as it begins a sentence."""
    return name[:1].upper() + name[1:]
