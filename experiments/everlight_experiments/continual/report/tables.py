"""The tables that reports of strategies share, each from declared columns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from everlight.continual import Choice
from everlight.continual.methods.method import Method, Requirement, incompatibility
from everlight.metrics import backward_transfer, forgetting, forward_transfer
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.training.outcome import Outcome, Outcomes
from everlight_experiments.report.cells import dash, interval_text, sentence, spread
from everlight_experiments.report.writer import Column, Table
from everlight_experiments.run_folder.options import in_words


class ColumnSpec(NamedTuple):
    """A column of a table: its header, the cell of a row's value, and its definition."""

    name: str
    cell: Callable[[Any], str]
    group: str = ""
    meaning: str = ""
    """Definition, which stands in the caption where the column is shown."""


def table_of(
    caption: str,
    values: Mapping[str, Any],
    specs: Sequence[ColumnSpec],
    marks: Mapping[str, str] = {},
    first: str = "method",
) -> Table:
    """Return a table of declared columns with a row per value, whose names stand first."""
    columns = [Column(first), *(Column(m.name, m.group, m.meaning) for m in specs)]
    rows = [[name, *(m.cell(value) for m in specs)] for name, value in values.items()]
    return Table(caption, columns, rows, marks=marks)


PUBLISHED_ROW = {
    ", published": "Rows “, published” have the hyper-parameter value that the method's own paper "
    "recommends, instead of the selected one."
}
"""The mark of a row in addition to that of the selected hyper-parameter."""
BY_SEED = "paired by seed"
UNDEFINED = {"–": "–: not defined for this method or setting."}
FORGETTING = (
    "Forgetting: the drop from a task's best {score} before the last task to its final "
    "{score}, mean over all tasks but the last; negative where it rose."
)


def score_cell(outcome: Outcome, metric: Callable) -> str:
    """Return a metric of the matrices over seeds; – where it is not defined or not known."""
    return _spread_cell(outcome, outcome.matrix_scores(metric))


def _spread_cell(outcome: Outcome, values: Float[np.ndarray, "seeds"]) -> str:
    """Return `spread` of values; – where one of a run that has not diverged is NaN."""
    return "–" if np.isnan(values[~outcome.diverged]).any() else spread(values)


def forgetting_cell(outcome: Outcome) -> str:
    """Return forgetting after the last task; – where it is not defined or not known."""
    return score_cell(outcome, forgetting)


def scores_table(benchmark: Benchmark, by_name: Mapping[str, Outcome], naive: str) -> Table:
    """Return average over time, transfer and differences from `naive` of every method.

    The summary of the page has the final score and forgetting, those of a second score too.
    """
    score, base = benchmark.score, by_name.get(naive)
    specs = [
        ColumnSpec(
            f"average incremental {score}",
            lambda outcome: _spread_cell(outcome, outcome.mean_over_time),
            meaning=f"Average incremental {score}: the mean over time of the {score} on "
            f"{benchmark.setting.tested}, measured after every task. Every time has the same "
            "weight. Joint training has none: it learns all tasks at once.",
        ),
        ColumnSpec(
            "backward transfer",
            lambda outcome: score_cell(outcome, backward_transfer),
            meaning="Backward transfer: the mean of R[i, j] − R[j, j] over all tasks j < i, where "
            f"R[i, j] is the {score} on task j after task i (Díaz-Rodríguez et al. 2018).",
        ),
        ColumnSpec(
            "forward transfer",
            lambda outcome: score_cell(outcome, forward_transfer),
            meaning=f"Forward transfer: the mean {score} on tasks that were not learned yet, "
            "chance included.",
        ),
    ]
    specs.insert(
        0, ColumnSpec(f"final {score}, 95% interval", lambda outcome: interval_text(outcome.final))
    )
    metrics = benchmark.setting.metrics
    specs += [
        _final_value(metric.name)
        for metric in metrics.others
        if metric.axes == ("time",) and metric.name not in metrics.scores
    ]
    if base is not None:

        def pair(outcome: Outcome) -> tuple[str, str]:
            return ("–", "–") if outcome is base else paired_cells(outcome, base)

        specs += [
            ColumnSpec(f"final {score} minus {naive}'s", lambda outcome: pair(outcome)[0], BY_SEED),
            ColumnSpec(f"seeds above {naive}", lambda outcome: pair(outcome)[1], BY_SEED),
        ]
    return table_of("Mean ± standard deviation over seeds.", by_name, specs, UNDEFINED)


def _final_value(name: str) -> ColumnSpec:
    """Return the column of a metric after the last task."""
    return ColumnSpec(
        f"final {name}", lambda outcome: dash(spread(outcome.metrics[name][~outcome.diverged, -1]))
    )


