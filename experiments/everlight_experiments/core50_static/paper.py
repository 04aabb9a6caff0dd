"""The static benchmark: all training sessions at once (table 2), and frames fused over time."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.svm import LinearSVC

from everlight.continual import SequenceResult
from everlight.continual.method import Method
from everlight.metrics.frame_fusion import fused_accuracies
from everlight_data.images.core50_frames import LabelledFrames
from everlight_data.images.core50_published import STATIC, published_name, published_net
from everlight_experiments.continual.benchmark import Benchmark, Metric, Trained
from everlight_experiments.continual.paper import (
    Experiment,
    Paper,
    PaperOptions,
    Results,
    paper_options,
    run_paper,
)
from everlight_experiments.continual.report_tables import Measure, table_of
from everlight_experiments.continual.runner import evaluation_of
from everlight_experiments.continual.train import Job
from everlight_experiments.core50.benchmark import ACCURACY, core50_benchmark, load_material
from everlight_experiments.core50.config import CITATION, FIXED
from everlight_experiments.core50.start import (
    Beginning,
    Course,
    begin_with,
    check_net,
    net_note,
)
from everlight_experiments.core50_static.config import STATIC_PRESETS, StaticConfig
from everlight_experiments.report.plots import plot_curves
from everlight_experiments.report.writer import PAPER as PUBLISHED_GROUP
from everlight_experiments.report.writer import Figure, FirstScreen, Section, Table
from everlight_experiments.run_folder.folder import RunFolder

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


def experiment(config: StaticConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return both networks at every level, and the SVM's accuracies.

    Raises:
      DataError: data or weights that cannot be used.
    """
    check_net(config)
    materials = {level: load_material(config, level, options.seed) for level in config.levels}
    frames = next(iter(materials.values())).frames
    beginning = begin_with(folder, config, frames, options.seed)
    benchmarks = {
        f"{level}, {name}": _benchmark(config, name, material, options.seed, beginning)._replace(
            part=level
        )
        for level, material in materials.items()
        for name in (SCRATCH, TUNING)
    }
    jobs = [Job(column, FIXED["naive"], 1) for column in benchmarks]
    facts = {"beginning": beginning.fingerprint, "frames": len(frames.images)}
    values = np.asarray(beginning.features().values)
    svm = {level: _svm(folder, each, values, facts) for level, each in materials.items()}
    return Experiment(benchmarks, jobs, data=(svm, order_remark(config, values.shape[1])))


def accuracies_of(results: Results) -> Accuracies:
    """Return the accuracies of all three strategies."""
    (svm, _), outcomes = results.experiment.data, results.outcomes
    found = {level: {SVM: each[FUSION]} for level, each in svm.items()}
    for level, by_name in found.items():
        for name in (SCRATCH, TUNING):
            by_name[name] = outcomes[f"{level}, {name}"]["naive"].metrics[FUSION][0]
    return found


def arrays(results: Results) -> dict[str, np.ndarray]:
    """Return the accuracies as `level/strategy`, and those by sessions as `level/sessions`."""
    svm, _ = results.experiment.data
    return {
        f"{level}/{name}": values
        for level, by_name in accuracies_of(results).items()
        for name, values in (*by_name.items(), (SESSIONS, svm[level][SESSIONS]))
    }


def _benchmark(
    config: StaticConfig, name: str, material: LabelledFrames, seed: int, start: Beginning
) -> Benchmark:
    """Return the benchmark of one batch of all frames, whose runs keep confidences."""
    scratch = name == SCRATCH
    length = config.scratch if scratch else config.fine_tuning
    rate = 1.0 if scratch else config.dense_rate
    course = Course(name, "static", lambda method: length, 1.0, not scratch, rate)
    benchmark = core50_benchmark(config, course, material, seed, start)
    evaluate = evaluation_of(benchmark, FIXED["naive"], seed)
    windows = windows_of(material)
    tested = material.labels[material.tested], material.test_recordings, windows

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        confidence = jax.nn.softmax(evaluate(result)())
        return {**benchmark.keep(method, result), "confidences": confidence}

    def fused(run: Trained) -> Float[np.ndarray, "windows"]:
        return fused_accuracies(run.arrays["confidences"], *tested)

    metric = Metric(FUSION, fused, (tuple(map(str, windows)),))
    return benchmark._replace(
        draws="initial network",
        training=_training(config, start.source),
        keep=keep,
        metrics=(*benchmark.metrics[:2], metric),
    )


