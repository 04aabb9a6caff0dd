"""The static benchmark: all training sessions at once (table 2), and frames fused over time."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.svm import LinearSVC

from everlight.continual import SequenceResult
from everlight.continual.method import Method
from everlight.metrics.frame_fusion import fused_accuracies
from everlight.scenarios.core50 import OBJECTS, TEST_SESSIONS
from everlight_data.images.core50_published import STATIC
from everlight_experiments.common.plots import COLORS, new_canvas, save
from everlight_experiments.common.report import (
    PAPER as PUBLISHED_GROUP,
)
from everlight_experiments.common.report import (
    Column,
    Figure,
    FirstScreen,
    Section,
    Table,
    write_report,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual.benchmark import Benchmark, Metric, Trained
from everlight_experiments.continual.evaluation import evaluation_of
from everlight_experiments.continual.paper import PaperOptions, paper_options
from everlight_experiments.continual.train import Job, Training, runners_of, train_jobs
from everlight_experiments.core50.benchmark import Material, Start, core50_benchmark, load_material
from everlight_experiments.core50.config import CITATION, FIXED, published_name, published_net
from everlight_experiments.core50.paper import PAPER
from everlight_experiments.core50.start import (
    Course,
    begin_with,
    check_net,
    net_note,
    trunk_features,
)
from everlight_experiments.core50_static.config import STATIC_PRESETS, StaticConfig

WINDOWS = (1, 2, 4, 8, 16, 32)
"""Numbers of fused frames, as far as the recordings reach."""
FUSED = 8
"""Fused frames in the table, beside single frames; fewer where the recordings are shorter."""
LEARNED = (1, 2, 4, 6, 8, 10)
"""Numbers of sessions, the first ones, that the SVM learns; it is tested on the others."""
SCRATCH, SVM, TUNING = "from scratch", "frozen + SVM", "fine-tuning"
FUSION, SESSIONS = "accuracy by fused frames", "sessions"

Accuracies = Mapping[str, Mapping[str, Float[np.ndarray, "windows"]]]
"""Accuracies by level and strategy, for each of the first `WINDOWS`."""

static_options = partial(
    paper_options, PAPER._replace(name="core50-static", presets=STATIC_PRESETS)
)


def run_static(options: PaperOptions) -> Path:
    """Train every strategy at every level and write the report; returns its path.

    Raises:
      DataError: data or weights that cannot be used.
    """
    config: StaticConfig = options.config
    check_net(config)
    folder = RunFolder("paper", "core50-static", options)
    materials = {level: load_material(config, level, options.seed) for level in config.levels}
    frames = next(iter(materials.values())).frames
    beginning = begin_with(folder, config, frames, options.seed)
    features = trunk_features(beginning, config)
    start = Start(beginning, lambda: features)
    benchmarks = {
        f"{level}, {name}": _benchmark(config, name, material, options.seed, start)
        for level, material in materials.items()
        for name in (SCRATCH, TUNING)
    }
    parts = {column: column.partition(", ")[0] for column in benchmarks}
    runners = runners_of(Training(folder, options.seed), benchmarks, parts)
    outcomes = train_jobs(runners, [Job(column, FIXED["naive"], 1) for column in benchmarks])
    facts = {"beginning": beginning.fingerprint, "frames": len(frames.images)}
    svm = {
        level: _svm(folder, material, np.asarray(features.values), facts)
        for level, material in materials.items()
    }
    accuracies = {
        level: {
            SCRATCH: outcomes[f"{level}, {SCRATCH}"]["naive"].metrics[FUSION][0],
            SVM: found[FUSION],
            TUNING: outcomes[f"{level}, {TUNING}"]["naive"].metrics[FUSION][0],
        }
        for level, found in svm.items()
    }
    sessions = {level: found[SESSIONS] for level, found in svm.items()}
    folder.save_results(
        **{
            f"{level}/{name}": values
            for level, by_name in accuracies.items()
            for name, values in (*by_name.items(), (SESSIONS, sessions[level]))
        }
    )
    benchmark = next(iter(benchmarks.values()))
    fine, scratch = config.fine_tuning, config.scratch
    summary = [
        ("Paper", CITATION),
        ("Data", benchmark.note),
        ("Network", net_note(config)),
        ("Weights", f"the SVM's features and fine-tuning have the same, {beginning.source}"),
        (
            "Training",
            f"fine-tuning {fine.first} steps of {config.batch_size} at {fine.learning_rate:g}, "
            f"{config.dense_rate:g} times that in fully connected layers; from scratch "
            f"{scratch.first} at {scratch.learning_rate:g}; one run, seed {options.seed}; linear "
            "SVM, one class against the rest, C = 1, on features of mean length 1",
        ),
        (
            "Selection rule",
            "The networks after the last step are evaluated. The C of the SVM was not tuned.",
        ),
        ("Selection of network and training", config.chosen),
        ("Duration", folder.duration()),
    ]
    remark = order_remark(config, features.values.shape[1])
    first, rest = _sections(folder.path, config, accuracies, sessions, remark)
    title = f"CORe50, static: {frames.name} ({options.preset})"
    return write_report(folder.path, title, summary, rest, first)


def _benchmark(
    config: StaticConfig, name: str, material: Material, seed: int, start: Start
) -> Benchmark:
    """Return the benchmark of one batch of all frames, whose runs keep confidences."""
    scratch = name == SCRATCH
    length = config.scratch if scratch else config.fine_tuning
    rate = 1.0 if scratch else config.dense_rate
    course = Course(name, "static", lambda method: length, 1.0, not scratch, rate)
    benchmark = core50_benchmark(config, course, material, seed, start)
    evaluate = evaluation_of(benchmark, FIXED["naive"], seed)
    tested = np.isin(material.frames.session, TEST_SESSIONS)
    labels, recording = material.labels[tested], recordings(material)[tested]
    windows = windows_of(material)

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        confidence = jax.nn.softmax(evaluate(result)())
        return {**benchmark.keep(method, result), "confidences": confidence}

    def fused(run: Trained) -> Float[np.ndarray, "windows"]:
        return fused_accuracies(run.arrays["confidences"], labels, recording, windows)

    metric = Metric(FUSION, fused, (tuple(map(str, windows)),))
    return benchmark._replace(keep=keep, metrics=(*benchmark.metrics[:2], metric))


def recordings(material: Material) -> Int[np.ndarray, "n"]:
    """Return the number of each frame's recording, an object in a session."""
    return material.frames.session * OBJECTS + material.frames.object


