"""The paper's experiment: five strategies on ten tasks of ten classes (tables 1 and 2, figure 1).

    python -m experiments cl_metrics icifar --scale demo

Scales:
  demo: the procedural world, five tasks of four classes, three strategies, two seeds.
  cpu: real images, 100 classes of Tiny-ImageNet, 200 training images each at 16x16, in ten tasks;
    a smaller net, less dropout, five epochs; five strategies, five seeds.
  paper: CIFAR-100 below EVERLIGHT_DATA, the paper's net, ten seeds; meant for an accelerator.

A preset of the one runner, which has the benchmark for any strategy: `continual run icifar`.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from experiments.cl_metrics import CITATION
from experiments.cl_metrics.icifar_report import Outcome, Scenario, SequenceRun, report_sections
from experiments.cl_metrics.record import PAPER_METHODS, PLANS, DataSet, Plan, load_images, record
from experiments.common.plan_settings import PlannedRun, changed_plan
from experiments.common.report import Section, write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Count, Scale
from experiments.continual.benchmark import Draw
from experiments.continual.runner import Runner

SCENARIOS: Mapping[Scenario, str] = {"task-aware": "told", "class-incremental": "not told"}
"""The paper's words for the runner's."""


@dataclasses.dataclass(frozen=True)
class ICifarRun(PlannedRun):
    """Ten tasks of ten classes: five strategies, all criteria and the CL score."""

    data: DataSet | None = None
    """None is the scale's: procedural, tiny-imagenet, cifar100."""
    seeds: Count | None = None
    """Runs of every strategy, each with its own task order; None is the scale's."""


def run_icifar(settings: ICifarRun, plans: Mapping[Scale, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("cl_metrics", "icifar", settings, shared=True)
    summary, sections = icifar_sections(folder, settings, plans)
    title = f"Continual learning: five strategies by seven criteria ({settings.scale})"
    return write_report(folder.path, title, summary, sections)


def icifar_sections(
    folder: RunFolder, settings: ICifarRun, plans: Mapping[Scale, Plan] = PLANS
) -> tuple[list[tuple[str, str]], list[Section]]:
    """Trains everything and gives the report's summary and body."""
    plan = changed_plan(plans[settings.scale], settings.plan)
    plan = dataclasses.replace(
        plan, data=settings.data or plan.data, seeds=settings.seeds or plan.seeds
    )
    images = load_images(plan, settings.seed)
    benchmark = record(plan, images, tuple(SCENARIOS.values()))
    runner = Runner(folder, benchmark, settings.seed)

    def outcome(scenario: str, name: str) -> Outcome:
        method = benchmark.row(PAPER_METHODS[name])
        choice = runner.choose(scenario, method)
        kept = runner.train(scenario, method, choice.strength, plan.seeds)
        runs = SequenceRun(
            *(np.stack([each[key] for each in kept]) for key in ("matrix", "losses", "validation")),
            np.diff(np.stack([each["steps"] for each in kept]), prepend=0),
            np.stack([each["stored_samples"] for each in kept]),
        )
        return Outcome(runner.cost(scenario, method), runs, choice)

    outcomes = {
        words: {name: outcome(scenario, name) for name in plan.methods}
        for words, scenario in SCENARIOS.items()
    }
    folder.save_results(
        **{
            f"{scenario}/{name}/{field}": value
            for scenario, by_name in outcomes.items()
            for name, found in by_name.items()
            for field, value in found.runs._asdict().items()
        }
    )
    per_class = np.bincount(images.train_labels)
    last = settings.seed + plan.seeds - 1
    summary = [
        ("Paper", CITATION),
        (
            "Data",
            f"{images.name}: {plan.classes} classes of {per_class.min()} training images (a tenth "
            f"of them validates), {plan.side}×{plan.side} pixels, in {plan.tasks} tasks",
        ),
        ("Seeds", f"{plan.seeds} ({settings.seed} to {last}), each with a task order of its own"),
        (
            "Selection rule",
            "epoch: best in-task validation, of equals the last; strength: greatest A on the "
            "validation images of a task order that is not reported",
        ),
        ("Training", benchmark.training),
        ("Duration", folder.duration()),
    ]
    first = benchmark.sequence("told", PAPER_METHODS["Naive"], Draw("reported", settings.seed, 0))
    trained_on = int(np.sum(first.tasks.train.mask))
    paper_data = plan.data == "cifar100"
    return summary, report_sections(folder.path, outcomes, images, trained_on, paper_data)
