"""CORe50 as benchmarks: published orders of batches, all tested on one fixed test set."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.continual import Samples, SequenceResult, Setup, StoredImages, TaskSequence
from everlight.continual.method import Method, Needs
from everlight.metrics.open_set import OpenSet, open_set_scores
from everlight.scenarios.core50 import RUNS, TEST_SESSIONS, Level, core50
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.images.core50 import Core50, category_of
from everlight_data.images.core50_frames import thin_test, thinned
from everlight_data.images.image_set import ImageSet
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual.benchmark import Benchmark, Metric, RunData, Trained, Use
from everlight_experiments.continual.outcome import BY_TASK
from everlight_experiments.continual.parts import load_features, stored_features
from everlight_experiments.continual.pretraining import FrozenFeatures
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
    trunk_features,
)

VALIDATION_SESSIONS = (0, 1, 3, 4, 7, 8), (5, 10)
"""Training and test sessions of the validation seeds; all are training sessions."""
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


def open_set(run: Trained) -> OpenSet:
    """Return the paper's two other ways to test (section 5.2): options 1 and 3."""
    sequence = run.sequence
    seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
    known = seen[:, sequence.test.labels[:, 0]]
    confidence, correct = (jnp.asarray(run.arrays[name]) for name in ("confidence", "correct"))
    return _open_sets((confidence, correct, known), sequence.test.mask)


@jax.jit
def _open_sets(rows: tuple[Array, Array, Array], mask: Array) -> OpenSet:
    points = jnp.asarray(ROC_POINTS, jnp.float32)
    return jax.lax.map(lambda row: open_set_scores(*row, mask, points), rows)


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


class Material(NamedTuple):
    """Frames with the classes of a level."""

    frames: Core50
    labels: Int[np.ndarray, "n"]
    names: tuple[str, ...]
    level: Level
    checksums: tuple[int, ...]


class Start(NamedTuple):
    """Weights that methods begin with, and features of the frozen trunk."""

    beginning: Beginning
    features: Callable[[], FrozenFeatures] | None
    """None where the frames themselves are features."""
    checksums: tuple[int, ...] = ()
    """Checksums of features in the frames' place."""


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
    start = functools.cache(partial(_start, config, material.frames, seed, runs))
    found = {}
    for scenario in scenarios:
        # The gain makes up for a first batch of more classes, which NI has not.
        gain = 1.0 if scenario == "NI" else config.gain
        length = partial(length_of, config, scenario)
        course = Course(scenario, scenario, length, gain, whole_rate=config.dense_rate)
        bound = partial(core50_benchmark, config, course, material, seed)
        found[scenario] = bound()._replace(prepare=lambda folder, bound=bound: bound(start(folder)))
    return found


def load_material(config: Base, level: Level, seed: int) -> Material:
    """Return the frames of a configuration, with a thinned test set, and their classes."""
    frames = thin_test(load_frames(config, seed), config.test_frames)
    by_object = level == "object"
    labels = frames.object if by_object else category_of(frames.object)
    names = frames.object_names if by_object else frames.category_names
    tested = np.isin(frames.session, TEST_SESSIONS)
    checksums = checksums_of(frames.images, labels[~tested], labels[tested])
    return Material(frames, labels, tuple(names), level, checksums)


def _start(config: Config, frames: Core50, seed: int, runs: Path, folder: RunFolder) -> Start:
    if config.features is None:
        beginning = begin_with(folder, config, frames, seed)
        return Start(beginning, functools.cache(lambda: trunk_features(beginning, config)))
    images = ImageSet("", frames.images, frames.object, frames.object[:0], frames.object_names)
    found = load_features(config.features, images, runs)
    stored = stored_features(found, ~np.isin(frames.session, TEST_SESSIONS))
    checksums = checksums_of(np.asarray(stored.pieces))
    return Start(Beginning({}, stored, f"on {found.note}"), None, checksums)


def length_of(config: Config, scenario: Scenario, method: Method) -> Length:
    """Return steps and learning rate of a method on every batch of a scenario."""
    if method.trains == "head":
        return config.head
    return config.cumulative if method.anew else getattr(config, scenario.lower())


