"""The paper's experiment: five strategies on ten tasks of ten classes (tables 1 and 2, figure 1).

    everlight cl_metrics icifar --preset demo

Presets:
  demo: the procedural world, five tasks of four classes, three strategies, two seeds.
  small: real images, 100 classes of Tiny-ImageNet, 200 training images each at 16x16, in ten tasks;
    a smaller net, less dropout, five epochs; five strategies, five seeds.
  paper: CIFAR-100 below EVERLIGHT_DATA, the paper's net, ten seeds; meant for an accelerator.

A preset of the one runner, which has the benchmark for any strategy: `continual run icifar`.
Task-incremental is the paper's protocol, as its FWT of 0.1 shows: a head of ten outputs with the
task identity is right by chance on later tasks.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from everlight.plots import plot_criteria
from everlight_experiments.cl_metrics import CITATION
from everlight_experiments.cl_metrics.paper_table import (
    CRITERIA,
    PAPER_CRITERIA,
    PRINTED,
)
from everlight_experiments.cl_metrics.record import (
    PAPER_METHODS,
    PLANS,
    DataSet,
    Plan,
    load_images,
    record,
)
from everlight_experiments.common.plan_settings import PlannedRun, changed_plan, plan_in_force
from everlight_experiments.common.plots import new_canvas, save
from everlight_experiments.common.report import Figure, FirstScreen, Section, write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Preset
from everlight_experiments.continual.plan import Seeds
from everlight_experiments.continual.report import report_sections, report_summary
from everlight_experiments.continual.report_tables import Published, summarize
from everlight_experiments.continual.run import save_outcomes, train_rows
from everlight_experiments.continual.runner import Outcomes, Runner


@dataclasses.dataclass(frozen=True)
class ICifarRun(PlannedRun):
    """Train five strategies on ten tasks of ten classes, with all criteria and the CL score."""

    data: DataSet | None = None
    """Data set to learn: procedural, tiny-imagenet or cifar100; None is the preset's."""
    seeds: Seeds | None = None
    """Number of evaluation seeds, each with its own task order; None is the preset's."""


def run_icifar(settings: ICifarRun, plans: Mapping[Preset, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("cl_metrics", "icifar", settings, shared=True)
    summary, first, sections = icifar_sections(folder, settings, plans)
    title = f"Continual learning: five strategies by seven criteria ({settings.preset})"
    return write_report(folder.path, title, summary, sections, first)


def icifar_sections(
    folder: RunFolder, settings: ICifarRun, plans: Mapping[Preset, Plan] = PLANS
) -> tuple[list[tuple[str, str]], FirstScreen, list[Section]]:
    """Trains everything and gives the report's summary, first screen and body."""
    plan = changed_plan(plans[settings.preset], settings.plan)
    plan = dataclasses.replace(
        plan, data=settings.data or plan.data, seeds=settings.seeds or plan.seeds
    )
    folder.tell_plan(plan_in_force(plan))
    benchmark = record(
        plan, load_images(plan, settings.seed), ("task-incremental", "class-incremental")
    )
    rows = [benchmark.row(PAPER_METHODS[name]) for name in plan.methods]
    outcomes = train_rows(Runner(folder, benchmark, settings.seed), rows, plan.seeds)
    save_outcomes(folder, benchmark, settings.seed, plan.seeds, outcomes)
    summary = report_summary(benchmark, settings.seed, plan.seeds, 1, folder.duration())
    published = Published(
        ("" if plan.data == "cifar100" else "The paper's data are CIFAR-100, not ours. ")
        + "The paper does not print the deviations behind its stabilities; no deviations give "
        "those of EWC, LwF and SI under all three weightings.",
        criteria={"task-incremental": PRINTED},
    )
    first, sections = report_sections(folder.path, benchmark, outcomes, rows, published)
    return (
        [("Paper", CITATION), *summary],
        first,
        [_spiders(folder.path, outcomes), *sections],
    )


def _spiders(folder: Path, outcomes: Outcomes) -> Section:
    panels = {
        f"ours, {scenario}": {
            name: summarize(outcome, by_name["Naive"]).mean for name, outcome in by_name.items()
        }
        for scenario, by_name in outcomes.items()
    }
    known = [name for name in outcomes["task-incremental"] if name in PAPER_CRITERIA]
    panels["the paper's"] = {
        name: dict(zip(CRITERIA, PAPER_CRITERIA[name], strict=True)) for name in known
    }
    caption = (
        "The seven criteria of every strategy, 0 at the centre and 1 at the rim; the CL score is "
        "their weighted mean."
    )
    said = [
        "Task-incremental is the paper's protocol; it has no class-incremental rows. "
        "Class-incrementally, regularization often does not beat Naive although old weights are "
        "kept: no term of the loss compares new with old classes, so the newest task's outputs "
        "dominate (van de Ven and Tolias 2019 find the same)."
    ]
    canvas, axes = new_canvas(len(panels), 4.2, 4.2, projection="polar")
    for axis, (title, criteria) in zip(axes, panels.items(), strict=True):
        plot_criteria(criteria, axis)
        axis.set_title(title)
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    figure = Figure(caption, save(canvas, folder / "criteria.png"))
    return Section("The seven criteria", said, [figure])
