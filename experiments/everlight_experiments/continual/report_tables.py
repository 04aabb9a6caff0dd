"""The tables that reports of strategies share, each from outcomes alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.continual import TaskSequence
from everlight.continual.registry import Demand, Method, why_not
from everlight.metrics import (
    CRITERIA,
    WEIGHTINGS,
    RunSummary,
    cl_score,
    cl_stability,
    sequence_costs,
    summarize_runs,
)
from everlight_experiments.common.cells import dash, plus_minus, spread
from everlight_experiments.common.report import PAPER, Column, Table
from everlight_experiments.common.settings import said_in_words
from everlight_experiments.continual.benchmark import Benchmark
from everlight_experiments.continual.definitions import (
    ARGUMENTS,
    COSTS,
    EFFICIENCIES,
    GRID,
    NO_FORWARD_TRANSFER,
    PUBLISHED,
    SCORES,
    weightings,
)
from everlight_experiments.continual.matrix_scores import (
    TRANSFERS,
    known_cell,
    learns_at_once,
    mean_or_nan,
    median_seconds,
    names_ahead,
    of_runs,
)
from everlight_experiments.continual.outcome import Outcome, Outcomes
from everlight_experiments.continual.selection import Choice

REGULARISERS = ("EWC", "online EWC", "SI", "MAS", "LwF")
EXPECTED_BY = {
    "joint": "upper bound by construction",
    "DER++": "Buzzega et al. 2020",
    "ER": "Chaudhry et al. 2019",
    **dict.fromkeys([name.split()[0] for name in REGULARISERS], "van de Ven and Tolias 2019"),
}
"""The source of an expected order, by the first word of the method that is ahead."""


class Published(NamedTuple):
    """A paper's own numbers, which stand beside ours."""

    name: str = ""
    """How they are marked."""
    curves: Mapping[str, Mapping[str, Sequence[float]]] = {}
    """Score over time, by column and method."""
    criteria: Mapping[str, Mapping[str, Sequence[float]]] = {}
    """The seven criteria, CL scores and CL stabilities, by scenario and method."""


NOTHING_PUBLISHED = Published()


def scores_table(benchmark: Benchmark, by_name: Mapping[str, Outcome], naive: str) -> Table:
    """Return the average over time, transfer and differences in the end of every method.

    The first screen has the measure in the end and forgetting.

    Differences are from `naive`, where that is among them.
    """
    measure = benchmark.score
    columns = [
        Column("method"),
        Column(
            f"average incremental {measure}",
            meaning=f"Average incremental {measure}: the mean over time of the {measure} on "
            f"{benchmark.tested}, measured after every task.",
        ),
        *(Column(name, meaning=SCORES[name].format(measure=measure)) for name in TRANSFERS),
    ]
    if naive in by_name:
        columns += [
            Column(f"final {measure} minus {naive}'s", "paired by seed"),
            Column(f"seeds above {naive}", "paired by seed"),
        ]
    rows = []
    for name, outcome in by_name.items():
        over_time = outcome.over_time.mean(axis=1)
        over_time = np.where(learns_at_once(outcome), np.nan, over_time)
        row = [name, known_cell(outcome, over_time)]
        row += [known_cell(outcome, of_runs(metric, outcome)) for metric in TRANSFERS.values()]
        if name == naive:
            row += ["–", "–"]
        elif naive in by_name:
            row += paired(outcome, by_name[naive])
        rows.append(row)
    caption = "Mean ± standard deviation over seeds."
    return Table(caption, columns, rows, marks={"–": "–: not defined for this method or setting."})


def paired(above: Outcome, below: Outcome) -> list[str]:
    """Over the seeds that both have: the difference in the end, and where it is positive."""
    difference = paired_differences(above, below)
    return [spread(difference, "+"), f"{np.sum(difference > 0)} of {len(difference)}"]


def paired_differences(above: Outcome, below: Outcome) -> Float[np.ndarray, "seeds"]:
    """In the end, over the seeds that both have."""
    seeds = min(len(above.final), len(below.final))
    return above.final[:seeds] - below.final[:seeds]


def summarize(outcome: Outcome, naive: Outcome) -> RunSummary:
    """The criteria of a method's runs; a pass over a task is one of naive's steps.

    NaN where a run diverged.
    """
    cost, samples = outcome.cost, outcome.samples
    gone = outcome.diverged_at[:, :1] >= 0
    steps = np.where(gone, np.nan, np.diff(outcome.steps, prepend=0))
    passes = np.ceil(samples / naive.cost.batch_size)
    counted = (
        np.where(gone, np.nan, outcome.stored_samples),
        samples,
        cost.operations * steps,
        naive.cost.operations * passes,
    )
    costs = sequence_costs(
        cost.parameters,
        cost.parameter_copies,
        *(jnp.asarray(each, jnp.float32) for each in counted),
    )
    # Means of shares may round above 1.
    return summarize_runs(jnp.clip(jnp.asarray(outcome.matrices, jnp.float32), 0, 1), costs)


