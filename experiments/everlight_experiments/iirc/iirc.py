"""The benchmark: ten methods on task configurations, each class coarse or fine (figures 3 to 6).

    everlight iirc benchmark --preset demo

Presets:
  demo: the procedural world, 4 shapes of 3 textures each at 16x16, two configurations, a net of 8
    layers, five methods; four minutes on two cores.
  small: real images, 5 superclasses of Tiny-ImageNet and 5 classes without one at 16x16, three
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
from jaxtyping import Float

from everlight_data.errors import DataError
from everlight_experiments.common.plan_settings import PlannedRun, changed_plan, plan_in_force
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Bytes, Count, Preset, check_methods, check_name
from everlight_experiments.continual.benchmark import Draw
from everlight_experiments.continual.methods import Method
from everlight_experiments.continual.report import report_sections, report_summary
from everlight_experiments.continual.run import save_outcomes, train_rows
from everlight_experiments.continual.runner import Runner
from everlight_experiments.iirc import CITATION
from everlight_experiments.iirc.record import (
    FORMS,
    PAPER_IMAGENET,
    PLANS,
    SCENARIO,
    WITH_EXEMPLARS,
    DataSet,
    Plan,
    is_imagenet,
    load_data,
    open_store,
    record,
)
from everlight_experiments.iirc.report import paper_sections
from everlight_experiments.iirc.scores import Outcome, score_method
from everlight_experiments.iirc.streaming import leave_out_undecodable


@dataclass(frozen=True)
class IIRCRun(PlannedRun):
    """Train the paper's methods on IIRC, where each class is first learned coarse, then fine."""

    data: DataSet | None = None
    """Data set to learn; None is the preset's. The iirc_* and incremental_* sets are those of
    the authors' package, the latter without superclasses."""
    methods: tuple[str, ...] | None = None
    """Methods to train: joint, incremental joint, ER-infinite, ER-balanced, iCaRL-CNN,
    iCaRL-norm, LUCIR, BiC, A-GEM, finetune, LUCIR-0.5, BiC-whole-pwJS; LUCIR-0.5 has λ₀ = 0.5
    and BiC-whole-pwJS label weights 1; None is the preset's."""
    configurations: Count | None = None
    """Number of task configurations, each with its own seed; None is the preset's."""
    memory_limit: Bytes = 2_000_000_000
    """Bytes of decoded images held in memory while ImageNet's files are read."""
    undecodable: Literal["fail", "skip"] = "fail"
    """Action for broken image files of ImageNet: fail names the file, skip decodes all files
    first, leaves broken ones out and reports their number."""


def run_iirc(settings: IIRCRun, plans: Mapping[Preset, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    check_methods(settings.methods, FORMS)
    plan = plan_of(settings, plans)
    folder = RunFolder("iirc", "benchmark", settings, shared=True)
    folder.tell_plan(plan_in_force(plan))
    data = load_data(plan, settings.seed)
    there = len(data.metadata.configurations)
    if plan.configurations > there:
        raise DataError(f"--configurations {plan.configurations}; {plan.data} has {there}")
    store = open_store(plan, data, settings.memory_limit)
    if store is not None and settings.undecodable == "skip":
        data = data._replace(images=leave_out_undecodable(folder, data.images, store))
        store = open_store(plan, data, settings.memory_limit)
    benchmark = record(plan, data, settings.seed, store)
    rows = [FORMS[name] for name in plan.methods]
    runner, runs = Runner(folder, benchmark, settings.seed), plan.configurations
    common = train_rows(runner, rows, runs)

    def scored(method: Method) -> Outcome:
        hyperparameter = common[SCENARIO][method.name].choice.hyperparameter
        found = [
            score_method(
                benchmark.sequence(SCENARIO, method, Draw("reported", settings.seed, number)),
                each["predicted"],
            )
            for number, each in enumerate(runner.train(SCENARIO, method, hyperparameter, runs))
        ]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)

    def with_exemplars(count: int) -> dict[str, Float[np.ndarray, "runs"]]:
        ours = record(replace(plan, exemplars_per_class=count), data, settings.seed, store)
        other = Runner(folder, ours, settings.seed, part=f"{count}-exemplars")
        return {name: other.outcome(SCENARIO, FORMS[name], runs).final for name in ablated}

    outcomes = {row.name: scored(row) for row in rows}
    ablated = [name for name in plan.methods if name in plan.ablated]
    ablation = {count: with_exemplars(count) for count in plan.ablation if ablated}
    if ablation:
        ablation[plan.exemplars_per_class] = {
            name: common[SCENARIO][name].final for name in ablated
        }
    own = {
        f"{name}/{field}": value
        for name, result in outcomes.items()
        for field, value in result._asdict().items()
    }
    own |= {
        f"{name}-{count}/final": final
        for count, finals in ablation.items()
        for name, final in finals.items()
    }
    save_outcomes(folder, benchmark, settings.seed, runs, common, **own)
    rule = (
        "finetune, ER-balanced, ER-infinite and joint training keep the epoch with the best "
        "in-task validation (among equals, the last). The other methods keep the last epoch."
    )
    summary = [
        ("Paper", CITATION),
        *report_summary(benchmark, settings.seed, runs, rule, folder.duration()),
        *(("Files", remark) for remark in getattr(data.images, "remarks", ())),
    ]
    splits = [
        benchmark.sequence(SCENARIO, FORMS["finetune"], Draw("reported", settings.seed, number))
        for number in range(runs)
    ]
    first, every = report_sections(folder.path, benchmark, common, rows)
    own = paper_sections(folder.path, outcomes, ablation, splits, data)
    title = f"IIRC: {len(outcomes)} methods on {data.images.name} ({settings.preset})"
    return write_report(folder.path, title, summary, [*own, *every], first)


def plan_of(settings: IIRCRun, plans: Mapping[Preset, Plan]) -> Plan:
    """The plan of a run's scale and data, with the run's own choices in it.

    Raises:
      DataError: other numbers of exemplars of a method that keeps none.
    """
    imagenet = settings.data is not None and is_imagenet(settings.data)
    plan = PAPER_IMAGENET if imagenet and settings.preset == "paper" else plans[settings.preset]
    plan = changed_plan(plan, settings.plan)
    for name in plan.ablated:
        check_name("method with exemplars in --plan.ablated,", name, WITH_EXEMPLARS)
    return replace(
        plan,
        **{
            name: value
            for name in ("data", "methods", "configurations")
            if (value := getattr(settings, name)) is not None
        },
    )
