"""The three scenarios: accuracy on one fixed test set after every batch (figures 4, 5 and 6).

    everlight core50 batches --preset demo
    everlight core50 batches --preset paper --net Mid-VGG --weights VGG_CNN_M.npz

The scales are those of `plans.py`; demo and small need no data.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np

from everlight.checks import Between
from everlight.continual.engine.run import SequenceResult
from everlight.scenarios.core50 import RUNS, TEST_SESSIONS, Level
from everlight_data.errors import DataError
from everlight_experiments.common.plan_settings import PlannedRun, changed_plan, plan_in_force
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, check_methods
from everlight_experiments.continual.benchmark import Benchmark, Draw
from everlight_experiments.continual.methods import Method
from everlight_experiments.continual.report import report_sections, report_summary
from everlight_experiments.continual.report_tables import Published
from everlight_experiments.continual.run import save_outcomes
from everlight_experiments.continual.runner import Outcomes, Runner
from everlight_experiments.core50 import CITATION
from everlight_experiments.core50.beginning import (
    begin_with,
    check_weights,
    load_frames,
    thin_test,
    trunk_features,
)
from everlight_experiments.core50.paper_table import PAPER_CURVES, paper_name, paper_net
from everlight_experiments.core50.plans import (
    PLANS,
    SCENARIOS,
    BatchScenario,
    CaffeNet,
    Plan,
    choose_net,
)
from everlight_experiments.core50.record import FIXED, PAPER_METHODS, evaluating, length_of, record
from everlight_experiments.core50.report import paper_sections
from everlight_experiments.core50.scores import Scored, score_method


@dataclasses.dataclass(frozen=True)
class BatchesRun(PlannedRun):
    """Train on CORe50's batches of new instances (NI), new classes (NC) or both (NIC)."""

    scenarios: tuple[BatchScenario, ...] = SCENARIOS
    """Scenarios to run: NI has 8 batches, NC 9 and NIC 79."""
    methods: tuple[str, ...] | None = None
    """Methods to train: naive, CWR, CWR as coded, cumulative, EWC, SI, MAS, LwF, ER-balanced,
    A-GEM; None is the paper's of each scenario."""
    level: Level = "object"
    """Classes to predict: the 50 objects or the 10 categories."""
    orders: Count | None = None
    """Number of runs, each with the published order of its number; None is the preset's."""
    test_frames: Count | None = None
    """Number of test frames per object and session, evenly spaced; None is the preset's."""
    gain: Annotated[float, Between(0, 1_000)] | None = None
    """CWR's factor on weights consolidated at the first batch of NC and NIC; None is the
    preset's."""
    net: CaffeNet | None = None
    """Network of the preset paper; None is Mid-CaffeNet."""
    weights: Path | None = None
    """Path of an .npz with a Caffe network's pretrained layers, for the preset paper."""
    partial: bool = False
    """Run on an incomplete release too and report its number of frames."""