def _training(config: StaticConfig, source: str) -> str:
    fine, scratch = config.fine_tuning, config.scratch
    return (
        f"{net_note(config)}; fine-tuning {fine.first} steps of {config.batch_size} at "
        f"{fine.learning_rate:g}, {config.dense_rate:g} times that in fully connected layers; from "
        f"scratch {scratch.first} at {scratch.learning_rate:g}; linear SVM, one class against the "
        "rest, C = 1, on features of mean length 1; the SVM's features and fine-tuning have the "
        f"same weights, {source}"
    )


def windows_of(material: LabelledFrames) -> tuple[int, ...]:
    """Return the numbers of fused frames that the test recordings reach."""
    longest = np.bincount(material.test_recordings).max()
    return tuple(window for window in WINDOWS if window <= longest)


def _svm(
    folder: RunFolder, material: LabelledFrames, features: Float[np.ndarray, "n f"], facts: dict
) -> dict[str, np.ndarray]:
    """Return the SVM's accuracies, kept in the run's folder: by fused frames and by sessions."""
    name = f"svm-{material.level}"
    facts = {"level": material.level, "learned": LEARNED, **facts}
    found = folder.read_unit(name, facts)
    if found is not None:
        return found
    labels, session = material.labels, material.frames.session
    tested, fused = material.tested, (material.test_recordings, windows_of(material))
    confidence = svm_confidence(features, labels, tested)
    found = {FUSION: fused_accuracies(confidence, labels[tested], *fused)}
    sessions = []
    for count in LEARNED:
        later = session >= count
        chosen = svm_confidence(features, labels, later).argmax(axis=1)
        sessions.append(np.mean(chosen == labels[later]))
    found[SESSIONS] = np.array(sessions)
    # One of several processes is enough.
    if folder.claim_unit(name):
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


def first_screen(results: Results) -> FirstScreen:
    """Return the best strategy of each level, the accuracy by fused frames, and the orders."""
    config, accuracies = results.config, accuracies_of(results)
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
    _, remark = results.experiment.data
    if remark and any(_order(here[level]) != _order(published[level]) for level in here):
        orders.append(remark)
    panels = {
        f"{level} level": {name: values[None] for name, values in by_name.items()}
        for level, by_name in accuracies.items()
    }
    (windows,) = results.experiment.benchmarks[f"{config.levels[0]}, {TUNING}"].metrics[-1].axes
    path = results.folder / "fusion.png"
    fusion = Figure(
        "Accuracy on the test set by the number of fused frames, up to the length of the test "
        "recordings. Fusion sums the class confidences of a frame and of the preceding frames of "
        "its recording (softmax of the networks, distances from the SVM's boundaries).",
        plot_curves(path, panels, ACCURACY, "frames fused", top=1, ticks=windows),
    )
    table = _table(accuracies, paper, published_name(config.net, config.data))
    return FirstScreen(_headline(here), fusion, table, tuple(orders))


def sections(results: Results) -> list[Section]:
    """Return the section on the number of training sessions."""
    split = (
        "Frozen features and the SVM are trained on the first k sessions and tested on all later "
        "ones, instead of three fixed test sessions."
    )
    svm, _ = results.experiment.data
    values = {level: found[SESSIONS] for level, found in svm.items()}
    measures = [
        Measure(str(count), partial(_percent, place), "sessions, %")
        for place, count in enumerate(LEARNED)
    ]
    caption = "Accuracy in percent by the number of training sessions."
    table = table_of(caption, values, measures, first="level")
    return [Section("The first sessions against the rest", [split], [table])]


def _percent(place: int, accuracies: Float[np.ndarray, "n"]) -> str:
    return f"{100 * accuracies[place]:.1f}"


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
    fused = min(windows - 1, WINDOWS.index(FUSED))
    groups = [(0, "single frames, %"), (fused, f"{WINDOWS[fused]} frames fused, %")]
    measures = [
        Measure(level, lambda name, at=by_name, place=place: _percent(place, at[name]), group)
        for place, group in groups
        for level, by_name in accuracies.items()
    ]
    measures += [
        Measure(level, lambda name, level=level: f"{paper[name][level]:.1f}", PUBLISHED_GROUP)
        for level in accuracies
    ]
    caption = f"50 objects and 10 categories (table 2). Paper: {marked}, single frames."
    return table_of(caption, {name: name for name in paper}, measures, first="strategy")


STATIC_PAPER = Paper(
    "core50-static",
    CITATION,
    lambda config: f"CORe50, static: {' and '.join(config.levels)} level",
    STATIC_PRESETS,
    experiment,
    sections,
    rule="The networks after the last step are evaluated. The C of the SVM was not tuned.",
    first=first_screen,
    arrays=arrays,
)
run_static = partial(run_paper, STATIC_PAPER)
static_options = partial(paper_options, STATIC_PAPER)
