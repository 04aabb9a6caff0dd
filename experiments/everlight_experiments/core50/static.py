"""The static benchmark: all training sessions at once (table 2), and frames fused over time.

    everlight core50 static --preset demo
    everlight core50 static --preset paper --net Mid-VGG --weights VGG_CNN_M.npz

The scales are those of `plans.py`; demo and small need no data.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.svm import LinearSVC

from everlight.continual.engine.run import SequenceResult
from everlight.scenarios.core50 import OBJECTS, TEST_SESSIONS, Level
from everlight_data.images.core50 import Core50, category_of
from everlight_experiments.common.plan_settings import PlannedRun, changed_plan, plan_in_force
from everlight_experiments.common.report import (
    PAPER,
    Column,
    Figure,
    FirstScreen,
    Section,
    Table,
    write_report,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Preset
from everlight_experiments.continual.methods import Method
from everlight_experiments.continual.runner import Runner
from everlight_experiments.core50 import CITATION
from everlight_experiments.core50.beginning import (
    Beginning,
    begin_with,
    check_weights,
    load_frames,
    trunk_features,
)
from everlight_experiments.core50.fusion import fuse_adjacent
from everlight_experiments.core50.paper_table import PAPER_STATIC, paper_name, paper_net
from everlight_experiments.core50.plans import PLANS, CaffeNet, Plan, choose_net
from everlight_experiments.core50.plots import plot_lines
from everlight_experiments.core50.record import FIXED, SCRATCH, TUNING, evaluating, record

WINDOWS = (1, 2, 4, 8, 16, 32)
"""Frames that are fused, as far as the recordings reach."""
FUSED = 8
"""In the table, beside single frames; fewer where the recordings are shorter."""
LEARNT = (1, 2, 4, 6, 8, 10)
"""So many sessions, from the first on, the SVM learns, to be tested on the others."""
SVM = "frozen + SVM"
STRATEGIES = (SCRATCH, SVM, TUNING)

Accuracies = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By level, strategy and window."""


@dataclasses.dataclass(frozen=True)
class StaticRun(PlannedRun):
    """Train on all of CORe50 at once: from scratch, frozen features with an SVM, fine-tuning."""

    levels: tuple[Level, ...] = ("object", "category")
    """Classes to predict: the 50 objects or the 10 categories."""
    net: CaffeNet | None = None
    """Network of the preset paper; None is Mid-CaffeNet."""
    weights: Path | None = None
    """Path of an .npz with a Caffe network's pretrained layers, for the preset paper."""
    partial: bool = False
    """Run on an incomplete release too and report its number of frames."""


def run_static(settings: StaticRun, plans: Mapping[Preset, Plan] = PLANS) -> Path:
    """Runs it all; returns the report's path."""
    plan = choose_net(changed_plan(plans[settings.preset], settings.plan), settings.net)
    check_weights(plan, settings.weights)
    folder = RunFolder("core50", "static", settings)
    folder.tell_plan(plan_in_force(plan))
    frames = load_frames(plan, settings.seed, settings.partial)
    beginning = begin_with(folder, plan, frames, settings.seed, settings.weights)
    benchmark = _Benchmark(folder, plan, frames, beginning, settings.seed)
    accuracies = {level: benchmark.accuracies(level) for level in settings.levels}
    sessions = {level: benchmark.by_sessions(level) for level in settings.levels}
    folder.save_results(
        **{
            f"{level}/{name}": np.array(list(values.values()))
            for level, by_name in accuracies.items()
            for name, values in (*by_name.items(), ("sessions", sessions[level]))
        }
    )
    summary = [
        ("Paper", CITATION),
        ("Data", f"{frames.name}, {plan.side}×{plan.side} pixels, {len(frames.images):,} frames"),
        ("Test set", f"sessions 3, 7 and 10, all {np.count_nonzero(benchmark.tested):,} frames"),
        ("Network", plan.net_description),
        ("Weights", f"the SVM's features and fine-tuning have the same, {beginning.remark}"),
        (
            "Training",
            f"fine-tuning {plan.fine_tuning.first} steps of {plan.batch_size} at "
            f"{plan.fine_tuning.learning_rate:g}, {plan.dense_rate:g} times that in fully "
            "connected layers; "
            f"from scratch {plan.scratch.first} at {plan.scratch.learning_rate:g}; one run, seed "
            f"{settings.seed}; linear SVM, one class against the rest, C = 1, on features of mean "
            "length 1",
        ),
        (
            "Selection rule",
            "The networks after the last step are evaluated. The C of the SVM was not tuned.",
        ),
        ("Selection of network and training", plan.chosen),
        ("Duration", folder.duration()),
    ]
    title = f"CORe50, static: {frames.name} ({settings.preset})"
    paper = _Published(
        PAPER_STATIC[paper_net(plan.net)], paper_name(plan.net, plan.data == "core50")
    )
    first, rest = _sections(folder.path, accuracies, sessions, paper, benchmark.order_remark())
    return write_report(folder.path, title, summary, rest, first)


