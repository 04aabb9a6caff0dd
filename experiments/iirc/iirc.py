"""The benchmark: ten methods on task configurations, each class coarse or fine (figures 3 to 6).

    python -m experiments iirc benchmark --scale demo

Scales:
  demo: the procedural world, 4 shapes of 3 textures each at 16x16, two configurations, a net of 8
    layers, five methods; four minutes on two cores.
  cpu: real images, 5 superclasses of Tiny-ImageNet and 5 classes without one at 16x16, three
    configurations, a net of 8 layers, all ten methods; one to four minutes a sequence.
  paper: IIRC-CIFAR with CIFAR-100 below EVERLIGHT_DATA, the authors' ten configurations, ResNet-32,
    140 epochs a task and 280 for the first; meant for an accelerator. With `--data
    iirc_imagenet_lite` or `iirc_imagenet_full` the authors' five configurations, ResNet-50 at
    224x224 and 100 epochs a task; the files are read from below EVERLIGHT_DATA as they are needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from data_pipelines.errors import DataError
from everlight.continual.engine.steps import Protocol
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Bytes, Count, RunSettings, Scale, check_methods
from experiments.iirc import CITATION
from experiments.iirc.methods import METHODS
from experiments.iirc.report import report_sections
from experiments.iirc.scores import Outcome, score_method
from experiments.iirc.streaming import leave_out_undecodable
from experiments.iirc.training import (
    ABLATED,
    Benchmark,
    DataSet,
    Plan,
    Trainer,
    is_imagenet,
    load_benchmark,
    open_store,
    superclass_numbers,
)

SCHEDULE = {"plateau_factor": 0.1, "plateau_patience": 10}
PLANS: Mapping[Scale, Plan] = {
    "demo": Plan(
        data="procedural",
        side=16,
        blocks=1,
        protocol=Protocol(epochs=10, first_epochs=20, batch_size=32, **SCHEDULE),
        configurations=2,
        methods=("incremental joint", "ER", "iCaRL-CNN", "LUCIR", "finetune"),
        rate=0.1,
        per_class=(100, 50),
    ),
    "cpu": Plan(
        data="tiny-imagenet",
        side=16,
        blocks=1,
        protocol=Protocol(epochs=15, first_epochs=30, batch_size=32, **SCHEDULE),
        configurations=3,
        rate=0.3,
        joint_epochs=43,
        ablation=(50, 100),
        per_class=(250, 50),
        superclasses=5,
        choice="the rate is the better of two by joint's in-task validation on the first "
        "configuration, where the number of classes was chosen too, test scores being seen",
    ),
    "paper": Plan(
        data="iirc_cifar100",
        side=32,
        blocks=5,
        protocol=Protocol(epochs=140, first_epochs=280, batch_size=128, **SCHEDULE),
        configurations=10,
        joint_epochs=400,
        ablation=(50, 100, 200),
    ),
}
PAPER_IMAGENET = Plan(
    data="iirc_imagenet_lite",
    side=224,
    blocks=None,
    protocol=Protocol(epochs=100, first_epochs=200, batch_size=128, **SCHEDULE),
    configurations=5,
    rate=0.1,
    rates={"iCaRL-CNN": 0.5, "A-GEM": 0.5},
    joint_epochs=180,
    per_class=(1300, 50),
)
"""In place of the scale's where `data` is one of ImageNet's."""


@dataclass(frozen=True)
class IIRCRun(RunSettings):
    """IIRC: ten methods where every class is learnt coarse first, then fine."""

    data: DataSet | None = None
    """None is the scale's. Besides the procedural world and Tiny-ImageNet the benchmarks of the
    authors' package, the incremental ones being without superclasses."""
    methods: tuple[str, ...] | None = None
    """joint, incremental joint, ER-infinite, ER, iCaRL-CNN, iCaRL-norm, LUCIR, BiC, A-GEM or
    finetune, or forms that are not the paper's: LUCIR-0.5 (λ₀ = .5), BiC-whole (labels weigh 1),
    BiC-even and BiC-pwJS (stage 2 by an even cross-entropy, by pw-JS), BiC-whole-pwJS; None is the
    scale's."""
    configurations: Count | None = None
    """Task configurations, each with a seed of its own; None is the scale's."""
    memory_limit: Bytes = 2_000_000_000
    """Bytes of decoded images that are held while ImageNet's files are read."""
    undecodable: Literal["fail", "skip"] = "fail"
    """Where a file of ImageNet is no whole image: stop and name it, or decode all files before the
    first task and leave such files out, counted and named in the report."""


