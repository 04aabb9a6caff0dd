"""Tables and figures of the iCIFAR-100 experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from data_pipelines.images.image_set import ImageSet
from everlight.metrics.accuracy_matrix import (
    accuracy,
    accuracy_over_time,
    average_incremental_accuracy,
    final_average_accuracy,
    forgetting,
)
from everlight.metrics.cl_score import (
    WEIGHTINGS,
    Costs,
    RunSummary,
    cl_score,
    cl_stability,
    counted_model_memory,
    summarize_runs,
)
from experiments.cl_metrics.paper_table import (
    CRITERIA,
    PAPER_CRITERIA,
    PAPER_SCORES,
    PAPER_STABILITIES,
)
from experiments.cl_metrics.plots import plot_spiders
from experiments.common.plots import plot_curves, plot_matrices, plot_samples
from experiments.common.report import PAPER, Column, Figure, Section, Table
from experiments.continual.report import spread
from experiments.continual.runner import Cost
from experiments.continual.selection import Choice

OURS = "ours: mean ± standard deviation over seeds"
Scenario = Literal["task-aware", "class-incremental"]


class SequenceRun(NamedTuple):
    """What trained sequences leave, as raw arrays."""

    accuracy: Float[np.ndarray, "seeds t t"]
    """The matrix of its scenario's scoring."""
    losses: Float[np.ndarray, "seeds t e"]
    validation: Float[np.ndarray, "seeds t e"]
    steps: Int[np.ndarray, "seeds t"]
    """Of each task."""
    stored_samples: Int[np.ndarray, "seeds t"]


class Outcome(NamedTuple):
    """All runs of a method in a scenario."""

    facts: Cost
    runs: SequenceRun
    choice: Choice
    """By A on validation images of an unreported task order."""


Outcomes = Mapping[Scenario, Mapping[str, Outcome]]


def summarize(outcome: Outcome, naive: Outcome, samples: int, epochs: int) -> RunSummary:
    """The criteria of a method's runs.

    Args:
      outcome: of the method.
      naive: whose steps make one pass over a task's data.
      samples: training samples of all tasks.
      epochs: that naive trained each task.
    """
    runs, tasks = outcome.runs.steps.shape
    model = counted_model_memory(outcome.facts.parameters, outcome.facts.parameter_copies, tasks)
    costs = Costs(
        model_memory=jnp.broadcast_to(model, (runs, tasks)),
        sample_memory=jnp.asarray(outcome.runs.stored_samples, jnp.float32),
        lifetime_memory=jnp.full(runs, samples, jnp.float32),
        operations=jnp.asarray(outcome.facts.operations * outcome.runs.steps, jnp.float32),
        pass_operations=jnp.asarray(
            naive.facts.operations * naive.runs.steps / epochs, jnp.float32
        ),
    )
    return summarize_runs(jnp.asarray(outcome.runs.accuracy), costs)


def report_sections(
    folder: Path, outcomes: Outcomes, images: ImageSet, train_samples: int, paper_data: bool
) -> list[Section]:
    """Everything between the summary and the settings.

    Args:
      folder: where pictures go.
      outcomes: by scenario and method; both scenarios have the same methods.
      images: the data set.
      train_samples: that all tasks train on.
      paper_data: whether the data are the paper's own; if not, every table says so.
    """
    epochs = next(iter(outcomes["task-aware"].values())).runs.losses.shape[-1]
    summaries = {
        scenario: {
            name: summarize(outcome, methods["Naive"], train_samples, epochs)
            for name, outcome in methods.items()
        }
        for scenario, methods in outcomes.items()
    }
    data = "" if paper_data else f" Ours is on {images.name}, the paper's on CIFAR-100."
    sections = [_first_look(folder, outcomes, images), _spiders(folder, summaries, data)]
    for scenario, methods in outcomes.items():
        matrices = {name: np.mean(o.runs.accuracy, axis=0) for name, o in methods.items()}
        picture = plot_matrices(folder / f"matrices_{scenario}.png", matrices)
        items = [
            _criteria_table(scenario, summaries[scenario], data),
            _score_table(scenario, summaries[scenario], data),
            _against_naive(methods),
            Figure(
                "Accuracy matrices, mean over seeds: after learning the task of the row, on the "
                "task of the column.",
                picture,
            ),
        ]
        sections.append(Section(_TITLES[scenario], _explanations(scenario), items))
    return [*sections, _costs_section(outcomes, images), _grid_section(outcomes)]


