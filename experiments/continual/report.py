"""The one report of strategies on a benchmark, and what papers' reports take from it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

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
from experiments.common.cells import dash, deviation, plus_minus, spread
from experiments.common.plots import plot_curves, plot_matrices
from experiments.common.report import PAPER, Column, Figure, FirstScreen, Section, Table
from experiments.common.settings import said_in_words
from experiments.continual.benchmark import Benchmark
from experiments.continual.methods import METHODS, Demand, Method, why_not
from experiments.continual.plots import plot_finals
from experiments.continual.runner import Outcome, Outcomes
from experiments.continual.selection import RULE

REGULARISERS = ("EWC", "online EWC", "SI", "MAS", "LwF")
METRICS: Mapping[str, Callable] = {
    "forgetting": forgetting,
    "backward transfer": backward_transfer,
    "forward transfer": forward_transfer,
}
_MEANING = {
    "told": "Told: every task has a head of its own, and the test tells the task.",
    "not told": "Not told: one head over all classes seen so far.",
    "online": "Online: not told, and every sample comes once; strategies that need to know where a "
    "task ends are told.",
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


def report_summary(
    benchmark: Benchmark, seed: int, seeds: int, rule: int | str, duration: str
) -> list[tuple[str, str]]:
    """The facts that every report owes.

    Args:
      benchmark: that was learnt.
      seed, seeds: the first, and how many.
      rule: by which strengths were chosen, or the number of unreported draws for the one rule.
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
                ("Your own strategy beside the others", _own_beside(outcomes, rows)),
                ("The order that the literature leads one to expect", _findings(outcomes)),
                ("How strengths were chosen", strengths_table(benchmark.criterion, outcomes)),
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
    anew = {row.name for row in rows if row.anew}
    finals = {name: np.nan_to_num(each.final, nan=-1).mean() for name, each in by_name.items()}
    sequential = [name for name in finals if name not in anew] or list(finals)
    best = max(sequential, key=finals.__getitem__)
    made = {row.name: row.made for row in rows}
    # A method's other strength is no other method.
    behind = [name for name in sequential if made[name] != made[best]]
    second = max(behind, key=finals.__getitem__, default=None)
    others = [
        f"{name} {spread(by_name[name].final)}"
        for name in dict.fromkeys((_naive(rows), *by_name))
        if name not in (best, second) and name in by_name and (name in anew or name == _naive(rows))
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
    difference = _differences(best, other)
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
                ["–"] * 2
                if outcome is None
                else [spread(outcome.final), _known(outcome, _of_runs(forgetting, outcome))]
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
        _scores(benchmark, by_name, naive),
        *_criteria(by_name, naive, published, scenario),
        *_class_types(benchmark, by_name),
        Figure(
            f"{sentence(benchmark.measure)}, mean over seeds: after learning the task of the "
            "row, on the task of the column; white where nothing is told, or a run diverged.",
            plot_matrices(path, matrices, benchmark.measure),
        ),
        _costs(by_name),
    ]
    return Section(sentence(scenario), [], items)


def _scores(benchmark: Benchmark, by_name: Mapping[str, Outcome], naive: str) -> Table:
    measure = benchmark.measure
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
            row += _paired(outcome, by_name[naive])
        rows.append(row)
    caption = (
        f"Forgetting is the loss since a task's best {measure}, backward transfer the mean change "
        "since it was learnt (R[i, j] − R[j, j] over all tasks j < i, after every task), forward "
        f"transfer the {measure} on tasks not learnt yet, chance included; – where the benchmark "
        "does not tell, or no class of a task to come can be named."
    )
    return Table(caption, columns, rows)


def _paired(above: Outcome, below: Outcome) -> list[str]:
    """Over the seeds that both have: the difference in the end, and where it is positive."""
    difference = _differences(above, below)
    return [spread(difference, "+"), f"{np.sum(difference > 0)} of {len(difference)}"]