def windows_of(material: Material) -> tuple[int, ...]:
    """Return the numbers of fused frames that the test recordings reach."""
    tested = np.isin(material.frames.session, TEST_SESSIONS)
    longest = np.bincount(recordings(material)[tested]).max()
    return tuple(window for window in WINDOWS if window <= longest)


def _svm(
    folder: RunFolder, material: Material, features: Float[np.ndarray, "n f"], facts: dict
) -> dict[str, np.ndarray]:
    """Return the SVM's accuracies, kept in the run's folder: by fused frames and by sessions."""
    name = f"svm-{material.level}"
    facts = {"level": material.level, "learned": LEARNED, **facts}
    found = folder.read_unit(name, facts)
    if found is not None:
        return found
    labels, session = material.labels, material.frames.session
    tested = np.isin(session, TEST_SESSIONS)
    confidence = svm_confidence(features, labels, tested)
    recording = recordings(material)[tested]
    found = {FUSION: fused_accuracies(confidence, labels[tested], recording, windows_of(material))}
    sessions = []
    for count in LEARNED:
        later = session >= count
        chosen = svm_confidence(features, labels, later).argmax(axis=1)
        sessions.append(np.mean(chosen == labels[later]))
    found[SESSIONS] = np.array(sessions)
    folder.save_unit(name, facts, **found)
    return found


def svm_confidence(
    features: Float[np.ndarray, "n f"], labels: Int[np.ndarray, "n"], tested: Bool[np.ndarray, "n"]
) -> Float[np.ndarray, "m c"]:
    """Return the tested frames' distances from the class boundaries learned on the others."""
    learned = features[~tested]
    scale = np.linalg.norm(learned, axis=1).mean()
    machine = LinearSVC(random_state=0).fit(learned / scale, labels[~tested])
    return machine.decision_function(features[tested] / scale)


def order_remark(config: StaticConfig, features: int) -> str:
    """Return why the order of strategies may differ from the paper's; empty for its networks."""
    if config.net != "small" or config.hidden >= features:
        return ""
    return (
        "A likely reason for another order: the networks classify from a hidden layer of "
        f"{config.hidden} units, narrower than the {features:,} features of the SVM."
    )


