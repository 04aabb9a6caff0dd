"""The one report of strategies on a benchmark."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.metrics import (
    average_incremental_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
)
from experiments.common.plots import plot_samples
from experiments.common.report import Column, Figure, Section, Table
from experiments.continual.benchmark import MOMENTUM, Benchmark
from experiments.continual.methods import Scenario
from experiments.continual.plan import StrategiesRun
from experiments.continual.plots import (
    plot_finals,
    plot_matrices,
    plot_over_time,
    short_name,
)
from experiments.continual.runner import Outcome, Outcomes
from experiments.continual.selection import RULE

MOST_LISTED = 200
"""Classes that the report lists."""
REGULARISERS = ("EWC", "online EWC", "SI", "MAS", "LwF")
METRICS: Mapping[str, Callable] = {
    "average incremental accuracy": average_incremental_accuracy,
    "forgetting": forgetting,
    "backward transfer": backward_transfer,
    "forward transfer": forward_transfer,
}
_MEANING: dict[Scenario, str] = {
    "told": "Told: every task has a head of its own, and the test tells the task.",
    "not told": "Not told: one head over all classes seen so far.",
    "online": "Online: not told, and every sample comes once; strategies that need to know where a "
    "task ends are told.",
}


def report_summary(
    benchmark: Benchmark, settings: StrategiesRun, duration: str
) -> list[tuple[str, str]]:
    """The facts that every report owes."""
    plan, images = benchmark.plan, benchmark.images
    sequence = benchmark.sequence(settings.seed, "reported")
    trained = int(np.sum(sequence.tasks.train.mask))
    sizes = sorted(set(np.bincount(np.asarray(sequence.class_task)).tolist()))
    last = settings.seed + settings.seeds - 1
    return [
        (
            "Data",
            f"{benchmark.note}; {trained:,} images train, {len(images.train_labels) - trained:,} "
            f"choose strengths, {len(images.test_labels):,} test; {plan.tasks} tasks of "
            f"{' or '.join(map(str, sizes))} classes",
        ),
        (
            "Seeds",
            f"{settings.seeds} ({settings.seed} to {last}), each with an order of classes of its "
            "own; ± is the standard deviation over them",
        ),
        ("Selection rule", RULE.format(orders=settings.tuning_orders)),
        (
            "Training",
            f"{benchmark.net_note}, gradient descent at {plan.rate:g} with momentum "
            f"{MOMENTUM:g}; {plan.epochs} epochs a task in steps of {plan.batch_size}; online one "
            f"pass in steps of {plan.online_batch}; {plan.exemplars} exemplars a class",
        ),
        ("Duration", duration),
    ]


def report_sections(folder: Path, benchmark: Benchmark, outcomes: Outcomes) -> list[Section]:
    """Everything between the summary and the settings."""
    return [
        _overview(folder, outcomes),
        *(_scenario(folder, scenario, by_name) for scenario, by_name in outcomes.items()),
        *(
            Section(title, [], [table])
            for title, table in (
                ("The order that the literature leads one to expect", _findings(outcomes)),
                ("How strengths were chosen", _grids(outcomes)),
            )
            if table.rows
        ),
        data_section(folder, benchmark),
    ]


def _overview(folder: Path, outcomes: Outcomes) -> Section:
    finals = {
        scenario: {name: outcome.final for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    curves = {
        scenario: {name: over_time(outcome.matrices) for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    columns, rows = [Column("method")], []
    for scenario in outcomes:
        columns += [Column("final accuracy", scenario), Column("forgetting", scenario)]
    for name in dict.fromkeys(name for by_name in outcomes.values() for name in by_name):
        row = [name]
        for by_name in outcomes.values():
            outcome = by_name.get(name)
            row += (
                ["–"] * 2
                if outcome is None
                else [spread(outcome.final), spread(_of_runs(forgetting, outcome))]
            )
        rows.append(row)
    gone = [
        f"{name}, {scenario}: {outcome.diverged} of {len(outcome.matrices)} runs"
        for scenario, by_name in outcomes.items()
        for name, outcome in by_name.items()
        if outcome.diverged
    ]
    said = [" ".join(_MEANING[scenario] for scenario in outcomes)]
    if any("joint" in by_name for by_name in outcomes.values()):
        said.append("joint learns nothing before the last task, and then all of them at once.")
    if gone:
        said.append(
            f"Diverged, and nan wherever they count: {'; '.join(gone)}. A lower rate may help."
        )
    table = Table("Mean ± standard deviation over orders of classes.", columns, rows)
    return Section(
        "Final accuracy",
        said,
        [
            # Of one scenario its own table says the same.
            *([table] if len(outcomes) > 1 else []),
            Figure(
                "Mean accuracy on all tasks after the last; bars are one standard deviation.",
                plot_finals(folder / "final_accuracy.png", finals),
            ),
            Figure(
                "Mean accuracy on the tasks learned so far; bands are one standard deviation over "
                "orders.",
                plot_over_time(folder / "accuracy_over_time.png", curves),
            ),
        ],
    )


def _scenario(folder: Path, scenario: Scenario, by_name: Mapping[str, Outcome]) -> Section:
    columns = [
        Column("method"),
        Column("final accuracy"),
        *map(Column, METRICS),
        Column("final accuracy minus naive's", "paired by order"),
        Column("orders above naive", "paired by order"),
        Column("samples held", "costs"),
        Column("steps", "costs"),
        Column("seconds a run", "costs"),
    ]
    rows = []
    for name, outcome in by_name.items():
        above = outcome.final - by_name["naive"].final
        rows.append(
            [
                name,
                spread(outcome.final),
                *(spread(_of_runs(metric, outcome)) for metric in METRICS.values()),
                "–" if name == "naive" else spread(above, "+"),
                "–" if name == "naive" else f"{np.sum(above > 0)} of {len(above)}",
                f"{outcome.stored_samples[:, -1].mean():,.0f}",
                f"{outcome.steps[:, -1].mean():,.0f}",
                _seconds(outcome.seconds),
            ]
        )
    caption = (
        "Forgetting is the loss since a task's best accuracy, backward transfer the mean change "
        "since it was learnt, forward transfer the accuracy on tasks not learnt yet, chance "
        "included. Samples of earlier tasks held while the last is learnt, and steps of the "
        "optimizer, are means over runs; seconds are the median run's, on a machine that may have "
        "done other things, or – where not known."
    )
    matrices = {name: outcome.matrices.mean(axis=0) for name, outcome in by_name.items()}
    picture = plot_matrices(folder / f"matrices_{scenario.replace(' ', '_')}.png", matrices)
    return Section(
        scenario.capitalize(),
        [],
        [
            Table(caption, columns, rows),
            Figure(
                "Accuracy matrices, mean over orders: after learning the task of the row, on the "
                "task of the column; white where a run diverged.",
                picture,
            ),
        ],
    )


def _findings(outcomes: Outcomes) -> Table:
    pairs: Sequence[tuple[Scenario, str, str]] = [
        ("not told", "joint", "DER++"),
        ("not told", "DER++", "ER"),
        ("not told", "ER", "naive"),
        ("online", "DER++", "naive"),
        *(("told", name, "naive") for name in REGULARISERS),
    ]
    rows = []
    for scenario, above, below in pairs:
        by_name = outcomes.get(scenario, {})
        if above in by_name and below in by_name:
            difference = by_name[above].final - by_name[below].final
            held = f"{np.sum(difference > 0)} of {len(difference)}"
            rows.append([f"{above} above {below}", scenario, spread(difference, "+"), held])
    columns = [
        Column("finding"),
        Column("scenario"),
        Column("difference", "paired by order"),
        Column("orders where it holds", "paired by order"),
    ]
    return Table("Differences of final accuracy on the same orders.", columns, rows)


def _grids(outcomes: Outcomes) -> Table:
    rows = []
    for scenario, by_name in outcomes.items():
        for name, outcome in by_name.items():
            choice = outcome.choice
            if not len(choice.strengths):
                continue
            tried = zip(choice.strengths, choice.tried, strict=True)
            edge = " (edge of the grid)" if choice.at_the_edge else ""
            rows.append(
                [
                    f"{name}, {scenario}",
                    "; ".join(f"{strength:g}: {value:.3f}" for strength, value in tried),
                    f"{choice.strength:g}{edge}",
                ]
            )
    caption = (
        "Final accuracy on the validation samples of orders that are not reported, by strength; "
        "the greatest is chosen. An order that diverges counts as 0."
    )
    columns = [Column("method"), Column("strength: accuracy"), Column("chosen")]
    return Table(caption, columns, rows)


def data_section(folder: Path, benchmark: Benchmark) -> Section:
    """The classes and, where there are images, some of them."""
    images, classes = benchmark.images, benchmark.classes
    train, test = (
        np.bincount(labels, minlength=classes)
        for labels in (images.train_labels, images.test_labels)
    )
    rows = [
        [name, f"{train[label]:,}", f"{test[label]:,}"]
        for label, name in enumerate(images.class_names[:MOST_LISTED])
    ]
    caption = "Images of each class; those that choose strengths are among the training images."
    if classes > MOST_LISTED:
        caption += f" The first {MOST_LISTED} of {classes:,}."
    table = Table(caption, [Column("class"), Column("training"), Column("test")], rows)
    if not images.images.size:
        return Section("The data", [], [table])
    said = "Training images of some classes, as nets see them."
    samples = Figure(said, plot_samples(folder / "samples.png", images, short_name))
    return Section("The data", [], [samples, table])


def over_time(matrices: Float[np.ndarray, "seeds t t"]) -> Float[np.ndarray, "seeds t"]:
    """Mean accuracy on the tasks so far."""
    learned = np.tri(matrices.shape[1])
    return np.sum(matrices * learned, axis=2) / np.sum(learned, axis=1)


def _of_runs(metric: Callable, outcome: Outcome) -> Float[np.ndarray, "seeds"]:
    values = np.asarray(jax.vmap(metric)(jnp.asarray(outcome.matrices)))
    # A maximum or a minimum may pass over NaN.
    return np.where(outcome.diverged_at[:, 0] >= 0, np.nan, values)


def spread(values: Float[np.ndarray, "seeds"], sign: str = "") -> str:
    """Mean and standard deviation over seeds; nan where one is NaN."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return f"{values.mean():{sign}.3f}" + ("" if np.isnan(deviation) else f" ± {deviation:.3f}")


def _seconds(values: Float[np.ndarray, "seeds"]) -> str:
    return "–" if np.all(np.isnan(values)) else f"{np.nanmedian(values):.1f}"
