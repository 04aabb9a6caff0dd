"""The static benchmark: all training sessions at once (table 2), and frames fused over time."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.svm import LinearSVC

from everlight.continual import SequenceResult
from everlight.continual.engine.evaluation import score_test_set
from everlight.continual.methods.method import Method
from everlight.metrics.frame_fusion import fused_accuracies
from everlight_data.images.core50.frames import LabelledFrames
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.benchmarks.run_data import TrainedRun
from everlight_experiments.continual.paper import Experiment, Paper, PaperOptions, Results
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.queue import Job
from everlight_experiments.core50 import start
from everlight_experiments.core50.benchmark import ACCURACY, TrainingSchedule, core50_benchmark
from everlight_experiments.core50.config import CITATION, FIXED
from everlight_experiments.core50.published_curves import STATIC, published_name, published_net
from everlight_experiments.core50_static.config import STATIC_PRESETS, StaticConfig
from everlight_experiments.report.plots import plot_curves
from everlight_experiments.report.writer import (
    PUBLISHED_GROUP,
    Column,
    Figure,
    Section,
    Summary,
    Table,
)
from everlight_experiments.run_folder.folder import RunFolder

WINDOWS = (1, 2, 4, 8, 16, 32)
"""Numbers of fused frames, as far as the recordings reach."""
FUSED = 8
"""Fused frames in the table, after single frames; fewer where the recordings are shorter."""
LEARNED = (1, 2, 4, 6, 8, 10)
"""Numbers of sessions, the first ones, that the SVM learns; it is tested on the others."""
SCRATCH, SVM, TUNING = "from scratch", "frozen + SVM", "fine-tuning"
FUSION, SESSIONS = "accuracy by fused frames", "sessions"

Accuracies = Mapping[str, Mapping[str, Float[np.ndarray, "windows"]]]
"""Accuracies by level and strategy, for each of the first `WINDOWS`."""
SvmAccuracies = Mapping[str, Mapping[str, np.ndarray]]
"""Accuracies of the SVM by level: by fused frames, and by sessions."""


def experiment(
    config: StaticConfig, folder: RunFolder, options: PaperOptions
) -> Experiment[SvmAccuracies]:
    """Return both networks at every level, and the SVM's accuracies."""
    start.check_net(config)
    materials = {level: start.load_material(config, level, options.seed) for level in config.levels}
    frames = next(iter(materials.values())).frames
    weights = start.initial_weights(folder, config, frames, options.seed)
    benchmarks = {
        f"{level}, {name}": _benchmark(config, name, material, options.seed, weights)
        for level, material in materials.items()
        for name in (SCRATCH, TUNING)
    }
    jobs = [Job(column, FIXED["naive"], 1) for column in benchmarks]
    values, svm = np.asarray(weights.features().values), {}
    for level, material in materials.items():
        fingerprint = {"level": level, "learned": LEARNED, "beginning": weights.fingerprint}
        fingerprint["frames"] = len(frames.images)
        compute = partial(svm_accuracies, material, values)
        svm[level] = folder.computed(f"svm-{level}", fingerprint, compute)
    return Experiment(benchmarks, jobs, data=svm)


def accuracies_of(results: Results[StaticConfig, SvmAccuracies]) -> Accuracies:
    """Return the accuracies of all three strategies."""
    accuracies = {level: {SVM: svm[FUSION]} for level, svm in results.experiment.data.items()}
    for level, by_name in accuracies.items():
        for name in (SCRATCH, TUNING):
            by_name[name] = results.outcomes[f"{level}, {name}"]["naive"].metrics[FUSION][0]
    return accuracies


def arrays(results: Results[StaticConfig, SvmAccuracies]) -> dict[str, np.ndarray]:
    """Return the accuracies as `level/strategy`, and those by sessions as `level/sessions`."""
    svm = results.experiment.data
    return {
        f"{level}/{name}": values
        for level, by_name in accuracies_of(results).items()
        for name, values in (*by_name.items(), (SESSIONS, svm[level][SESSIONS]))
    }


def _benchmark(
    config: StaticConfig, name: str, material: LabelledFrames, seed: int, init: start.InitialWeights
) -> Benchmark:
    """Return the benchmark of one batch of all frames, whose runs keep confidences."""
    scratch = name == SCRATCH
    schedule = TrainingSchedule(
        setting=name,
        scenario="static",
        length=lambda method: config.scratch if scratch else config.fine_tuning,
        pretrained=not scratch,
        whole_rate=1.0 if scratch else config.dense_rate,
    )
    benchmark = core50_benchmark(config, schedule, material, seed, init)
    # The test samples are the same in all orders.
    left = MethodPrograms(benchmark).run(FIXED["naive"])
    windows = windows_of(material)
    tested = material.labels[material.tested], material.test_recordings, windows

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        confidence = jax.nn.softmax(score_test_set(left, result.memory, result.learner))
        return {**benchmark.training.keep(method, result), "confidences": confidence}

    def fused_scores(run: TrainedRun) -> Float[np.ndarray, "windows"]:
        return fused_accuracies(run.arrays["confidences"], *tested)

    metric = Metric(FUSION, fused_scores, (tuple(map(str, windows)),))
    metrics = benchmark.setting.metrics._replace(others=(metric,))
    return benchmark._replace(
        prefix=material.level,
        setting=benchmark.setting._replace(draws="initial network", metrics=metrics),
        training=benchmark.training._replace(words=_training_words(config, init.source), keep=keep),
    )