def run_batches(settings: BatchesRun, plans: Mapping[Preset, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    check_methods(settings.methods, FIXED)
    plan = choose_net(changed_plan(plans[settings.preset], settings.plan), settings.net)
    plan = dataclasses.replace(
        plan,
        orders=plan.orders if settings.orders is None else settings.orders,
        gain=plan.gain if settings.gain is None else settings.gain,
        test_frames=plan.test_frames if settings.test_frames is None else settings.test_frames,
    )
    if not 1 <= plan.orders <= RUNS:
        raise DataError(f"--orders {plan.orders}; give 1 to {RUNS}, the published ones")
    check_weights(plan, settings.weights)
    folder = RunFolder("core50", "batches", settings, shared=True)
    folder.tell_plan(plan_in_force(plan))
    whole = load_frames(plan, settings.seed, settings.partial)
    frames = thin_test(whole, plan.test_frames)
    beginning = begin_with(folder, plan, frames, settings.seed, settings.weights)
    features = functools.cache(lambda: trunk_features(beginning, plan))
    benchmark = record(
        plan, frames, settings.level, settings.seed, settings.scenarios, beginning, features
    )

    runner = Runner(folder, _timed(benchmark, settings.seed), settings.seed)
    asked = {each: settings.methods or PAPER_METHODS[each] for each in settings.scenarios}

    def orders(scenario: BatchScenario, name: str) -> int:
        fewer = plan.cumulative_orders.get(scenario, plan.orders)
        return min(plan.orders, fewer) if name == "cumulative" else plan.orders

    common = {
        scenario: {
            name: runner.outcome(scenario, FIXED[name], orders(scenario, name)) for name in names
        }
        for scenario, names in asked.items()
    }

    def scored(scenario: BatchScenario, name: str) -> Scored:
        method, found, runs = FIXED[name], common[scenario][name], orders(scenario, name)
        kept = runner.train(scenario, method, found.choice.hyperparameter, runs)
        draws = [Draw("reported", settings.seed, order) for order in range(runs)]
        sequences = [benchmark.sequence(scenario, method, draw) for draw in draws]
        frame = features().operations if method.trains == "head" else 0.0
        return score_method(found, frame, sequences, kept)

    outcomes = {
        scenario: {name: scored(scenario, name) for name in names}
        for scenario, names in asked.items()
    }
    own = {
        f"{scenario}/{name}/{field}": value
        for scenario, by_name in outcomes.items()
        for name, result in by_name.items()
        for field, value in result._asdict().items()
        if field != "learnt"
    }
    save_outcomes(folder, benchmark, settings.seed, plan.orders, common, **own)
    tested, recorded = (
        np.count_nonzero(np.isin(each.session, TEST_SESSIONS)) for each in (frames, whole)
    )
    rule = (
        "The network after the last step of every batch is evaluated. Hyper-parameters of other "
        "strategies were not selected."
    )
    summary = [
        ("Paper", CITATION),
        *report_summary(benchmark, settings.seed, plan.orders, rule, folder.duration()),
        (
            "Test set",
            f"sessions 3, 7 and 10: {tested:,} of {recorded:,} frames"
            + (", all" if tested == recorded else f", {plan.test_frames} of each recording"),
        ),
        (
            "Learning rates",
            f"weight decay 5e-4; fully connected layers of the whole net at {plan.dense_rate:g} "
            "times the learning rate, biases at twice their layer's",
        ),
        ("Steps per batch", _lengths(plan, common)),
        (
            "Scenarios",
            "NI: new instances of known classes in every batch; NC: new classes; NIC: new "
            "instances and new classes",
        ),
        (
            "CWR",
            "copy weights with re-init, a head over the frozen trunk's features, computed once; "
            f"gain {plan.gain:g} of the first batch's weights in NC and NIC (published: 3); by the "
            "paper's text or, as coded, by the authors' code, which made the published curves",
        ),
    ]
    paper = paper_name(plan.net, plan.data == "core50")
    # The published accuracies are of objects.
    published = PAPER_CURVES[paper_net(plan.net)] if settings.level == "object" else {}
    splits = {
        scenario: benchmark.sequence(scenario, FIXED["naive"], Draw("reported", settings.seed, 0))
        for scenario in outcomes
    }
    rows = [FIXED[name] for name in dict.fromkeys(name for each in asked.values() for name in each)]
    curves = {
        scenario: {name: [value / 100 for value in curve] for name, curve in by_name.items()}
        for scenario, by_name in published.items()
    }
    theirs = Published(paper, curves)
    first, every = report_sections(folder.path, benchmark, common, rows, theirs)
    own = paper_sections(folder.path, outcomes, splits, frames, published, paper)
    title = f"CORe50: {', '.join(settings.scenarios)} on {frames.name} ({settings.preset})"
    return write_report(folder.path, title, summary, [*own, *every], first)


def _timed(benchmark: Benchmark, seed: int) -> Benchmark:
    """The benchmark whose runs keep the seconds of an evaluation too."""
    programs = functools.cache(lambda *asked: evaluating(benchmark, *asked, seed))

    def keep(scenario: str, method: Method, result: SequenceResult) -> dict[str, Any]:
        evaluate = programs(scenario, method)(result)
        jax.block_until_ready(evaluate())  # compiles
        start = time.monotonic()
        jax.block_until_ready(evaluate())
        spent = time.monotonic() - start
        return {**benchmark.keep(scenario, method, result), "evaluation_seconds": spent}

    return benchmark._replace(keep=keep)


def _lengths(plan: Plan, outcomes: Outcomes) -> str:
    """Of the methods that were run; those with equal lengths together."""
    alike: dict[str, list[str]] = {}
    for scenario, by_name in outcomes.items():
        for name in by_name:
            length = length_of(plan, scenario, FIXED[name])
            later = length.learning_rate * length.later_factor
            words = f"{length.first} at {length.learning_rate:g}, then {length.later} at {later:g}"
            alike.setdefault(words, []).append(f"{name} in {scenario}")
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in alike.items())