def core50_benchmark(
    config: Base, course: Course, material: Material, seed: int, start: Start | None = None
) -> Benchmark:
    """Return a benchmark; a draw is a published order of the batches.

    Args:
      config: of the benchmark.
      course: batches and training.
      material: frames and classes.
      seed: of the run.
      start: without it nothing can be trained.
    """
    frames, level, scenario = material.frames, material.level, course.scenario
    classes = len(material.names)
    on_features = start is not None and start.features is None

    @functools.cache
    def ordered(use: Use, number: int) -> TaskSequence:
        if use == "validation":
            return _validating(frames, scenario, RUNS - 1 - number, level, config.test_frames)
        return core50(frames.object, frames.session, scenario, number, level)

    def begin(method: Method, data: RunData) -> tuple[Setup, Needs]:
        tasks = ordered("evaluation", 0).tasks.id.shape[0]
        return core50_begin(config, course, classes, tasks, on_features)(method, data)

    def facts(method: Method) -> dict:
        every = dataclasses.asdict(config)
        return {
            "seed": seed,
            "level": level,
            "beginning": start.beginning.fingerprint if course.pretrained else None,
            "data": [*material.checksums, *start.checksums],
            "length": dataclasses.asdict(course.length(method)),
            **{name: every[name] for name in IDENTIFYING if every.get(name) is not None},
        }

    def shared(method: Method) -> Shared:
        length = course.length(method)
        rates = jnp.float32(length.learning_rate), jnp.float32(length.later_factor)
        if method.trains == "head" and not on_features:
            values = start.features().values
            return Shared(StoredImages.of(values, jnp.float32(0), jnp.float32(1)), {}, *rates)
        layers = start.beginning.layers if course.pretrained else {}
        return Shared(start.beginning.stored, layers, *rates)

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        on_trunk = method.trains == "head" and not on_features
        operations = start.features().operations if on_trunk else 0.0
        return {**result.evaluation._asdict(), "trunk_operations": np.array(operations)}

    return Benchmark(
        name="core50",
        setting=course.setting,
        note=_note(config, material),
        draws="published order of batches",
        training=_training(config, start),
        chosen=config.chosen,
        checksums=(*material.checksums, *(start.checksums if start else ())),
        capabilities=frozenset(
            ("class scores", "one label", *(("own classes",) if scenario == "NC" else ()))
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
        config=config,
    )


def _note(config: Base, material: Material) -> str:
    tested = np.isin(material.frames.session, TEST_SESSIONS)
    thin = config.test_frames
    recorded = "" if thin is None else f", at most {thin} per recording"
    return (
        f"{material.frames.name}, {config.side}×{config.side} pixels, {len(material.names)} "
        f"classes ({material.level} level), {np.count_nonzero(~tested):,} training frames, "
        f"{np.count_nonzero(tested):,} test frames of sessions 3, 7 and 10{recorded}"
    )


def _training(config: Base, start: Start | None) -> str:
    net, weights = net_note(config), ""
    if start is not None and start.features is None:
        net, weights = "a linear head", start.beginning.source
    elif start is not None:
        weights = (
            f"every method begins with weights {start.beginning.source}; CWR and methods of "
            "counting work on the frozen trunk's features"
        )
    return (
        f"{net}, SGD with momentum {MOMENTUM} and weight decay {WEIGHT_DECAY:g}, restarted at "
        f"every batch, in batches of {config.batch_size}; fully connected layers of the whole "
        f"network at {config.dense_rate:g} times the learning rate, biases at twice their layer's; "
        f"{weights}"
    )


def _validating(
    frames: Core50, scenario: str, run: int, level: Level, test_frames: int | None
) -> TaskSequence:
    """Return an order that no evaluation seed has, tested on training sessions left out."""
    place = thinned(frames, VALIDATION_SESSIONS[1], test_frames)
    objects, sessions = frames.object[place], frames.session[place]
    found = core50(objects, sessions, scenario, run, level, *VALIDATION_SESSIONS)

    def in_frames(samples: Samples) -> Samples:
        return samples._replace(index=jnp.asarray(place)[samples.index])

    tasks = found.tasks._replace(
        train=in_frames(found.tasks.train), valid=in_frames(found.tasks.valid)
    )
    return found._replace(tasks=tasks, test=in_frames(found.test))