def criteria_tables(
    by_name: Mapping[str, Outcome], naive: str, published: Published, scenario: str
) -> list[Table]:
    """The seven criteria and their scores; none without naive, whose steps make a pass."""
    if naive not in by_name:
        return []
    printed = published.criteria.get(scenario)
    groups = {
        "criteria": CRITERIA,
        "CL score": tuple(WEIGHTINGS),
        "CL stability": tuple(WEIGHTINGS),
    }
    columns = [
        Column(name, group, EFFICIENCIES.get(name, ""))
        for group, names in groups.items()
        for name in names
    ]
    rows = []
    for name, outcome in by_name.items():
        if learns_at_once(outcome):
            continue
        mean, of = summarize(outcome, by_name[naive])
        row = [name, *(dash(plus_minus(float(mean[c]), float(of[c]))) for c in CRITERIA)]
        if not names_ahead(outcome):
            row[1 + CRITERIA.index("FWT")] = "–"
        row += [dash(f"{float(cl_score(mean, w)):.3f}") for w in WEIGHTINGS.values()]
        row += [dash(f"{float(cl_stability(of, w)):.3f}") for w in WEIGHTINGS.values()]
        if printed is not None:
            theirs = printed.get(name)
            row += ["–"] * len(columns) if theirs is None else [f"{x:.4f}" for x in theirs]
        rows.append(row)
    if printed is not None:
        theirs = (f"{each.group} {each.name}".removeprefix("criteria ") for each in columns)
        columns += [Column(name, PAPER) for name in [*theirs]]
    every = by_name.values()
    said = [
        "Criteria of Díaz-Rodríguez et al. 2018, each in [0, 1] and better when higher. CL score: "
        "weighted mean of the criteria. CL stability: 1 minus the weighted mean of their standard "
        f"deviations. {weightings()}",
        "" if all(map(names_ahead, every)) else NO_FORWARD_TRANSFER,
        "Joint training has no criteria." if any(map(learns_at_once, every)) else "",
        published.name if printed is not None else "",
    ]
    return [Table(" ".join(filter(None, said)), [Column("method"), *columns], rows)]


def costs_table(by_name: Mapping[str, Outcome]) -> Table:
    """Return the costs of every method."""
    rows = []
    for name, outcome in by_name.items():
        alive = outcome.diverged_at[:, 0] < 0
        cost, held = outcome.cost, mean_or_nan(outcome.stored_samples[alive, -1])
        rows.append(
            [
                name,
                f"{cost.parameters:,}",
                f"{1 + cost.parameter_copies}",
                f"{4 * cost.parameters / 1e6:.2f}",
                f"{cost.memory_bytes / 1e6:.2f}",
                dash(f"{held:,.0f}"),
                dash(f"{held * cost.sample_bytes / 1e6:.2f}") if cost.sample_bytes else "–",
                f"{cost.operations / 1e6:,.1f}",
                dash(f"{mean_or_nan(outcome.steps[alive, -1]):,.0f}"),
                dash(f"{median_seconds(outcome):.1f}"),
            ]
        )
    columns = [
        Column("method"),
        Column("parameters", "model"),
        Column("copies counted (MS)", "model"),
        Column("parameters, MB", "model"),
        Column("strategy's memory, MB", "model"),
        Column("held in the last task", "samples"),
        Column("MB", "samples"),
        Column("MFLOP per step", "computation"),
        Column("steps", "computation"),
        Column("seconds per run", "computation"),
    ]
    columns = [replace(column, meaning=COSTS.get(column.name, "")) for column in columns]
    return Table("Costs.", columns, rows, marks={"–": "–: not known."})


def expected_table(outcomes: Outcomes) -> Table:
    """Differences between methods whose order the literature leads one to expect."""
    orders = [("joint", "DER++"), ("DER++", "ER"), ("ER", "naive")]
    pairs: dict[str, list[tuple[str, str]]] = {
        "task-incremental": [(name, "naive") for name in REGULARISERS],
        "online": [("DER++", "naive")],
    }
    found = _pairs(outcomes, {scenario: pairs.get(scenario, orders) for scenario in outcomes})
    rows = [[row[0], row[1], EXPECTED_BY[row[0].split()[0]], *row[2:]] for row in found.rows]
    columns = [*found.columns[:2], Column("source"), *found.columns[2:]]
    known = [name for name in REGULARISERS if any(name in each for each in outcomes.values())]
    elsewhere = [scenario for scenario in outcomes if scenario != "task-incremental"]
    caption = found.caption
    if known and elsewhere:
        caption += (
            f" {', '.join(known)} {'is' if len(known) == 1 else 'are'} compared only "
            "task-incrementally: without task identities regularization often equals naive "
            "(van de Ven and Tolias 2019)."
        )
    return replace(found, caption=caption, columns=columns, rows=rows)