def _differences(above: Outcome, below: Outcome) -> Float[np.ndarray, "seeds"]:
    """In the end, over the seeds that both have."""
    seeds = min(len(above.final), len(below.final))
    return above.final[:seeds] - below.final[:seeds]


def summarize(outcome: Outcome, naive: Outcome) -> RunSummary:
    """The criteria of a method's runs; a pass over a task is one of naive's steps."""
    seeds, tasks = outcome.steps.shape
    cost, samples = outcome.cost, outcome.samples
    model = counted_model_memory(cost.parameters, cost.parameter_copies, tasks)
    steps = np.diff(outcome.steps, prepend=0)
    passes = np.ceil(samples / naive.cost.batch_size)
    costs = Costs(
        model_memory=jnp.broadcast_to(model, (seeds, tasks)),
        sample_memory=jnp.asarray(outcome.stored_samples, jnp.float32),
        lifetime_memory=jnp.asarray(samples.sum(axis=1), jnp.float32),
        operations=jnp.asarray(cost.operations * steps, jnp.float32),
        pass_operations=jnp.asarray(naive.cost.operations * passes, jnp.float32),
    )
    # Means of shares may round above 1.
    return summarize_runs(jnp.clip(jnp.asarray(outcome.matrices, jnp.float32), 0, 1), costs)


def _criteria(
    by_name: Mapping[str, Outcome], naive: str, published: Published, scenario: str
) -> list[Table]:
    """Nothing without naive, whose steps are what a pass takes."""
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
        "over all times (A), efficiency of model size (MS), of samples storage (SSS) and of "
        "computation (CE: ten passes over the data as a share of what learning took, in the mean "
        "over tasks and at most 1, so that whatever takes ten passes or fewer has 1), backward "
        "transfer where it is positive (BWT+) and 1 less its loss where it is negative (REM), of "
        "BWT = the mean of R[i, j] − R[j, j] over all tasks j < i, and forward transfer (FWT, the "
        "mean of R[i, j] over j > i; – where no class of a task to come can be named, which "
        "counts as 0 in the score); their weighted means with the paper's weights (W2 as its own "
        "numbers have it, not as printed), and 1 less their weighted deviations. – where the "
        f"benchmark does not tell.{' ' * bool(printed)}{published.name if printed else ''}"
    )
    return [Table(caption, [Column("method"), *columns], rows)]


def _class_types(benchmark: Benchmark, by_name: Mapping[str, Outcome]) -> list[Table]:
    if benchmark.by_type is None:
        return []
    kinds = list(dict.fromkeys(kind for each in by_name.values() for kind in each.by_type))
    rows = [
        [name, *(dash(spread(each.by_type[kind])) if each.by_type else "nan" for kind in kinds)]
        for name, each in by_name.items()
    ]
    caption = (
        f"{benchmark.measure} after the last task if the labels of one type were all there is, "
        "over the samples that carry one; – where there are none."
    )
    columns = [Column("method"), *(Column(kind, "labels that are") for kind in kinds)]
    return [Table(caption, columns, rows)]


