"""The one report of strategies on a benchmark."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.metrics import (
    backward_transfer,
    forgetting,
    forward_transfer,
)
from experiments.common.plots import plot_curves, plot_matrices
from experiments.common.report import Column, Figure, Section, Table
from experiments.continual.benchmark import Benchmark
from experiments.continual.methods import Method, why_not
from experiments.continual.plan import StrategiesRun
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


def report_summary(
    benchmark: Benchmark, settings: StrategiesRun, duration: str
) -> list[tuple[str, str]]:
    """The facts that every report owes."""
    last = settings.seed + settings.seeds - 1
    what = benchmark.draws
    return [
        ("Data", benchmark.note + benchmark.counts),
        (
            "Seeds",
            f"{settings.seeds} ({settings.seed} to {last}), each with its own {what}; ± is the "
            "standard deviation over them",
        ),
        (
            "Selection rule",
            RULE.format(measure=benchmark.measure, draws=settings.tuning_orders, what=what),
        ),
        ("Training", benchmark.training),
        ("Duration", duration),
    ]


def report_sections(
    folder: Path, benchmark: Benchmark, outcomes: Outcomes, rows: Sequence[Method]
) -> list[Section]:
    """Everything between the summary and the settings."""
    return [
        _overview(folder, benchmark, outcomes),
        *(
            _scenario(folder, benchmark, scenario, by_name)
            for scenario, by_name in outcomes.items()
        ),
        *(
            Section(title, [], [table])
            for title, table in (
                ("The order that the literature leads one to expect", _findings(outcomes)),
                ("How strengths were chosen", _grids(benchmark, outcomes)),
                ("What makes no sense here", _left_out(benchmark, rows)),
            )
            if table.rows
        ),
        *benchmark.sections(folder),
    ]


def _overview(folder: Path, benchmark: Benchmark, outcomes: Outcomes) -> Section:
    measure = benchmark.measure
    finals = {
        scenario: {name: outcome.final for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    curves = {
        scenario: {name: outcome.over_time for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    columns, rows = [Column("method")], []
    for scenario in outcomes:
        columns += [Column(f"final {measure}", scenario), Column("forgetting", scenario)]
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
    table = Table("Mean ± standard deviation over seeds.", columns, rows)
    return Section(
        f"Final {measure}",
        [each for each in said if each],
        [
            # Of one scenario its own table says the same.
            *([table] if len(outcomes) > 1 else []),
            Figure(
                f"{measure.capitalize()} on all tasks after the last; bars are one standard "
                "deviation.",
                plot_finals(folder / "final_accuracy.png", finals, measure),
            ),
            Figure(
                f"{measure.capitalize()} on what was learned so far; bands are one standard "
                "deviation over seeds.",
                plot_curves(
                    folder / "accuracy_over_time.png",
                    curves,
                    f"{measure} on what was learnt so far",
                    ddof=1,
                ),
            ),
        ],
    )


def _scenario(
    folder: Path, benchmark: Benchmark, scenario: str, by_name: Mapping[str, Outcome]
) -> Section:
    measure = benchmark.measure
    columns = [
        Column("method"),
        Column(f"final {measure}"),
        Column("mean over time"),
        *map(Column, METRICS),
        Column(f"final {measure} minus naive's", "paired by seed"),
        Column("seeds above naive", "paired by seed"),
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
                _known(outcome, outcome.over_time.mean(axis=1)),
                *(_known(outcome, _of_runs(metric, outcome)) for metric in METRICS.values()),
                "–" if name == "naive" else spread(above, "+"),
                "–" if name == "naive" else f"{np.sum(above > 0)} of {len(above)}",
                f"{outcome.stored_samples[:, -1].mean():,.0f}",
                f"{outcome.steps[:, -1].mean():,.0f}",
                _seconds(outcome.seconds),
            ]
        )
    caption = (
        f"Forgetting is the loss since a task's best {measure}, backward transfer the mean change "
        f"since it was learnt, forward transfer the {measure} on tasks not learnt yet, chance "
        "included; – where the benchmark does not tell. Samples of earlier tasks held while the "
        "last is learnt, and steps of the optimizer, are means over runs; seconds are the median "
        "run's, on a machine that may have done other things, or – where not known."
    )
    matrices = {name: outcome.matrices.mean(axis=0) for name, outcome in by_name.items()}
    picture = plot_matrices(
        folder / f"matrices_{scenario.replace(' ', '_')}.png", matrices, measure
    )
    return Section(
        scenario.capitalize(),
        [],
        [
            Table(caption, columns, rows),
            Figure(
                f"{measure.capitalize()}, mean over seeds: after learning the task of the row, on "
                "the task of the column; white where nothing is told, or a run diverged.",
                picture,
            ),
        ],
    )


def _findings(outcomes: Outcomes) -> Table:
    orders = [("joint", "DER++"), ("DER++", "ER"), ("ER", "naive")]
    pairs: dict[str, list[tuple[str, str]]] = {
        "told": [(name, "naive") for name in REGULARISERS],
        "online": [("DER++", "naive")],
    }
    rows = []
    for scenario, by_name in outcomes.items():
        for above, below in pairs.get(scenario, orders):
            if above not in by_name or below not in by_name:
                continue
            difference = by_name[above].final - by_name[below].final
            held = f"{np.sum(difference > 0)} of {len(difference)}"
            rows.append([f"{above} above {below}", scenario, spread(difference, "+"), held])
    columns = [
        Column("finding"),
        Column("scenario"),
        Column("difference", "paired by seed"),
        Column("seeds where it holds", "paired by seed"),
    ]
    return Table("Differences after the last task on the same seeds.", columns, rows)


def _grids(benchmark: Benchmark, outcomes: Outcomes) -> Table:
    rows = [
        [f"{name}, {scenario}", outcome.choice.told, outcome.choice.chosen]
        for scenario, by_name in outcomes.items()
        for name, outcome in by_name.items()
        if len(outcome.choice.strengths)
    ]
    caption = (
        f"Final {benchmark.measure} on validation samples of draws that are not reported, by "
        "strength; the greatest is chosen. One that diverges counts as 0."
    )
    columns = [Column("method"), Column(f"strength: {benchmark.measure}"), Column("chosen")]
    return Table(caption, columns, rows)


def _left_out(benchmark: Benchmark, rows: Sequence[Method]) -> Table:
    reasons = [
        [f"{method.name}, {scenario}", reason]
        for scenario in benchmark.scenarios
        for method in rows
        if (reason := why_not(method, benchmark.offers(scenario))) is not None
    ]
    return Table("Methods that were not run.", [Column("method"), Column("it")], reasons)


def _of_runs(metric: Callable, outcome: Outcome) -> Float[np.ndarray, "seeds"]:
    matrices = outcome.matrices
    if metric is not forward_transfer:
        # Of tasks to come they want nothing but a maximum, which those do not raise.
        ahead = np.triu(np.ones(matrices.shape[1:], bool), 1)
        matrices = np.where(ahead & np.isnan(matrices), 0, matrices)
    values = np.asarray(jax.vmap(metric)(jnp.asarray(matrices)))
    # A maximum or a minimum may pass over NaN.
    return np.where(outcome.diverged_at[:, 0] >= 0, np.nan, values)


def spread(values: Float[np.ndarray, "seeds"], sign: str = "") -> str:
    """Mean and standard deviation over seeds; nan where one is NaN."""
    deviation = np.std(values, ddof=1) if len(values) > 1 else np.nan
    return f"{values.mean():{sign}.3f}" + ("" if np.isnan(deviation) else f" ± {deviation:.3f}")


def _known(outcome: Outcome, values: Float[np.ndarray, "seeds"]) -> str:
    """As `spread`; – where runs that have not diverged do not tell."""
    alive = outcome.diverged_at[:, 0] < 0
    return "–" if np.isnan(values[alive]).any() else spread(values)


def _seconds(values: Float[np.ndarray, "seeds"]) -> str:
    return "–" if np.all(np.isnan(values)) else f"{np.nanmedian(values):.1f}"