def own_table(outcomes: Outcomes, rows: Sequence[Method]) -> Table:
    """Differences of a user's strategies from all others."""
    own = [row.name for row in rows if row.version]
    return _pairs(
        outcomes,
        {
            scenario: [(mine, name) for mine in own for name in by_name if name not in own]
            for scenario, by_name in outcomes.items()
        },
    )


def _pairs(outcomes: Outcomes, pairs: Mapping[str, Sequence[tuple[str, str]]]) -> Table:
    rows = []
    for scenario, by_name in outcomes.items():
        for above, below in pairs[scenario]:
            if above not in by_name or below not in by_name:
                continue
            found = paired(by_name[above], by_name[below])
            rows.append([f"{above} above {below}", scenario, *found])
    columns = [
        Column("expected order"),
        Column("setting"),
        Column("difference", "paired by seed"),
        Column("seeds where it holds", "paired by seed"),
    ]
    return Table("Differences after the last task on the same seeds.", columns, rows)


def choices_of(outcomes: Outcomes) -> dict[str, dict[str, Choice]]:
    """Return choices by column and method, as `hyperparameters_table` takes them."""
    return {
        scenario: {name: outcome.choice for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }


def hyperparameters_table(criterion: str, choices: Mapping[str, Mapping[str, Choice]]) -> Table:
    """Return the grid of every method with a hyper-parameter, or that it was given."""
    rows = [
        [f"{name}, {scenario}", choice.told or "given", choice.chosen]
        for scenario, by_name in choices.items()
        for name, choice in by_name.items()
        if choice.hyperparameter
    ]
    caption = (
        f"{criterion[:1].upper()}{criterion[1:]} on validation samples of the validation seeds, "
        "by hyper-parameter. The value with the highest result is selected; among equals, the "
        "smallest."
    )
    columns = [Column("method"), Column(f"hyper-parameter: {criterion}"), Column("selected")]
    marks = {"diverged": "A diverged run counts as 0.", **PUBLISHED, **GRID}
    return Table(caption, columns, rows, marks=marks)


def settings_table(outcomes: Outcomes) -> Table:
    """Return the arguments of every method, in one row for all columns where they are the same."""
    rows: dict[tuple[str, str], list[str]] = {}
    for scenario, by_name in outcomes.items():
        for name, outcome in by_name.items():
            drawn = {"samples drawn per step": outcome.replayed} if outcome.replayed else {}
            said = said_in_words({**outcome.settings, **drawn})
            if said:
                rows.setdefault((name, said), []).append(scenario)
    caption = (
        "Arguments of each method's function, explained on its page of the documentation; the "
        "common optimizer, epochs and batches are under Training. A hyper-parameter with several "
        "tried values has the selected one."
    )
    columns = [Column("method"), Column("settings"), Column("arguments")]
    cells = [[name, ", ".join(where), said] for (name, said), where in rows.items()]
    return Table(caption, columns, cells, marks=ARGUMENTS)


def left_out_table(rows: Sequence[Method], offers: Mapping[str, frozenset[Demand]]) -> Table:
    """Methods that make no sense in some of the scenarios, by what these offer."""
    reasons = [
        [f"{method.name}, {scenario}", reason]
        for scenario, offered in offers.items()
        for method in rows
        if (reason := why_not(method, offered)) is not None
    ]
    return Table("Methods that were not run.", [Column("method"), Column("reason")], reasons)


def sizes_table(sequences: Mapping[str, TaskSequence]) -> Table:
    """Classes and samples of tasks, a row a sequence."""
    rows = []
    for name, sequence in sequences.items():
        tasks = sequence.tasks
        sizes = np.asarray(tasks.train.mask).sum(axis=1)
        classes = np.asarray(tasks.classes).sum(axis=1)
        rows.append(
            [
                name,
                str(len(sizes)),
                f"{classes[0]}, then {classes[1:].min()} to {classes[1:].max()}",
                f"{np.count_nonzero(classes[1:])}",
                f"{sizes.sum():,}",
                f"{sizes[0]:,}",
                f"{sizes[1:].mean():,.0f} ({sizes[1:].min():,} to {sizes[1:].max():,})",
                f"{np.asarray(tasks.valid.mask).sum():,}",
                f"{np.asarray(sequence.test.mask).sum():,}",
            ]
        )
    columns = [
        Column("order"),
        Column("tasks"),
        Column("new per task", "classes"),
        Column("later tasks with new classes", "classes"),
        Column("all tasks", "training samples"),
        Column("first task", "training samples"),
        Column("later tasks, mean (least to most)", "training samples"),
        Column("in-task validation samples"),
        Column("test samples"),
    ]
    caption = "A sample that two tasks train on under different labels counts twice."
    return Table(caption, columns, rows)
