"""The report of strategies on a benchmark, whose parts the papers' reports share."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_experiments.continual.benchmarks.benchmark import Benchmark, Benchmarks
from everlight_experiments.continual.report.criteria import (
    NO_PUBLISHED_NUMBERS,
    PublishedNumbers,
    criteria_tables,
)
from everlight_experiments.continual.report.metric_items import metric_items
from everlight_experiments.continual.report.tables import (
    FORGETTING,
    PUBLISHED_ROW,
    ColumnSpec,
    argument_meanings,
    choices_of,
    costs_table,
    final_difference,
    forgetting_cell,
    hyperparameters_table,
    left_out_table,
    scores_table,
    settings_table,
    table_of,
    user_strategy_table,
)
from everlight_experiments.continual.training.outcome import Outcome, Outcomes
from everlight_experiments.report.cells import (
    counted,
    final_cell,
    interval_cell,
    sentence,
    spread,
)
from everlight_experiments.report.plots import curves_left_out, plot_curves, plot_matrices
from everlight_experiments.report.writer import Figure, Section, Summary, Table, file_names

MEANINGS = {
    "task-incremental": "Task-incremental: the task identity is given at test, and every task has "
    "its own head.",
    "class-incremental": "Class-incremental: one head has all classes seen so far.",
    "online": "Online: class-incremental in one pass over a stream. A class counts as seen from "
    "its first sample, or, for methods that are given task boundaries, from its task's first step.",
}
"""Meanings of settings."""


def report_summary_rows(
    benchmark: Benchmark, seed: int, seeds: int, rule: str, duration: str
) -> list[tuple[str, str]]:
    """Return the rows of every summary."""
    what = benchmark.setting.draws
    numbers, deviations = f"{seed}", ""
    if seeds > 1:
        numbers = f"{seed} to {seed + seeds - 1}"
        deviations = "; ± is the standard deviation over seeds"
    effect = f"each with its own {what}" if seeds > 1 else f"which sets the {what}"
    return [
        ("Data", benchmark.data.words),
        ("Seeds", f"{counted(seeds, 'evaluation seed')} ({numbers}), {effect}{deviations}"),
        ("Selection rule", rule),
        ("Selection of network and training", benchmark.selection.words),
        ("Training", benchmark.training.words),
        ("Duration", duration),
    ]


def learning_rate_rows(outcomes: Outcomes) -> list[tuple[str, str]]:
    """Return a row for the summary where methods have several learning rates; else none."""
    rates = {outcome.learning_rate for names in outcomes.values() for outcome in names.values()}
    if len(rates := rates - {"–"}) < 2:
        return []
    listed = "; ".join(sorted(rates))
    return [("Learning rates", f"{listed} (see Learning rates and arguments of the methods)")]


class ReportInput(NamedTuple):
    """Benchmarks, outcomes and methods of a report."""

    benchmarks: Benchmarks
    outcomes: Outcomes
    """Outcomes by column and method."""
    methods: Sequence[Method]
    """All methods, including those that do not apply in some column."""
    published_numbers: PublishedNumbers = NO_PUBLISHED_NUMBERS

    @property
    def benchmark(self) -> Benchmark:
        """The first benchmark."""
        return next(iter(self.benchmarks.values()))

    @property
    def naive(self) -> str:
        """Name of plain finetuning in this report; empty without it."""
        key = METHODS["naive"].strategy_key
        return next((method.name for method in self.methods if method.strategy_key == key), "")

    @property
    def score(self) -> str:
        """Name of the final score."""
        return f"final {self.benchmark.score}"

    def rank_methods(self, column: str) -> list[str]:
        """Return sequential methods from the best; references only where there is no other.

        A method with a diverged run has no rank.
        """
        finals = {name: outcome.final.mean() for name, outcome in self.outcomes[column].items()}
        references = {method.name for method in self.methods if method.is_reference}
        sequential = [name for name in finals if name not in references] or list(finals)
        ranked = [name for name in sequential if not np.isnan(finals[name])]
        return sorted(ranked, key=lambda name: -finals[name])


def report_sections(folder: Path, report: ReportInput) -> tuple[Summary, list[Section]]:
    """Return the opening and the sections of the report; pictures go into the folder."""
    outcomes, methods, benchmark = report.outcomes, report.methods, report.benchmark
    capabilities = {
        column: benchmark.setting.capabilities for column, benchmark in report.benchmarks.items()
    }
    selection = hyperparameters_table(benchmark.criterion, choices_of(outcomes))
    details = {
        "Learning rates and arguments of the methods": (
            argument_meanings(outcomes, methods),
            settings_table(outcomes),
        ),
        "Your own strategy against the others": ((), user_strategy_table(outcomes, methods)),
        "Selection of hyper-parameters": ((), selection),
        "Methods not applicable here": ((), left_out_table(methods, capabilities)),
    }
    sections = [
        *(_column(folder, column, report) for column in outcomes),
        *(Section(name, texts, [table]) for name, (texts, table) in details.items() if table.rows),
        *benchmark.data.sections(folder),
    ]
    return _results_summary(folder, report), sections


def _results_summary(folder: Path, report: ReportInput) -> Summary:
    benchmark, outcomes, methods = report.benchmark, report.outcomes, report.methods
    published_numbers, joint = report.published_numbers, METHODS["joint"].strategy_key
    at_once = {method.name for method in methods if method.strategy_key == joint}
    curves = {
        column: {
            name: outcome.over_time[:, -1:] if name in at_once else outcome.over_time
            for name, outcome in by_name.items()
        }
        for column, by_name in outcomes.items()
    }
    what = f"{benchmark.score} on {benchmark.setting.tested}"
    picture = plot_curves(
        folder / "accuracy_over_time.png",
        curves,
        what,
        order=[method.name for method in methods],
        published=published_numbers.curves,
        paper=published_numbers.name,
        rows=1 if len(curves) < 4 else 2,
        baseline=report.naive,
    )
    level = " Level line: joint training on all tasks." if at_once else ""
    dashed = f" Dashed: {published_numbers.name}." if published_numbers.curves else ""
    caption = (
        f"{sentence(what)}, mean over seeds; bands are one standard deviation.{level}{dashed}"
        f"{curves_left_out(curves, report.naive)}"
    )
    below = tuple(remark for column in outcomes if (remark := _runner_up(column, report)))
    return Summary(_headline(report), Figure(caption, picture), _finals(report), below)


def _headline(report: ReportInput) -> tuple[str, ...]:
    """Return the question, the best method with its interval, and the baseline."""
    best, baseline = [], []
    for column, by_name in report.outcomes.items():
        if by_name and (ranked := report.rank_methods(column)):
            best.append(f"{ranked[0]} {interval_cell(by_name[ranked[0]].final)} ({column})")
        if report.naive in by_name:
            baseline.append(f"{spread(by_name[report.naive].final)} ({column})")
    sentences = [
        f"Which method has the highest {report.score} after the last task?",
        f"Best, with Student's 95% interval over seeds: {'; '.join(best) or 'none, all diverged'}.",
    ]
    if baseline:
        sentences.append(f"Baseline, {report.naive}: {'; '.join(baseline)}.")
    return tuple(sentences)


def _runner_up(column: str, report: ReportInput) -> str:
    """Return the second sequential method and its distance from the best; empty without one."""
    by_name, ranked = report.outcomes[column], report.rank_methods(column)
    strategies = {method.name: method.strategy_key for method in report.methods}
    # A method's other hyper-parameter does not make another method.
    second = next((name for name in ranked[1:] if strategies[name] != strategies[ranked[0]]), None)
    if second is None:
        return ""
    behind = final_difference(by_name[ranked[0]], by_name[second])
    known = "" if np.isnan(behind).any() else f", behind by {spread(behind)} (paired by seed)"
    return f"{sentence(column)}: second is {second} with {spread(by_name[second].final)}{known}."


def _finals(report: ReportInput) -> Table:
    """Return final score and forgetting of every method in every column."""
    columns, naive = report.outcomes, report.naive
    meaning = FORGETTING.format(score=report.benchmark.score)
    names = dict.fromkeys(name for by_name in columns.values() for name in by_name)

    def column_cell(column: str, cell: Callable[[Outcome], str]) -> Callable[[str], str]:
        return lambda name: cell(columns[column][name]) if name in columns[column] else "–"

    metrics = report.benchmark.setting.metrics
    meanings = {
        metric.name: f"{sentence(metric.name)}. {metric.meaning}"
        for metric in metrics.others
        if metric.name == metrics.second_score
    }

    def score_columns(column: str, score: str) -> tuple[ColumnSpec, ColumnSpec]:
        ending = "" if score == report.benchmark.score else f" of {score}"
        final = column_cell(column, lambda outcome: _final_cell(outcome.with_score(score)))
        forgetting = column_cell(column, lambda outcome: forgetting_cell(outcome.with_score(score)))
        return (
            ColumnSpec(
                f"final {score}", final, column, meanings.get(score) or MEANINGS.get(column, "")
            ),
            ColumnSpec(f"forgetting{ending}", forgetting, column, "" if ending else meaning),
        )

    specs = [
        spec
        for column in columns
        for score in report.benchmarks[column].setting.metrics.scores
        for spec in score_columns(column, score)
    ]
    caption = (
        f"{sentence(report.benchmark.data.note)}. Mean ± standard deviation over seeds, after the "
        "last task, on all tasks."
    )
    alias = "" if naive == "naive" else " Other reports call it naive."
    methods = {
        naive: f"Method {naive} trains on one task after the other and does no more.{alias}",
        "joint": "Method joint trains once, on all tasks together, at the last task.",
    }
    marks = {name: meaning for name, meaning in methods.items() if name in names}
    marks["diverged"] = "A lower learning rate may help where runs diverged."
    values = {name: name for name in names}
    return table_of(caption, values, specs, marks | PUBLISHED_ROW)


def _final_cell(outcome: Outcome) -> str:
    return final_cell(np.where(outcome.diverged, np.nan, outcome.final))


def _column(folder: Path, column: str, report: ReportInput) -> Section:
    benchmark, by_name = report.benchmarks[column], report.outcomes[column]
    file = file_names(list(report.outcomes))[column]
    matrices = {name: outcome.mean_matrix for name, outcome in by_name.items()}
    path = folder / f"matrices_{file}.png"
    items = [
        scores_table(benchmark, by_name, report.naive),
        *criteria_tables(by_name, report.naive, report.published_numbers, column),
        *metric_items(folder / file, column, benchmark, by_name),
        Figure(
            f"{sentence(benchmark.score)}, mean over seeds: after learning the task of the row, "
            f"on the test data of the task of the column.{why_white(by_name.values())}",
            plot_matrices(path, matrices, benchmark.score),
        ),
        costs_table(by_name),
    ]
    return Section(sentence(column), [], items)


def why_white(outcomes: Iterable[Outcome]) -> str:
    """Return the sentence on where mean matrices have no value; empty where they have all."""
    runs = list(outcomes)
    reasons = {
        "classes of later tasks cannot be predicted yet": not all(x.predicts_future for x in runs),
        "joint training has not begun": any(x.learns_at_once for x in runs),
        "a run diverged": any(x.diverged.any() for x in runs),
        "the task is not tested, or its test set is an earlier task's": any(
            np.isnan(x.matrices[~x.diverged]).any() for x in runs
        ),
    }
    holding = [reason for reason, holds in reasons.items() if holds]
    return f" White: {'; '.join(holding)}." if holding else ""
