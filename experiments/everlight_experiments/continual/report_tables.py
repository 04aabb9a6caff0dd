"""The tables that reports of strategies share, each from outcomes alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.continual import TaskSequence
from everlight.metrics import (
    CRITERIA,
    WEIGHTINGS,
    Costs,
    RunSummary,
    backward_transfer,
    cl_score,
    cl_stability,
    counted_model_memory,
    forgetting,
    forward_transfer,
    summarize_runs,
)
from everlight_experiments.common.cells import dash, plus_minus, spread
from everlight_experiments.common.report import PAPER, Column, Table
from everlight_experiments.common.settings import said_in_words
from everlight_experiments.continual.benchmark import Benchmark
from everlight_experiments.continual.methods import Demand, Method, why_not
from everlight_experiments.continual.outcome import Outcome, Outcomes
from everlight_experiments.continual.selection import Choice

REGULARISERS = ("EWC", "online EWC", "SI", "MAS", "LwF")
METRICS: Mapping[str, Callable] = {
    "forgetting": forgetting,
    "backward transfer": backward_transfer,
    "forward transfer": forward_transfer,
}


class Published(NamedTuple):
    """A paper's own numbers, which stand beside ours."""

    name: str = ""
    """How they are marked."""
    curves: Mapping[str, Mapping[str, Sequence[float]]] = {}
    """Of the measure over time, by scenario and method."""
    criteria: Mapping[str, Mapping[str, Sequence[float]]] = {}
    """The seven criteria, CL scores and CL stabilities, by scenario and method."""


NOTHING_PUBLISHED = Published()