_TITLES: dict[Scenario, str] = {
    "task-aware": "Task-aware: every task has its own head, and the test tells the task",
    "class-incremental": "Class-incremental: one head, and the test does not tell the task",
}


def _explanations(scenario: Scenario) -> list[str]:
    if scenario == "task-aware":
        return [
            "The paper's protocol, as its FWT of .1 shows: a head of ten outputs that knows the "
            "task is right by chance on tasks not learned yet."
        ]
    return [
        "The same nets without that knowledge: loss and prediction run over all classes seen so "
        "far. The paper has no such rows. A regulariser that is not above Naive here keeps its old "
        "weights all the same: no term of its loss ever compares a new class with an old one, so "
        "the newest task's outputs are the greatest whatever is retained (van de Ven and Tolias "
        "2019 find the same)."
    ]


def _first_look(folder: Path, outcomes: Outcomes, images: ImageSet) -> Section:
    over_time = {
        scenario: {
            name: np.asarray(jax.vmap(accuracy_over_time)(jnp.asarray(outcome.runs.accuracy)))
            for name, outcome in methods.items()
        }
        for scenario, methods in outcomes.items()
    }
    picture = plot_curves(
        folder / "accuracy_over_time.png",
        over_time,
        "accuracy on the tasks learnt so far",
        top=1,
        ddof=1,
    )
    samples = plot_samples(folder / "samples.png", images, lambda name: name.split(",")[0])
    return Section(
        "Accuracy over time",
        [],
        [
            Figure(
                "Mean accuracy on the tasks learned so far; bands are one standard deviation over "
                "seeds.",
                picture,
            ),
            Figure(f"{images.name}: training images of some classes.", samples),
        ],
    )


def _spiders(
    folder: Path, summaries: Mapping[Scenario, Mapping[str, RunSummary]], data: str
) -> Section:
    panels = {
        f"ours, {scenario}": {name: summary.mean for name, summary in methods.items()}
        for scenario, methods in summaries.items()
    }
    known = [name for name in summaries["task-aware"] if name in PAPER_CRITERIA]
    panels["the paper's"] = {
        name: dict(zip(CRITERIA, PAPER_CRITERIA[name], strict=True)) for name in known
    }
    caption = (
        "The seven criteria of every strategy, 0 in the middle and 1 at the rim; the CL score is "
        f"their weighted mean.{data}"
    )
    return Section(
        "The seven criteria", [], [Figure(caption, plot_spiders(folder / "criteria.png", panels))]
    )


def _criteria_table(scenario: Scenario, summaries: Mapping[str, RunSummary], data: str) -> Table:
    with_paper = scenario == "task-aware"
    columns = [Column("strategy"), *(Column(name, OURS) for name in CRITERIA)]
    if with_paper:
        columns += [Column(name, PAPER) for name in CRITERIA]
    rows = []
    for name, summary in summaries.items():
        row = [name, *(_spread(summary.mean[c], summary.deviation[c]) for c in CRITERIA)]
        if with_paper:
            row += _paper_row(PAPER_CRITERIA.get(name), len(CRITERIA))
        rows.append(row)
    caption = (
        "Criteria, each in [0, 1] and better when higher: accuracy over all times, remembering, "
        "positive backward and forward transfer, efficiency of model size, of samples storage "
        f"and of computation (epsilon 10).{data if with_paper else ''}"
    )
    return Table(caption, columns, rows)


def _score_table(scenario: Scenario, summaries: Mapping[str, RunSummary], data: str) -> Table:
    with_paper = scenario == "task-aware"
    columns = [Column("strategy")]
    columns += [Column(name, "CL score") for name in WEIGHTINGS]
    columns += [Column(name, "CL stability") for name in WEIGHTINGS]
    if with_paper:
        columns += [Column(f"CL score {name}", PAPER) for name in WEIGHTINGS]
        columns += [Column(f"CL stability {name}", PAPER) for name in WEIGHTINGS]
    rows = []
    for name, summary in summaries.items():
        row = [name]
        row += [f"{float(cl_score(summary.mean, w)):.3f}" for w in WEIGHTINGS.values()]
        row += [f"{float(cl_stability(summary.deviation, w)):.3f}" for w in WEIGHTINGS.values()]
        if with_paper:
            for printed in (PAPER_SCORES, PAPER_STABILITIES):
                values = [printed[name][w] for w in WEIGHTINGS] if name in printed else None
                row += _paper_row(values, len(WEIGHTINGS))
        rows.append(row)
    said = (
        f"{data} The paper does not print the deviations behind its stabilities; no deviations "
        "give those of EWC, LwF and SI under all three weightings."
    )
    caption = (
        "CL score and stability under the paper's three weightings; W2 as its own numbers have "
        f"it, not as printed.{said if with_paper else ''}"
    )
    return Table(caption, columns, rows)