def paired_cells(above: Outcome, below: Outcome) -> tuple[str, str]:
    """Return the final difference and where it is positive, as cells."""
    difference = final_difference(above, below)
    return dash(spread(difference, "+")), seeds_above(difference)


def seeds_above(differences: Float[np.ndarray, "seeds"]) -> str:
    """Return the number of seeds whose difference is positive, as a cell.

    A seed on which a run diverged has no difference and does not count.
    """
    known = differences[~np.isnan(differences)]
    return f"{np.sum(known > 0)} of {len(known)}" if len(known) else "–"


def final_difference(above: Outcome, below: Outcome) -> Float[np.ndarray, "seeds"]:
    """Return the differences of final scores, over the seeds that both have."""
    seeds = min(len(above.final), len(below.final))
    return above.final[:seeds] - below.final[:seeds]


def _last(outcome: Outcome, values: np.ndarray) -> float:
    """Return the mean after the last task over runs that have not diverged; NaN if all have."""
    alive = values[~outcome.diverged, -1]
    return float(alive.mean()) if len(alive) else np.nan


def _stored_bytes(outcome: Outcome) -> str:
    held = _last(outcome, outcome.stored_samples) * outcome.cost.sample_bytes
    return dash(f"{held / 1e6:.2f}") if outcome.cost.sample_bytes else "–"


COSTS = (
    ColumnSpec("parameters", lambda outcome: f"{outcome.cost.parameters:,}", "model"),
    ColumnSpec(
        "strategy's memory, MB",
        lambda outcome: f"{outcome.cost.memory_bytes / 1e6:.2f}",
        "model",
        "The strategy's memory counts allocated bytes: importances, older parameters, statistics, "
        "and the numbers of stored samples. The samples themselves are counted under “samples”.",
    ),
    ColumnSpec(
        "held in the last task",
        lambda outcome: dash(f"{_last(outcome, outcome.stored_samples):,.0f}"),
        "samples",
        "Stored samples and steps of the optimizer are means over runs.",
    ),
    ColumnSpec("MB", _stored_bytes, "samples"),
    ColumnSpec(
        "MFLOP per step",
        lambda outcome: f"{outcome.cost.operations / 1e6:,.1f}",
        "computation",
        "MFLOP per step: operations of one step's program, without importances.",
    ),
    ColumnSpec(
        "steps", lambda outcome: dash(f"{_last(outcome, outcome.steps):,.0f}"), "computation"
    ),
    ColumnSpec(
        "seconds per run",
        lambda outcome: dash(f"{outcome.median_seconds:.1f}"),
        "computation",
        "Seconds per run: median over runs on a machine that may be shared. Programs are compiled "
        "before, but a large process drops some and compiles them again: do not compare the speed "
        "of methods by them.",
    ),
)


def costs_table(by_name: Mapping[str, Outcome]) -> Table:
    """Return the costs of every method."""
    return table_of("Costs.", by_name, COSTS, {"–": "–: not known."})


def user_strategy_table(outcomes: Outcomes, methods: Sequence[Method]) -> Table:
    """Return differences of a user's strategies from all others."""
    strategies = [method.name for method in methods if method.version]
    pairs = {
        f"{mine} above {name}, {column}": paired_cells(by_name[mine], by_name[name])
        for column, by_name in outcomes.items()
        for mine in strategies
        for name in by_name
        if mine in by_name and name not in strategies
    }
    specs = [
        ColumnSpec("difference", lambda cells: cells[0], BY_SEED),
        ColumnSpec("seeds where it holds", lambda cells: cells[1], BY_SEED),
    ]
    caption = "Differences after the last task on the same seeds."
    return table_of(caption, pairs, specs, first="order")


RULE = (
    "Each hyper-parameter has the value with the highest {criterion} on validation samples, "
    "averaged over the validation seeds (number of seeds: {draws}). Each validation seed has its "
    "own {what}; a diverged run counts as 0. {scope} A single value of --hyperparameters, and "
    "published values, are used as they are: nothing is selected there."
)
"""The selection rule of every method that has a hyper-parameter."""


def rule_of(benchmark: Benchmark, validation_seeds: int) -> str:
    """Return the rule of selection on a benchmark."""
    return RULE.format(
        criterion=benchmark.criterion,
        draws=validation_seeds,
        what=benchmark.setting.draws,
        scope=benchmark.selection.scope,
    )