def scores_table(benchmark: Benchmark, by_name: Mapping[str, Outcome], naive: str) -> Table:
    """Of every method: the measure in the end and over time, forgetting and transfer.

    Differences are from `naive`, where that is among them.
    """
    measure = benchmark.score
    columns = [Column("method"), Column(f"final {measure}"), Column("mean over time")]
    columns += map(Column, METRICS)
    if naive in by_name:
        columns += [
            Column(f"final {measure} minus {naive}'s", "paired by seed"),
            Column(f"seeds above {naive}", "paired by seed"),
        ]
    rows = []
    for name, outcome in by_name.items():
        over_time = outcome.over_time.mean(axis=1)
        over_time = np.where(_learns_at_once(outcome), np.nan, over_time)
        row = [name, spread(outcome.final), _known(outcome, over_time)]
        row += [_known(outcome, _of_runs(metric, outcome)) for metric in METRICS.values()]
        if name == naive:
            row += ["–", "–"]
        elif naive in by_name:
            row += paired(outcome, by_name[naive])
        rows.append(row)
    caption = (
        f"Forgetting is the loss since a task's best {measure}. Backward transfer is the mean "
        "change since a task was learned (R[i, j] − R[j, j] over all tasks j < i, after every "
        f"task; Díaz-Rodríguez et al. 2018). Forward transfer is the {measure} on later tasks, "
        "chance included. –: not defined for this benchmark or setting."
    )
    return Table(caption, columns, rows)


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
    seeds, tasks = outcome.steps.shape
    cost, samples = outcome.cost, outcome.samples
    model = counted_model_memory(cost.parameters, cost.parameter_copies, tasks)
    gone = outcome.diverged_at[:, :1] >= 0
    steps = np.where(gone, np.nan, np.diff(outcome.steps, prepend=0))
    passes = np.ceil(samples / naive.cost.batch_size)
    costs = Costs(
        model_memory=jnp.broadcast_to(model, (seeds, tasks)),
        sample_memory=jnp.asarray(np.where(gone, np.nan, outcome.stored_samples), jnp.float32),
        lifetime_memory=jnp.asarray(samples.sum(axis=1), jnp.float32),
        operations=jnp.asarray(cost.operations * steps, jnp.float32),
        pass_operations=jnp.asarray(naive.cost.operations * passes, jnp.float32),
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
    columns = [Column(name, group) for group, names in groups.items() for name in names]
    rows = []
    for name, outcome in by_name.items():
        if _learns_at_once(outcome):
            continue
        mean, of = summarize(outcome, by_name[naive])
        row = [name, *(dash(plus_minus(float(mean[c]), float(of[c]))) for c in CRITERIA)]
        if not _names_ahead(outcome):
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
    caption = (
        "Criteria of Díaz-Rodríguez et al. 2018, each in [0, 1] and better when higher: accuracy "
        "over all times (A, which differs from final average accuracy), efficiency of model size "
        "(MS), of samples storage (SSS) and of computation (CE: ten passes over the data as a "
        "share of the training, mean over tasks, at most 1). Backward transfer, BWT = mean of "
        "R[i, j] − R[j, j] over all tasks j < i, is split into its positive part (BWT+) and 1 "
        "minus its negative part (REM). Forward transfer (FWT) is the mean of R[i, j] over j > i; "
        "–, where classes of later tasks cannot be predicted, counts as 0. CL scores are weighted "
        "means with the paper's weights (W2 as in its numbers, not as printed), CL stabilities 1 "
        "minus the weighted deviations. Joint training has no criteria."
        f"{' ' * bool(printed)}{published.name if printed else ''}"
    )
    return [Table(caption, [Column("method"), *columns], rows)]


def costs_table(by_name: Mapping[str, Outcome]) -> Table:
    """What every method costs."""
    rows = []
    for name, outcome in by_name.items():
        alive = outcome.diverged_at[:, 0] < 0
        cost, held = outcome.cost, _mean(outcome.stored_samples[alive, -1])
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
                dash(f"{_mean(outcome.steps[alive, -1]):,.0f}"),
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
    caption = (
        "Costs. Copies are counted as in the criteria: a regularizer's anchor and importances, "
        "without a teacher network; bytes are those allocated. Stored samples during the last "
        "task, and steps of the optimizer, are means over runs; "
        "operations are those of one step's program, without importances; seconds are the "
        "median run's, with compilation unless hyper-parameters were chosen before, on a machine "
        "that may be shared; – where not known."
    )
    return Table(caption, columns, rows)


def expected_table(outcomes: Outcomes) -> Table:
    """Differences between methods whose order the literature leads one to expect."""
    orders = [("joint", "DER++"), ("DER++", "ER"), ("ER", "naive")]
    pairs: dict[str, list[tuple[str, str]]] = {
        "task-incremental": [(name, "naive") for name in REGULARISERS],
        "online": [("DER++", "naive")],
    }
    return _pairs(outcomes, {scenario: pairs.get(scenario, orders) for scenario in outcomes})


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
    """By scenario and method, as `hyperparameters_table` takes them."""
    return {
        scenario: {name: outcome.choice for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }


def hyperparameters_table(criterion: str, choices: Mapping[str, Mapping[str, Choice]]) -> Table:
    """Of every method that has one: the grid, or that it was given."""
    rows = [
        [f"{name}, {scenario}", choice.told or "given", choice.chosen]
        for scenario, by_name in choices.items()
        for name, choice in by_name.items()
        if choice.hyperparameter
    ]
    caption = (
        f"{criterion[:1].upper()}{criterion[1:]} on validation samples of the validation seeds, "
        "by hyper-parameter. The greatest is chosen, of equals the smallest value; a diverged run "
        "counts as 0. Flat: no other value is worse by more than one standard error of the paired "
        "differences. Edge of the grid: a better value may lie beyond."
    )
    columns = [Column("method"), Column(f"hyper-parameter: {criterion}"), Column("chosen")]
    return Table(caption, columns, rows)


def settings_table(outcomes: Outcomes) -> Table:
    """What every method was made with, in a row for all scenarios where it is the same."""
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
    return Table(
        caption, columns, [[name, ", ".join(where), said] for (name, said), where in rows.items()]
    )


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


def forgetting_cell(outcome: Outcome) -> str:
    """Forgetting after the last task; – where there is nothing to forget or it is not told."""
    return _known(outcome, _of_runs(forgetting, outcome))


def median_seconds(outcome: Outcome) -> float:
    """Of a run; NaN where that is known of none."""
    known = outcome.seconds[~np.isnan(outcome.seconds)]
    return float(np.median(known)) if len(known) else np.nan


def _mean(values: Int[np.ndarray, "some"]) -> float:
    """NaN of none."""
    return float(values.mean()) if len(values) else np.nan


def _names_ahead(outcome: Outcome) -> bool:
    """Whether something was ever right of a task to come: where none of its classes is among the
    outputs, all is 0 for that reason alone."""
    ahead = np.triu(np.ones(outcome.matrices.shape[1:], bool), 1)
    return bool(np.any(np.nan_to_num(outcome.matrices[:, ahead]) != 0))


def _learns_at_once(outcome: Outcome) -> bool:
    """Whether nothing is learnt before the last task, so that nothing can be forgotten."""
    return outcome.steps.shape[1] > 1 and not outcome.steps[:, -2].any()


def _of_runs(metric: Callable, outcome: Outcome) -> Float[np.ndarray, "seeds"]:
    matrices = outcome.matrices
    tells = _names_ahead(outcome) if metric is forward_transfer else not _learns_at_once(outcome)
    if not tells:
        return np.full(len(matrices), np.nan)
    if metric is not forward_transfer:
        # Of tasks to come they want nothing but a maximum, which those do not raise.
        ahead = np.triu(np.ones(matrices.shape[1:], bool), 1)
        matrices = np.where(ahead & np.isnan(matrices), 0, matrices)
    values = np.asarray(jax.vmap(metric)(jnp.asarray(matrices)))
    # A maximum or a minimum may pass over NaN.
    return np.where(outcome.diverged_at[:, 0] >= 0, np.nan, values)


def _known(outcome: Outcome, values: Float[np.ndarray, "seeds"]) -> str:
    """As `spread`; – where runs that have not diverged do not tell."""
    alive = outcome.diverged_at[:, 0] < 0
    return "–" if np.isnan(values[alive]).any() else spread(values)