class _Published(NamedTuple):
    accuracy: Mapping[str, Mapping[str, float]]
    """In percent, by strategy and level."""
    name: str
    """How a report marks them."""


class _Benchmark:
    """Trains each strategy once and keeps the confidences that it has in the test frames."""

    def __init__(
        self, folder: RunFolder, plan: Plan, frames: Core50, beginning: Beginning, seed: int
    ):
        self._folder, self._plan, self._frames = folder, plan, frames
        self._beginning, self._seed = beginning, seed
        self._features = np.asarray(trunk_features(beginning, plan).values)
        self.tested = np.isin(frames.session, TEST_SESSIONS)
        self._recording = (frames.session * OBJECTS + frames.object)[self.tested]
        # A wider one would fuse no more frames than a recording has.
        longest = np.bincount(self._recording).max()
        self._windows = tuple(window for window in WINDOWS if window <= longest)

    def accuracies(self, level: Level) -> dict[str, dict[int, float]]:
        """Of each strategy, by the frames that are fused."""
        labels, tested = self._labels(level), self.tested
        found = {}
        for name in STRATEGIES:
            confidence = self._svm(level) if name == SVM else self._net(level, name)
            found[name] = {
                window: _accuracy(
                    fuse_adjacent(confidence, self._recording, window), labels[tested]
                )
                for window in self._windows
            }
        return found

    def order_remark(self) -> str:
        """Why the order of strategies may differ from the paper's; empty for the paper's nets."""
        units, features = self._plan.hidden, self._features.shape[1]
        if self._plan.net != "small" or units >= features:
            return ""
        return (
            "A likely reason for another order: the networks classify from a hidden layer of "
            f"{units} units, narrower than the {features:,} features of the SVM."
        )

    def by_sessions(self, level: Level) -> dict[int, float]:
        """Of the SVM after the first sessions, on all later ones."""
        facts = {"level": level, "learnt": LEARNT, **self._facts()}
        found = self._folder.read_unit(f"sessions-{level}", facts)
        if found is None:
            labels, session = self._labels(level), self._frames.session
            values = []
            for count in LEARNT:
                tested = session >= count
                confidence = _svm_confidence(self._features, labels, tested)
                values.append(_accuracy(confidence, labels[tested]))
            found = {"accuracy": np.array(values)}
            self._folder.save_unit(f"sessions-{level}", facts, **found)
        return dict(zip(LEARNT, found["accuracy"].tolist(), strict=True))

    def _labels(self, level: Level) -> Int[np.ndarray, "n"]:
        objects = self._frames.object
        return objects if level == "object" else category_of(objects)

    def _facts(self) -> dict:
        return {"beginning": self._beginning.fingerprint, "frames": len(self._frames.images)}

    def _svm(self, level: Level) -> Float[np.ndarray, "m c"]:
        facts = {"level": level, **self._facts()}
        found = self._folder.read_unit(f"svm-{level}", facts)
        if found is None:
            labels = self._labels(level)
            found = {"confidence": _svm_confidence(self._features, labels, self.tested)}
            self._folder.save_unit(f"svm-{level}", facts, **found)
        return found["confidence"]

    def _net(self, level: Level, scenario: str) -> Float[np.ndarray, "m c"]:
        parts = self._plan, self._frames, level, self._seed, (scenario,), self._beginning
        benchmark, naive = record(*parts), FIXED["naive"]
        evaluate = evaluating(benchmark, scenario, naive, self._seed)

        def keep(scenario: str, method: Method, result: SequenceResult) -> dict[str, Any]:
            return {"confidence": jax.nn.softmax(evaluate(result)())}

        kept = benchmark._replace(keep=keep)
        runner = Runner(self._folder, kept, self._seed, part=level)
        (found,) = runner.train(scenario, naive, 0.0, 1)
        return found["confidence"]


