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
from experiments.common.plan_settings import PlannedRun, changed_plan
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder
from experiments.common.settings import Bytes, Count, Scale, check_methods
from experiments.continual.benchmark import Draw
from experiments.continual.runner import Runner
from experiments.iirc import CITATION
from experiments.iirc.record import (
    ABLATED,
    FORMS,
    PAPER_IMAGENET,
    PLANS,
    SCENARIO,
    DataSet,
    Plan,
    epochs,
    is_imagenet,
    load_data,
    net_name,
    open_store,
    record,
    sizes,
    superclass_numbers,
)
from experiments.iirc.report import report_sections
from experiments.iirc.scores import Outcome, score_method
from experiments.iirc.streaming import leave_out_undecodable


@dataclass(frozen=True)
class IIRCRun(PlannedRun):
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
    check_methods(settings.methods, FORMS)
    plan = plan_of(settings, plans)
    folder = RunFolder("iirc", "benchmark", settings, shared=True)
    data = load_data(plan, settings.seed)
    there = len(data.metadata.configurations)
    if plan.configurations > there:
        raise DataError(f"--configurations {plan.configurations}; {plan.data} has {there}")
    store = open_store(plan, data, settings.memory_limit)
    if store is not None and settings.undecodable == "skip":
        data = data._replace(images=leave_out_undecodable(folder, data.images, store))
        store = open_store(plan, data, settings.memory_limit)
    hierarchy, configurations = data.metadata.hierarchy, data.metadata.configurations
    benchmark = record(plan, data, settings.seed, store)

    def outcome(name: str, exemplars: int | None = None) -> Outcome:
        ours, prefix = benchmark, ""
        if exemplars is not None:
            ours = record(replace(plan, exemplars=exemplars), data, settings.seed, store)
            prefix = f"{exemplars}-exemplars-"
        method, runner = FORMS[name], Runner(folder, ours, settings.seed, prefix=prefix)
        strength = runner.choose(SCENARIO, method).strength
        kept = runner.train(SCENARIO, method, strength, plan.configurations)
        runs = [
            score_method(
                ours.sequence(SCENARIO, method, Draw("reported", settings.seed, number)),
                each["predicted"],
                superclass_numbers(hierarchy, configurations[number]),
            )
            for number, each in enumerate(kept)
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
        ("Data", f"{data.images.name}, {plan.side}×{plan.side} pixels: {sizes(data)}"),
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
            f"{net_name(plan)}; SGD at {plan.rate:g}"
            + "".join(f" ({rate:g} for {name})" for name, rate in plan.rates.items())
            + f" with momentum, anew at every task, crops and mirrors; {plan.exemplars} exemplars "
            f"a class; {epochs(plan)}",
        ),
        *(("Files", remark) for remark in getattr(data.images, "remarks", ())),
        ("Duration", folder.duration()),
    ]
    splits = [
        benchmark.sequence(SCENARIO, FORMS["finetune"], Draw("reported", settings.seed, number))
        for number in range(plan.configurations)
    ]
    sections = report_sections(folder.path, outcomes, ablation, splits, data)
    title = f"IIRC: {len(outcomes)} methods on {data.images.name} ({settings.scale})"
    return write_report(folder.path, title, summary, sections)


def plan_of(settings: IIRCRun, plans: Mapping[Scale, Plan]) -> Plan:
    """The plan of a run's scale and data, with the run's own choices in it."""
    imagenet = settings.data is not None and is_imagenet(settings.data)
    plan = PAPER_IMAGENET if imagenet and settings.scale == "paper" else plans[settings.scale]
    return replace(
        changed_plan(plan, settings.plan),
        **{
            name: value
            for name in ("data", "methods", "configurations")
            if (value := getattr(settings, name)) is not None
        },
    )
