"""The paper's experiment: five strategies on ten tasks of ten classes (tables 1 and 2, figure 1).

    python -m experiments cl_metrics icifar --scale demo

Scales:
  demo: the procedural world, five tasks of four classes, three strategies, two seeds.
  cpu: real images, 100 classes of Tiny-ImageNet, 200 training images each at 16x16, in ten tasks;
    a smaller net, less dropout, five epochs; five strategies, five seeds.
  paper: CIFAR-100 below EVERLIGHT_DATA, the paper's net, ten seeds; meant for an accelerator.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from everlight.continual.engine.sequence import Protocol
from experiments.cl_metrics import CITATION
from experiments.cl_metrics.icifar_report import Outcome, report_sections
from experiments.cl_metrics.methods import SCENARIOS, Scenario
from experiments.cl_metrics.training import DataSet, Plan, Trainer, load_images
from experiments.common.report import Section, write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Count, RunSettings, Scale

TUNING_SEED = 1_000
"""Task orders from here on choose strengths and are never reported."""

# The paper names neither epochs nor batches; its CE of .4492 for Naive means 22 epochs at its
# epsilon of 10.
PLANS: Mapping[Scale, Plan] = {
    "demo": Plan(
        data="procedural",
        tasks=5,
        classes=20,
        side=16,
        channels=(16, 32),
        hidden=64,
        protocol=Protocol(epochs=6),
        seeds=2,
        methods=("Naive", "Cumulative", "EWC"),
        strengths_tried=2,
    ),
    "cpu": Plan(
        data="tiny-imagenet",
        tasks=10,
        classes=100,
        side=16,
        channels=(16, 32),
        hidden=64,
        protocol=Protocol(epochs=5),
        seeds=5,
        # The paper's dropout leaves so small a net at chance.
        dropout=(0.0, 0.0, 0.25),
        rate=3e-3,
        per_class=(200, 50),
    ),
    "paper": Plan(
        data="cifar100",
        tasks=10,
        classes=100,
        side=32,
        channels=(32, 64),
        hidden=512,
        protocol=Protocol(epochs=22),
        seeds=10,
        per_class=(500, 100),
    ),
}


@dataclasses.dataclass(frozen=True)
class ICifarRun(RunSettings):
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
    plan = plans[settings.scale]
    plan = dataclasses.replace(
        plan, data=settings.data or plan.data, seeds=settings.seeds or plan.seeds
    )
    images = load_images(plan, settings.seed)
    seeds = [settings.seed + number for number in range(plan.seeds)]
    trainer = Trainer(folder, plan, images, seeds, TUNING_SEED + settings.seed)
    outcomes: dict[Scenario, dict[str, Outcome]] = {}
    for scenario in SCENARIOS:
        outcomes[scenario] = {}
        for name in plan.methods:
            grid = trainer.try_strengths(name, scenario)
            strength = max(grid, key=lambda value: np.nan_to_num(grid[value], nan=-1), default=0.0)
            runs = trainer.train(name, scenario, strength)
            facts = trainer.facts(name, scenario)
            outcomes[scenario][name] = Outcome(facts, runs, strength, grid)
    folder.save_results(
        **{
            f"{scenario}/{name}/{field}": value
            for scenario, by_name in outcomes.items()
            for name, outcome in by_name.items()
            for field, value in outcome.runs._asdict().items()
        }
    )
    per_class = np.bincount(images.train_labels)
    summary = [
        ("Paper", CITATION),
        (
            "Data",
            f"{images.name}: {plan.classes} classes of {per_class.min()} training images (a tenth "
            f"of them validates), {plan.side}×{plan.side} pixels, in {plan.tasks} tasks",
        ),
        ("Seeds", f"{plan.seeds} ({seeds[0]} to {seeds[-1]}), each with a task order of its own"),
        (
            "Selection rule",
            "epoch: best in-task validation, of equals the last; strength: greatest A on the "
            "validation images of a task order that is not reported",
        ),
        (
            "Training",
            f"small CNN, channels {plan.channels}, {plan.hidden} hidden units, dropout "
            f"{plan.dropout}; Adam at "
            f"{plan.rate:g}, anew at every task; {plan.protocol}",
        ),
        ("Duration", folder.duration()),
    ]
    trained_on = int(np.sum(trainer.sequence(settings.seed).tasks.train.mask))
    paper_data = plan.data == "cifar100"
    return summary, report_sections(folder.path, outcomes, images, trained_on, paper_data)