def _costs(by_name: Mapping[str, Outcome]) -> Table:
    rows = []
    for name, outcome in by_name.items():
        cost, held = outcome.cost, outcome.stored_samples[:, -1].mean()
        rows.append(
            [
                name,
                f"{cost.parameters:,}",
                f"{1 + cost.parameter_copies}",
                f"{4 * cost.parameters / 1e6:.2f}",
                f"{cost.memory_bytes / 1e6:.2f}",
                f"{held:,.0f}",
                f"{held * cost.sample_bytes / 1e6:.2f}" if cost.sample_bytes else "–",
                f"{cost.operations / 1e6:,.1f}",
                f"{outcome.steps[:, -1].mean():,.0f}",
                _seconds(outcome.seconds),
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
        Column("MFLOP a step", "computation"),
        Column("steps", "computation"),
        Column("seconds a run", "computation"),
    ]
    caption = (
        "What it costs. Copies by the criteria's counting, of a regulariser's anchor and "
        "importances, not of a teacher net; bytes are those really occupied. Samples of earlier "
        "tasks held while the last is learnt, and steps of the optimizer, are means over runs; "
        "operations are the compiled step's, without a sweep a task for importances; seconds are "
        "the median run's, with what was compiled for it (where strengths were chosen that was "
        "done before), on a machine that may have done other things; – where not known."
    )
    return Table(caption, columns, rows)


def _findings(outcomes: Outcomes) -> Table:
    orders = [("joint", "DER++"), ("DER++", "ER"), ("ER", "naive")]
    pairs: dict[str, list[tuple[str, str]]] = {
        "told": [(name, "naive") for name in REGULARISERS],
        "online": [("DER++", "naive")],
    }
    return _pairs(outcomes, {scenario: pairs.get(scenario, orders) for scenario in outcomes})


def _own_beside(outcomes: Outcomes, rows: Sequence[Method]) -> Table:
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
            found = _paired(by_name[above], by_name[below])
            rows.append([f"{above} above {below}", scenario, *found])
    columns = [
        Column("which"),
        Column("scenario"),
        Column("difference", "paired by seed"),
        Column("seeds where it holds", "paired by seed"),
    ]
    return Table("Differences after the last task on the same seeds.", columns, rows)


def strengths_table(criterion: str, outcomes: Outcomes) -> Table:
    """Of every method that has one: the grid, or that it was given."""
    rows = [
        [f"{name}, {scenario}", outcome.choice.told or "given", outcome.choice.chosen]
        for scenario, by_name in outcomes.items()
        for name, outcome in by_name.items()
        if outcome.choice.strength
    ]
    caption = (
        f"The {criterion} on validation samples of draws that are not reported, by strength; the "
        "greatest is chosen. One that diverges counts as 0."
    )
    columns = [Column("method"), Column(f"strength: {criterion}"), Column("chosen")]
    return Table(caption, columns, rows)


def settings_table(outcomes: Outcomes) -> Table:
    """What every method was made with, in a row for all scenarios where it is the same."""
    rows: dict[tuple[str, str], list[str]] = {}
    for scenario, by_name in outcomes.items():
        for name, outcome in by_name.items():
            drawn = {"samples drawn a step": outcome.drawn} if outcome.drawn else {}
            said = said_in_words({**outcome.settings, **drawn})
            if said:
                rows.setdefault((name, said), []).append(scenario)
    caption = (
        "Arguments of each method's function, by which its page of the documentation explains "
        "them; the optimizer, epochs and batches that all share stand under Training. A strength "
        "of two or more that were tried is the chosen one."
    )
    columns = [Column("method"), Column("scenarios"), Column("settings")]
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
    return Table("Methods that were not run.", [Column("method"), Column("it")], reasons)


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
        Column("new ones a task", "classes"),
        Column("later tasks that bring some", "classes"),
        Column("all tasks", "training samples"),
        Column("first task", "training samples"),
        Column("later tasks, mean (least to most)", "training samples"),
        Column("in-task validation samples"),
        Column("test samples"),
    ]
    caption = "A sample that two tasks train on, under different labels, counts twice."
    return Table(caption, columns, rows)


def sentence(name: str) -> str:
    """A name as it begins a sentence."""
    return name[:1].upper() + name[1:]


def _names_ahead(outcome: Outcome) -> bool:
    """Whether something was ever right of a task to come: where none of its classes is among the
    outputs, all is 0 for that reason alone."""
    ahead = np.triu(np.ones(outcome.matrices.shape[1:], bool), 1)
    return bool(np.any(outcome.matrices[:, ahead] != 0))


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


def _seconds(values: Float[np.ndarray, "seeds"]) -> str:
    return "–" if np.all(np.isnan(values)) else f"{np.nanmedian(values):.1f}"
