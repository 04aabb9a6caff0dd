"""CORe50 as benchmarks: published orders of batches, all tested on one fixed test set."""

import dataclasses
import functools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.continual import SequenceResult, Setup, StoredImages, TaskSequence
from everlight.continual.method import Method, Needs
from everlight.metrics.open_set import OpenSet, open_set_scores_over_time
from everlight.scenarios.core50 import RUNS, Level
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.images.as_inputs import store_features
from everlight_data.images.core50_frames import LabelledFrames, thin_test
from everlight_data.images.image_set import ImageSet
from everlight_experiments.continual.benchmark import (
    Benchmark,
    Metric,
    RunData,
    Trained,
    Use,
    once_per_run,
)
from everlight_experiments.continual.outcome import BY_TASK
from everlight_experiments.continual.parts import load_features
from everlight_experiments.core50.config import GRIDS, Base, Config, Length, Scenario
from everlight_experiments.core50.start import (
    MOMENTUM,
    WEIGHT_DECAY,
    Beginning,
    Course,
    Shared,
    begin_with,
    check_net,
    core50_begin,
    load_frames,
    net_note,
    protocol_of,
)
from everlight_experiments.run_folder.folder import RunFolder

IDENTIFYING = (
    *("frames", "test_frames", "side", "net", "pretraining", "channels", "hidden", "dense_rate"),
    *("batch_size", "dtype", "gain", "replay_batch_size"),
)
"""Fields of a configuration that identify a run beside its seed, data and training length."""
ACCURACY = "accuracy"
SEEN, ROC, AREA = "accuracy on seen classes", "ROC curve", "area under the ROC curve"
TRUNK_OPERATIONS = "trunk operations per frame"
ROC_POINTS = np.linspace(0, 1, 51)
"""Shares of unknown samples accepted at which the ROC curve is kept."""


def accuracy_by_task(run: Trained) -> Float[np.ndarray, "t t"]:
    """Return the accuracy on the classes that each batch is the first to bring, after every batch.

    Every class has equally many test frames.
    """
    brought = np.asarray(run.sequence.class_task) == np.arange(run.tasks)[:, None]
    with np.errstate(invalid="ignore"):
        return run.arrays["class_accuracy"] @ brought.T / brought.sum(axis=1)


@once_per_run
def open_set(run: Trained) -> OpenSet:
    """Return the paper's two other ways to test (section 5.2): options 1 and 3."""
    sequence = run.sequence
    seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
    known = seen[:, sequence.test.labels[:, 0]]
    confidence, correct = (jnp.asarray(run.arrays[name]) for name in ("confidence", "correct"))
    points = jnp.asarray(ROC_POINTS, jnp.float32)
    return _open_sets(confidence, correct, known, sequence.test.mask, points)


_open_sets = jax.jit(open_set_scores_over_time)
METRICS = (
    Metric(ACCURACY, lambda run: run.arrays["accuracy"], ("time",)),
    Metric(BY_TASK.format(ACCURACY), accuracy_by_task, ("time", "task")),
    Metric(
        SEEN,
        lambda run: open_set(run).partial,
        ("time",),
        meaning="Accuracy on the test samples of the classes seen so far, whose number grows "
        "(option 1 of the paper, section 5.2).",
    ),
    Metric(ROC, lambda run: open_set(run).roc, ("time", len(ROC_POINTS))),
    Metric(
        AREA,
        lambda run: open_set(run).area,
        ("time",),
        meaning="Share of pairs where the sample of a seen class has the higher confidence than "
        "one of an unseen class; 0.5 is chance, and there is none when all classes are seen.",
    ),
    Metric(TRUNK_OPERATIONS, lambda run: run.arrays["trunk_operations"], (), False),
)


def core50_benchmarks(scenario: Scenario, request: Any) -> dict[str, Benchmark]:
    """Return the benchmark of a scenario, for any methods.

    Raises:
      DataError: more seeds than published orders beside those of the validation seeds.
    """
    left = RUNS - request.validation_seeds
    if request.seeds > left:
        raise DataError(
            f"--seeds {request.seeds}; core50 has {RUNS} published orders, of which "
            f"--validation-seeds {request.validation_seeds} take some: give {left} or less"
        )
    return batch_benchmarks(request.config, "object", (scenario,), request.seed, request.runs)


def batch_benchmarks(
    config: Config, level: Level, scenarios: Sequence[Scenario], seed: int, runs: Path
) -> dict[str, Benchmark]:
    """Return the benchmarks of scenarios, which share frames, weights and features.

    Args:
      config: of the benchmark.
      level: of the classes.
      scenarios: NI, NC, NIC.
      seed: of the run.
      runs: where run folders are made; computed features are kept there.

    Raises:
      DataError: data or weights that cannot be used.
    """
    check_net(config)
    material = load_material(config, level, seed)
    start = functools.cache(partial(_start, config, material, seed, runs))
    found = {}
    for scenario in scenarios:
        # The gain makes up for a first batch of more classes, which NI has not.
        gain = 1.0 if scenario == "NI" else config.gain
        length = partial(length_of, config, scenario)
        course = Course(scenario, scenario, length, gain, whole_rate=config.dense_rate)
        bound = partial(core50_benchmark, config, course, material, seed)
        found[scenario] = bound()._replace(prepare=lambda folder, bound=bound: bound(start(folder)))
    return found