def _svm_confidence(
    features: Float[np.ndarray, "n f"], labels: Int[np.ndarray, "n"], tested: Bool[np.ndarray, "n"]
) -> Float[np.ndarray, "m c"]:
    """Distances from the class boundaries learnt on all frames but the tested, of these."""
    learnt = features[~tested]
    scale = np.linalg.norm(learnt, axis=1).mean()
    machine = LinearSVC(random_state=0).fit(learnt / scale, labels[~tested])
    return machine.decision_function(features[tested] / scale)


def _accuracy(confidence: Float[np.ndarray, "m c"], labels: Int[np.ndarray, "m"]) -> float:
    return float(np.mean(confidence.argmax(axis=1) == labels))


def _sections(
    path: Path,
    accuracies: Accuracies,
    sessions: Mapping[str, Mapping[int, float]],
    paper: _Published,
    order_remark: str,
) -> tuple[FirstScreen, list[Section]]:
    """Return the first screen and the section on the number of training sessions."""
    titled = {f"{level} level": by_name for level, by_name in accuracies.items()}
    learnt = {"frozen features and linear SVM,\ntested on all later sessions": sessions}
    split = (
        "Frozen features and the SVM are trained on the first k sessions and tested on all later "
        "ones, instead of three fixed test sessions."
    )
    published = {
        level: {name: values[level] for name, values in paper.accuracy.items()}
        for level in accuracies
    }
    here = {
        level: {name: values[1] for name, values in by_name.items()}
        for level, by_name in accuracies.items()
    }
    orders = [
        f"{level.capitalize()} level, from the lowest: {_order(here[level])}; in the paper "
        f"{_order(published[level])}."
        for level in accuracies
    ]
    if order_remark and any(_order(here[level]) != _order(published[level]) for level in here):
        orders.append(order_remark)
    fusion = Figure(
        "Accuracy on the test set by the number of fused frames, up to the length of the test "
        "recordings. Fusion sums the class confidences of a frame and of the preceding frames of "
        "its recording (softmax of the networks, distances from the SVM's boundaries).",
        plot_lines(path / "fusion.png", titled, "frames fused", powers=True),
    )
    first = FirstScreen(_headline(here), fusion, _table(accuracies, paper), tuple(orders))
    return first, [
        Section(
            "The first sessions against the rest",
            [split],
            [
                Figure(
                    "Accuracy by the number of training sessions.",
                    plot_lines(path / "first_sessions.png", learnt, "training sessions"),
                )
            ],
        ),
    ]


def _headline(accuracy: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Return the question, the best strategy of each level, and the baseline."""
    best = {level: max(values, key=lambda name: values[name]) for level, values in accuracy.items()}
    said = (f"{name} {accuracy[level][name]:.1%} ({level})" for level, name in best.items())
    baseline = (f"{values[SCRATCH]:.1%} ({level})" for level, values in accuracy.items())
    return (
        "Which strategy is best when all training sessions are available at once?",
        f"Best on single frames, in one run without an interval: {'; '.join(said)}.",
        f"Baseline, {SCRATCH}: {'; '.join(baseline)}.",
    )


def _order(accuracy: Mapping[str, float]) -> str:
    return ", ".join(sorted(accuracy, key=lambda name: accuracy[name]))


def _table(accuracies: Accuracies, paper: _Published) -> Table:
    rows = []
    windows = next(iter(next(iter(accuracies.values())).values()))
    fused = max(window for window in windows if window <= FUSED)
    for name, published in paper.accuracy.items():
        own = [accuracies[level][name] for level in accuracies]
        rows.append(
            [
                name,
                *(f"{100 * values[1]:.1f}" for values in own),
                *(f"{100 * values[fused]:.1f}" for values in own),
                *(f"{published[level]:.1f}" for level in accuracies),
            ]
        )
    columns = [
        Column("strategy"),
        *(Column(level, "single frames, %") for level in accuracies),
        *(Column(level, f"{fused} frames fused, %") for level in accuracies),
        *(Column(level, PAPER) for level in accuracies),
    ]
    caption = f"50 objects and 10 categories (table 2). Paper: {paper.name}, single frames."
    return Table(caption, columns, rows)