def _sections(
    path: Path,
    config: StaticConfig,
    accuracies: Accuracies,
    sessions: Mapping[str, Float[np.ndarray, "counts"]],
    remark: str,
) -> tuple[FirstScreen, list[Section]]:
    """Return the first screen and the section on the number of training sessions."""
    paper = STATIC[published_net(config.net)]
    here = {
        level: {name: float(values[0]) for name, values in by_name.items()}
        for level, by_name in accuracies.items()
    }
    published = {level: {name: paper[name][level] for name in paper} for level in accuracies}
    orders = [
        f"{level.capitalize()} level, from the lowest: {_order(here[level])}; in the paper "
        f"{_order(published[level])}."
        for level in accuracies
    ]
    if remark and any(_order(here[level]) != _order(published[level]) for level in here):
        orders.append(remark)
    fusion = Figure(
        "Accuracy on the test set by the number of fused frames, up to the length of the test "
        "recordings. Fusion sums the class confidences of a frame and of the preceding frames of "
        "its recording (softmax of the networks, distances from the SVM's boundaries).",
        _plot_fusion(path / "fusion.png", accuracies),
    )
    split = (
        "Frozen features and the SVM are trained on the first k sessions and tested on all later "
        "ones, instead of three fixed test sessions."
    )
    columns = [Column("level"), *(Column(str(count), "sessions, %") for count in LEARNED)]
    rows = [
        [level, *(f"{100 * value:.1f}" for value in values)] for level, values in sessions.items()
    ]
    table = Table("Accuracy in percent by the number of training sessions.", columns, rows)
    name = published_name(config)
    first = FirstScreen(_headline(here), fusion, _table(accuracies, paper, name), tuple(orders))
    return first, [Section("The first sessions against the rest", [split], [table])]


def _headline(accuracy: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Return the question, the best strategy of each level, and the baseline."""
    best = {level: max(values, key=lambda name: values[name]) for level, values in accuracy.items()}
    found = (f"{name} {accuracy[level][name]:.1%} ({level})" for level, name in best.items())
    baseline = (f"{values[SCRATCH]:.1%} ({level})" for level, values in accuracy.items())
    return (
        "Which strategy is best when all training sessions are available at once?",
        f"Best on single frames, in one run without an interval: {'; '.join(found)}.",
        f"Baseline, {SCRATCH}: {'; '.join(baseline)}.",
    )


def _order(accuracy: Mapping[str, float]) -> str:
    return ", ".join(sorted(accuracy, key=lambda name: accuracy[name]))


def _table(accuracies: Accuracies, paper: Mapping[str, Mapping[str, float]], marked: str) -> Table:
    windows = len(next(iter(next(iter(accuracies.values())).values())))
    place = min(windows - 1, WINDOWS.index(FUSED))
    rows = []
    for name, published in paper.items():
        own = [accuracies[level][name] for level in accuracies]
        rows.append(
            [
                name,
                *(f"{100 * values[0]:.1f}" for values in own),
                *(f"{100 * values[place]:.1f}" for values in own),
                *(f"{published[level]:.1f}" for level in accuracies),
            ]
        )
    columns = [
        Column("strategy"),
        *(Column(level, "single frames, %") for level in accuracies),
        *(Column(level, f"{WINDOWS[place]} frames fused, %") for level in accuracies),
        *(Column(level, PUBLISHED_GROUP) for level in accuracies),
    ]
    caption = f"50 objects and 10 categories (table 2). Paper: {marked}, single frames."
    return Table(caption, columns, rows)


def _plot_fusion(path: Path, accuracies: Accuracies) -> Path:
    """Draw accuracy by the number of fused frames, a panel per level."""
    canvas, axes = new_canvas(len(accuracies), 4.6, 3.4)
    for axis, (level, by_name) in zip(axes, accuracies.items(), strict=True):
        for color, (name, values) in zip(COLORS, by_name.items(), strict=False):
            windows = WINDOWS[: len(values)]
            axis.plot(windows, 100 * values, color=color, marker="o", markersize=3, label=name)
        axis.set(title=f"{level} level", xlabel="frames fused", ylim=(0, 100))
        axis.set_xscale("log", base=2)
        axis.set_xticks(windows, list(map(str, windows)))
    axes[0].set_ylabel("accuracy, %")
    canvas.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return save(canvas, path)