NOTHING_SELECTED = "Nothing was selected: all values of hyper-parameters were given or published."
GRID = {
    "flat": "Flat: no other value is worse by more than one standard error of the paired "
    "differences.",
    "edge of the grid": "Edge of the grid: a better value may lie beyond.",
}
"""Marks of a selected hyper-parameter."""


def choices_of(outcomes: Outcomes) -> dict[str, Choice]:
    """Return choices by "method, column"."""
    return {
        f"{name}, {column}": outcome.choice
        for column, by_name in outcomes.items()
        for name, outcome in by_name.items()
    }


def selection_rule(benchmark: Benchmark, outcomes: Outcomes, validation_seeds: int) -> str:
    """Return the rule of selection on a benchmark, or that nothing was selected."""
    selected = any(len(choice.hyperparameters) for choice in choices_of(outcomes).values())
    return rule_of(benchmark, validation_seeds) if selected else NOTHING_SELECTED


def hyperparameters_table(criterion: str, choices: Mapping[str, Choice]) -> Table:
    """Return the grid of every method with a hyper-parameter, or that it was given.

    A given 0 has no row: it stands for a method without one (`fixed_hyperparameter`).
    """
    values = {
        name: choice
        for name, choice in choices.items()
        if choice.hyperparameter or len(choice.hyperparameters)
    }
    caption = (
        f"{sentence(criterion)} on validation samples of the validation seeds, "
        "by hyper-parameter. The value with the highest result is selected; among equals, the "
        "smallest."
    )
    specs = (
        ColumnSpec(f"hyper-parameter: {criterion}", lambda choice: choice.grid_summary or "given"),
        ColumnSpec("selected", lambda choice: choice.chosen),
    )
    marks = {"diverged": "A diverged run counts as 0.", **PUBLISHED_ROW, **GRID}
    return table_of(caption, values, specs, marks)


DRAWN = "samples drawn per step"
UNBOUNDED = "no task boundaries"


def settings_table(outcomes: Outcomes) -> Table:
    """Return learning rate and arguments of every method, in one row for columns that agree."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for column, by_name in outcomes.items():
        for name, outcome in by_name.items():
            drawn = {DRAWN: outcome.replayed} if outcome.replayed else {}
            words = in_words({**outcome.arguments, **drawn})
            if not outcome.boundaries:
                words = ", ".join(filter(None, (words, UNBOUNDED)))
            if words or outcome.learning_rate != "–":
                values = name, outcome.learning_rate, words or "–"
                rows.setdefault(values, []).append(column)
    caption = (
        "Learning rate of the optimizer's steps, and arguments of each method's function; the "
        "common optimizer, epochs and batches are under Training. Methods that only add up "
        "statistics take one pass over a task's samples, whatever the epochs. A hyper-parameter "
        "with several tried values has the selected one."
    )
    columns = list(map(Column, ("method", "settings", "learning rate", "arguments")))
    cells = [[name, ", ".join(where), *values] for (name, *values), where in rows.items()]
    drawn = (
        "Samples drawn per step: stored samples that are replayed in a step; methods with two "
        "replayed batches, such as DER++, draw twice the size of the replayed batch."
    )
    unbounded = (
        "No task boundaries: a class counts as seen from its first sample. Every other method is "
        "given the boundaries, and a class counts as seen from the first step of its task."
    )
    return Table(caption, columns, cells, marks={DRAWN: drawn, UNBOUNDED: unbounded})


def argument_meanings(outcomes: Outcomes, methods: Sequence[Method]) -> list[str]:
    """Return a line for every argument of the table, with its methods and its meaning.

    A method's row with another hyper-parameter is not listed again.
    """
    by_meaning: dict[tuple[str, str], list[str]] = {}
    first = {method.strategy_key: method for method in reversed(methods)}
    for method in reversed(first.values()):
        trained = [by_name[method.name] for by_name in outcomes.values() if method.name in by_name]
        shown = {name for outcome in trained for name in outcome.arguments}
        for name, meaning in method.argument_meanings.items():
            if name in shown:
                by_meaning.setdefault((name.replace("_", " "), meaning), []).append(method.name)
    return [
        f"{name} ({', '.join(names)}): {meaning}"
        for (name, meaning), names in sorted(by_meaning.items())
    ]


def left_out_table(
    methods: Sequence[Method], capabilities: Mapping[str, frozenset[Requirement]]
) -> Table:
    """Return the methods that were not run in some column, with the requirement that it lacks."""
    reasons = {
        f"{method.name}, {column}": reason
        for column, offered in capabilities.items()
        for method in methods
        if (reason := incompatibility(method, offered)) is not None
    }
    return table_of("Methods that were not run.", reasons, [ColumnSpec("reason", str)])