def run_iirc(settings: IIRCRun, plans: Mapping[Scale, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    check_methods(settings.methods, METHODS)
    plan = plan_of(settings, plans)
    folder = RunFolder("iirc", "benchmark", settings, shared=True)
    benchmark = load_benchmark(plan, settings.seed)
    there = len(benchmark.metadata.configurations)
    if plan.configurations > there:
        raise DataError(f"--configurations {plan.configurations}; {plan.data} has {there}")
    store = open_store(plan, benchmark, settings.memory_limit)
    if store is not None and settings.undecodable == "skip":
        files = leave_out_undecodable(folder, benchmark.images, store)
        benchmark = benchmark._replace(images=files)
        store = open_store(plan, benchmark, settings.memory_limit)
    trainer = Trainer(folder, plan, benchmark, store)

    hierarchy, configurations = benchmark.metadata.hierarchy, benchmark.metadata.configurations

    def outcome(name: str, exemplars: int | None = None) -> Outcome:
        runs = [
            score_method(
                trainer.sequence(name, number),
                learnt,
                superclass_numbers(hierarchy, configurations[number]),
            )
            for number, learnt in enumerate(trainer.train(name, settings.seed, exemplars))
        ]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

    outcomes = {name: outcome(name) for name in plan.methods}
    ablation = {exemplars: outcome(ABLATED, exemplars) for exemplars in plan.ablation}
    if ablation and ABLATED in outcomes:
        ablation[plan.exemplars] = outcomes[ABLATED]
    kept = outcomes | {f"{ABLATED}-{each}": result for each, result in ablation.items()}
    folder.save_results(
        **{
            f"{name}/{field}": value
            for name, result in kept.items()
            for field, value in result._asdict().items()
        }
    )
    summary = [
        ("Paper", CITATION),
        ("Data", f"{benchmark.images.name}, {plan.side}×{plan.side} pixels: {_sizes(benchmark)}"),
        (
            "Seeds",
            f"task configurations: {', '.join(map(str, range(plan.configurations)))}, each with "
            "its own order and initial net",
        ),
        (
            "Selection rule",
            "finetune, ER, ER-infinite and the joints keep the epoch with the best in-task "
            f"validation, of equals the last, the others the last of all; {plan.choice}",
        ),
        (
            "Training",
            f"{_net(plan)}; SGD at {plan.rate:g}"
            + "".join(f" ({rate:g} for {name})" for name, rate in plan.rates.items())
            + f" with momentum, anew at every task, crops and mirrors; {plan.exemplars} exemplars "
            f"a class; {_epochs(plan)}",
        ),
        *(("Files", remark) for remark in getattr(benchmark.images, "remarks", ())),
        ("Duration", folder.duration()),
    ]
    sections = report_sections(folder.path, outcomes, ablation, trainer, benchmark, plan)
    title = f"IIRC: {len(outcomes)} methods on {benchmark.images.name} ({settings.scale})"
    return write_report(folder.path, title, summary, sections)


def plan_of(settings: IIRCRun, plans: Mapping[Scale, Plan]) -> Plan:
    """The plan of a run's scale and data, with the run's own choices in it."""
    imagenet = settings.data is not None and is_imagenet(settings.data)
    plan = PAPER_IMAGENET if imagenet and settings.scale == "paper" else plans[settings.scale]
    return replace(
        plan,
        data=settings.data or plan.data,
        methods=settings.methods or plan.methods,
        configurations=(
            plan.configurations if settings.configurations is None else settings.configurations
        ),
    )


def _epochs(plan: Plan) -> str:
    protocol = plan.protocol
    joint = f", joint {plan.joint_epochs}" if plan.joint_epochs else ""
    return (
        f"{protocol.epochs_of(1)} epochs a task, {protocol.epochs_of(0)} for the first{joint}, in "
        f"batches of {protocol.batch_size}; the rate falls to a tenth after "
        f"{protocol.plateau_patience} epochs without a better in-task validation"
    )


def _net(plan: Plan) -> str:
    if plan.blocks is None:
        return "ResNet-50"
    return f"reduced ResNet of {6 * plan.blocks + 2} layers"


def _sizes(benchmark: Benchmark) -> str:
    images, hierarchy = benchmark.images, benchmark.metadata.hierarchy
    per_class = np.bincount(images.train_labels)
    grouped = sum(map(len, hierarchy.values()))
    least, most = per_class.min(), per_class.max()
    each = f"{least}" if least == most else f"{least} to {most}"
    return (
        f"{len(hierarchy)} superclasses of {grouped} classes and {len(per_class) - grouped} "
        f"classes without one; {each} training images a class, "
        f"{benchmark.metadata.valid_fraction:.0%} of them in-task validation and as many left out"
    )