def load_material(config: Base, level: Level, seed: int) -> LabelledFrames:
    """Return the frames of a configuration, with a thinned test set, and their classes."""
    frames = thin_test(load_frames(config, seed), config.test_frames)
    return LabelledFrames(frames, level, config.test_frames)


def _start(
    config: Config, material: LabelledFrames, seed: int, runs: Path, folder: RunFolder
) -> Beginning:
    frames = material.frames
    if config.features is None:
        return begin_with(folder, config, frames, seed)
    images = ImageSet("", frames.images, frames.object, frames.object[:0], frames.object_names)
    found = load_features(config.features, images, runs)
    stored = store_features(found, ~material.tested)
    checksums = checksums_of(np.asarray(stored.pieces))
    return Beginning({}, stored, f"on {found.note}", checksums=checksums)


def length_of(config: Config, scenario: Scenario, method: Method) -> Length:
    """Return steps and learning rate of a method on every batch of a scenario."""
    if method.trains == "head":
        return config.head
    return config.cumulative if method.anew else getattr(config, scenario.lower())


def core50_benchmark(
    config: Base,
    course: Course,
    material: LabelledFrames,
    seed: int,
    start: Beginning | None = None,
) -> Benchmark:
    """Return a benchmark; a draw is a published order of the batches.

    Args:
      config: of the benchmark.
      course: batches and training.
      material: frames and classes.
      seed: of the run.
      start: without it nothing can be trained.
    """
    classes, checksums = len(material.names), material.checksums
    on_features = start is not None and start.features is None

    @functools.cache
    def ordered(use: Use, number: int) -> TaskSequence:
        if use == "validation":
            return material.sequence(course.scenario, RUNS - 1 - number, True)
        return material.sequence(course.scenario, number)

    def begin(method: Method, data: RunData) -> tuple[Setup, Needs]:
        tasks = ordered("evaluation", 0).tasks.id.shape[0]
        return core50_begin(config, course, classes, tasks, on_features)(method, data)

    def facts(method: Method) -> dict:
        every = dataclasses.asdict(config)
        return {
            "seed": seed,
            "level": material.level,
            "beginning": start.fingerprint if course.pretrained else None,
            "data": [*checksums, *start.checksums],
            "length": dataclasses.asdict(course.length(method)),
            **{name: every[name] for name in IDENTIFYING if every.get(name) is not None},
        }

    def shared(method: Method) -> Shared:
        length = course.length(method)
        rates = jnp.float32(length.learning_rate), jnp.float32(length.later_factor)
        if method.trains == "head" and not on_features:
            values = start.features().values
            return Shared(StoredImages.of(values, jnp.float32(0), jnp.float32(1)), {}, *rates)
        layers = start.layers if course.pretrained else {}
        return Shared(start.stored, layers, *rates)

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        on_trunk = method.trains == "head" and not on_features
        operations = start.features().operations if on_trunk else 0.0
        return {**result.evaluation._asdict(), "trunk_operations": np.array(operations)}

    return Benchmark(
        name="core50",
        setting=course.setting,
        note=material.note,
        draws="published order of batches",
        training=_training(config, start),
        chosen=config.chosen,
        checksums=(*checksums, *(start.checksums if start else ())),
        capabilities=frozenset(
            ("class scores", "one label", *(("own classes",) if course.scenario == "NC" else ()))
        ),
        metrics=METRICS,
        facts=facts,
        shared=shared,
        begin=begin,
        protocol=lambda method: protocol_of(course.length(method), config.batch_size),
        sequence=lambda method, draw: ordered(draw.use, draw.number),
        keep=keep,
        tested="the full test set",
        hyperparameters=GRIDS,
        program=course.setting,
        one_by_one=True,
    )


def _training(config: Base, start: Beginning | None) -> str:
    net, weights = net_note(config), ""
    if start is not None and start.features is None:
        net, weights = "a linear head", start.source
    elif start is not None:
        weights = (
            f"every method begins with weights {start.source}; CWR and methods of "
            "counting work on the frozen trunk's features"
        )
    return (
        f"{net}, SGD with momentum {MOMENTUM} and weight decay {WEIGHT_DECAY:g}, restarted at "
        f"every batch, in batches of {config.batch_size}; fully connected layers of the whole "
        f"network at {config.dense_rate:g} times the learning rate, biases at twice their layer's; "
        f"{weights}"
    )