def _paper_row(values: Sequence[float] | None, count: int) -> list[str]:
    """Of a strategy that the paper has, or that it has not."""
    return ["–"] * count if values is None else [f"{value:.4f}" for value in values]


def _against_naive(methods: Mapping[str, Outcome]) -> Table:
    def of_runs(metric, outcome: Outcome) -> np.ndarray:
        return np.asarray(jax.vmap(metric)(jnp.asarray(outcome.runs.accuracy)))

    naive = of_runs(accuracy, methods["Naive"])
    rows = []
    for name, outcome in methods.items():
        ours = of_runs(accuracy, outcome)
        better = f"{np.sum(ours > naive)} of {len(naive)}"
        metrics = (final_average_accuracy, average_incremental_accuracy, forgetting)
        rows.append(
            [
                name,
                *(spread(of_runs(metric, outcome)) for metric in metrics),
                "–" if name == "Naive" else spread(ours - naive, sign="+"),
                "–" if name == "Naive" else better,
            ]
        )
    columns = [
        Column("strategy"),
        Column("final accuracy"),
        Column("average incremental accuracy"),
        Column("forgetting"),
        Column("A minus Naive's", "paired by seed"),
        Column("seeds above Naive", "paired by seed"),
    ]
    return Table("Against Naive on the same task orders.", columns, rows)


def _costs_section(outcomes: Outcomes, images: ImageSet) -> Section:
    image_bytes = int(np.prod(images.images.shape[1:]))
    rows = []
    for name, outcome in outcomes["class-incremental"].items():
        facts = outcome.facts
        held = int(np.mean(outcome.runs.stored_samples[:, -1]))
        rows.append(
            [
                name,
                f"{facts.parameters:,}",
                f"{1 + facts.parameter_copies}",
                f"{4 * facts.parameters / 1e6:.2f}",
                f"{facts.memory_bytes / 1e6:.2f}",
                f"{held:,}",
                f"{held * image_bytes / 1e6:.2f}",
                f"{facts.operations / 1e6:,.0f}",
                f"{int(np.mean(np.sum(outcome.runs.steps, axis=1))):,}",
            ]
        )
    columns = [
        Column("strategy"),
        Column("parameters", "model"),
        Column("copies counted (MS)", "model"),
        Column("parameters, MB", "model"),
        Column("strategy's memory, MB", "model"),
        Column("held in the last task", "samples"),
        Column("MB", "samples"),
        Column("MFLOP a step", "computation"),
        Column("steps", "computation"),
    ]
    caption = (
        "Memory by the paper's counting rule and in bytes that are really occupied, and "
        "operations from the compiled step (class-incremental). The paper counts a regulariser's "
        "anchor and importances, not a teacher net, and neither does MS above. One sweep a task "
        "for importances is left out of the operations."
    )
    return Section("What it costs", [], [Table(caption, columns, rows)])


def _grid_section(outcomes: Outcomes) -> Section:
    rows = [
        [f"{name}, {scenario}", outcome.choice.told, outcome.choice.chosen]
        for scenario, methods in outcomes.items()
        for name, outcome in methods.items()
        if len(outcome.choice.strengths)
    ]
    caption = (
        "A on the validation images of one task order that is not reported, by strength; the "
        "greatest is chosen."
    )
    columns = [Column("strategy"), Column("strength: A"), Column("chosen")]
    return Section("How strengths were chosen", [], [Table(caption, columns, rows)])


def _spread(mean: float, deviation: float) -> str:
    after = "" if np.isnan(deviation) else f" ± {float(deviation):.3f}"
    return f"{float(mean):.3f}{after}"