def _training_words(config: StaticConfig, source: str) -> str:
    fine, scratch = config.fine_tuning, config.scratch
    return (
        f"{start.net_note(config)}; fine-tuning {fine.first} steps of {config.batch_size} at "
        f"{fine.learning_rate:g}, {config.dense_rate:g} times that in fully connected layers; from "
        f"scratch {scratch.first} at {scratch.learning_rate:g}; linear SVM, one class against the "
        "rest, C = 1, on features of mean length 1; the SVM's features and fine-tuning have the "
        f"same weights, {source}"
    )


def windows_of(material: LabelledFrames) -> tuple[int, ...]:
    """Return the numbers of fused frames that the test recordings reach."""
    longest = np.bincount(material.test_recordings).max()
    return tuple(window for window in WINDOWS if window <= longest)


def svm_accuracies(
    material: LabelledFrames, features: Float[np.ndarray, "n f"]
) -> dict[str, np.ndarray]:
    """Return the SVM's accuracies by fused frames and by sessions."""
    labels, session, tested = material.labels, material.frames.session, material.tested
    confidence = svm_confidence(features, labels, tested)
    of_recordings = labels[tested], material.test_recordings, windows_of(material)
    sessions = []
    for count in LEARNED:
        later = session >= count
        chosen = svm_confidence(features, labels, later).argmax(axis=1)
        sessions.append(np.mean(chosen == labels[later]))
    return {FUSION: fused_accuracies(confidence, *of_recordings), SESSIONS: np.array(sessions)}


def svm_confidence(
    features: Float[np.ndarray, "n f"], labels: Int[np.ndarray, "n"], tested: Bool[np.ndarray, "n"]
) -> Float[np.ndarray, "m c"]:
    """Return the tested frames' distances from the class boundaries learned on the others."""
    learned = features[~tested]
    scale = np.linalg.norm(learned, axis=1).mean()
    machine = LinearSVC(random_state=0).fit(learned / scale, labels[~tested])
    return machine.decision_function(features[tested] / scale)


def results_summary(results: Results[StaticConfig, SvmAccuracies]) -> Summary:
    """Return the best strategy of each level, the accuracy by fused frames, and table 2."""
    accuracies = accuracies_of(results)
    best, baseline, panels = [], [], {}
    for level, values in accuracies.items():
        name = max(values, key=lambda name: values[name][0])
        best.append(f"{name} {values[name][0]:.1%} ({level})")
        baseline.append(f"{values[SCRATCH][0]:.1%} ({level})")
        panels[f"{level} level"] = {name: curve[None] for name, curve in values.items()}
    sentences = (
        "Which strategy is best when all training sessions are available at once?",
        f"Best on single frames, in one run without an interval: {'; '.join(best)}.",
        f"Baseline, {SCRATCH}: {'; '.join(baseline)}.",
    )
    path, ticks = results.folder / "fusion.png", list(map(str, WINDOWS[: reach(accuracies)]))
    fusion = Figure(
        "Accuracy on the test set by the number of fused frames, up to the length of the test "
        "recordings. Fusion sums the class confidences of a frame and of the preceding frames of "
        "its recording (softmax of the networks, distances from the SVM's boundaries).",
        plot_curves(path, panels, ACCURACY, "frames fused", top=1, ticks=ticks),
    )
    return Summary(sentences, fusion, _table(results.config, accuracies))


def reach(accuracies: Accuracies) -> int:
    """Return how many of `WINDOWS` the recordings reach."""
    return min(len(values) for by_name in accuracies.values() for values in by_name.values())


def sections(results: Results[StaticConfig, SvmAccuracies]) -> list[Section]:
    """Return the section on the number of training sessions."""
    split = (
        "Frozen features and the SVM are trained on the first k sessions and tested on all later "
        "ones, instead of three fixed test sessions."
    )
    rows = [
        [level, *(f"{100 * value:.1f}" for value in svm[SESSIONS])]
        for level, svm in results.experiment.data.items()
    ]
    columns = [Column("level"), *(Column(str(count), "sessions, %") for count in LEARNED)]
    table = Table("Accuracy in percent by the number of training sessions.", columns, rows)
    return [Section("The first sessions against the rest", [split], [table])]


def _table(config: StaticConfig, accuracies: Accuracies) -> Table:
    """Return the accuracies on single and on fused frames, with the paper's."""
    paper = STATIC[published_net(config.net)]
    fused = min(WINDOWS.index(FUSED), reach(accuracies) - 1)
    groups = {0: "single frames, %", fused: f"{WINDOWS[fused]} frames fused, %"}
    columns = [Column("strategy")]
    columns += [Column(level, group) for group in groups.values() for level in accuracies]
    columns += [Column(level, PUBLISHED_GROUP) for level in accuracies]
    rows = [
        [
            name,
            *(f"{100 * by[name][at]:.1f}" for at in groups for by in accuracies.values()),
            *(f"{paper[name][level]:.1f}" for level in accuracies),
        ]
        for name in paper
    ]
    marked = published_name(config.net, config.data)
    caption = f"50 objects and 10 categories (table 2). Paper: {marked}, single frames."
    return Table(caption, columns, rows)


PAPER = Paper(
    "core50-static",
    CITATION,
    lambda config: f"CORe50, static: {' and '.join(config.levels)} level",
    STATIC_PRESETS,
    experiment,
    sections,
    rule=lambda config: (
        "The networks after the last step are evaluated. The C of the SVM was not tuned."
    ),
    results_summary=results_summary,
    arrays=arrays,
)
