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
import optax
from jaxtyping import Array, Float, PyTree, UInt8

from everlight.continual import (
    SequenceResult,
    Setup,
    StoredImages,
    TaskSequence,
    fixed_test_objective,
    flax_setup,
)
from everlight.continual.methods.method import Method, StrategyArguments
from everlight.metrics.open_set import OpenSet, open_set_scores_over_time
from everlight.models import with_layers
from everlight.models.caffe_nets import scale_layers
from everlight.scenarios.core50 import RUNS, Level
from everlight.trees import checksums_of
from everlight_data.images.core50.frames import LabelledFrames
from everlight_data.images.core50.prepared import CATEGORY_NAMES, OBJECT_NAMES, Core50
from everlight_data.images.inputs.as_inputs import store_features
from everlight_data.runs.finished_runs import matrix_name
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    Benchmarks,
    Data,
    Request,
    Selection,
    Setting,
    Training,
)
from everlight_experiments.continual.benchmarks.metric import Metric, Metrics, once_per_run
from everlight_experiments.continual.benchmarks.parts import load_features
from everlight_experiments.continual.benchmarks.run_data import RunData, TrainedRun, Use
from everlight_experiments.continual.benchmarks.shapes import blank_images, stored_shapes
from everlight_experiments.core50.config import GRIDS, Base, Core50Config, Length, Scenario
from everlight_experiments.core50.start import (
    InitialWeights,
    check_net,
    initial_weights,
    load_material,
    make_head,
    make_net,
    net_note,
)
from everlight_experiments.run_folder.folder import RunFolder

ACCURACY = "accuracy"
SEEN, ROC, AREA = "accuracy on seen classes", "ROC curve", "area under the ROC curve"
TRUNK_OPERATIONS = "trunk operations per frame"
ROC_POINTS = np.linspace(0, 1, 51)
"""Shares of unknown samples accepted at which the ROC curve is kept."""
BATCHES = {"NI": 8, "NC": 9, "NIC": 79, "static": 1}
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
EXEMPLARS, IMPORTANCE_SAMPLES = 20, 256


class TrainingSchedule(NamedTuple):
    """Batches of a benchmark, and how methods learn from them."""

    setting: str
    scenario: str
    """NI, NC, NIC or static."""
    length: Callable[[Method], Length]
    gain: float = 1.0
    """CWR's factor on weights consolidated at the first batch."""
    pretrained: bool = True
    whole_rate: float = 1.0
    """Factor of the learning rate in fully connected layers of whole networks."""


class SharedFrames(NamedTuple):
    """Data of all sequences of a method."""

    frames: StoredImages
    """The images, or the frozen trunk's features."""
    layers: PyTree
    """Weights that every network begins with; the others are drawn."""
    rate: Float[Array, ""]
    later_factor: Float[Array, ""]
    """Factor of the learning rate in all batches but the first."""


def accuracy_by_task(run: TrainedRun) -> Float[np.ndarray, "t t"]:
    """Return the accuracy on the classes that each batch is the first to bring, after every batch.

    Every class has equally many test frames.
    """
    brought = np.asarray(run.sequence.class_task) == np.arange(run.tasks)[:, None]
    with np.errstate(invalid="ignore"):
        return run.arrays["class_accuracy"] @ brought.T / brought.sum(axis=1)


@once_per_run
def open_set(run: TrainedRun) -> OpenSet:
    """Return the paper's two other ways to test (section 5.2): options 1 and 3."""
    sequence = run.sequence
    seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
    known = seen[:, sequence.test.labels[:, 0]]
    confidence, correct = (jnp.asarray(run.arrays[name]) for name in ("confidence", "correct"))
    points = jnp.asarray(ROC_POINTS, jnp.float32)
    return _open_sets(confidence, correct, known, sequence.test.mask, points)


_open_sets = jax.jit(open_set_scores_over_time)
OTHER_METRICS = (
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
    Metric(TRUNK_OPERATIONS, lambda run: run.arrays["trunk_operations"]),
)
METRICS = Metrics(
    score=Metric(ACCURACY, lambda run: run.arrays["accuracy"], ("time",)),
    score_by_task=Metric(matrix_name(ACCURACY), accuracy_by_task, ("time", "task")),
    others=OTHER_METRICS,
)


def core50_benchmarks(scenario: Scenario, request: Request[Core50Config]) -> Benchmarks:
    """Return the benchmark of a scenario, for any methods.

    Raises:
      DataError: more seeds than published orders without those of the validation seeds.
    """
    request.refuse_more_seeds_than(RUNS, "published orders")
    return batch_benchmarks(request, "object", (scenario,))


def batch_benchmarks(
    request: Request[Core50Config], level: Level, scenarios: Sequence[Scenario]
) -> Benchmarks:
    """Return the benchmarks of scenarios, which share frames, weights and features.

    Weights and features are made in the run's folder; until then the frames are shapes alone.

    Raises:
      DataError: data or weights that cannot be used.
    """
    config, seed = request.config, request.seed
    check_net(config)
    material = load_material(config, level, seed)
    weights = functools.cache(partial(_load_weights, config, material, seed, request.runs))

    def benchmark_of(scenario: Scenario, start: InitialWeights) -> Benchmark:
        return core50_benchmark(config, schedule_of(config, scenario), material, seed, start)

    def prepare(scenario: Scenario, folder: RunFolder) -> tuple[Data, Training]:
        benchmark = benchmark_of(scenario, weights(folder))
        return benchmark.data, benchmark.training

    shapes_alone = start_of_shapes(material.frames.images)
    return {
        scenario: benchmark_of(scenario, shapes_alone)._replace(prepare=partial(prepare, scenario))
        for scenario in scenarios
    }


class BlankFrames(LabelledFrames):
    """Frames without content, of which no checksum is computed."""

    checksums = ()


def shapes(config: Core50Config, scenario: Scenario) -> Benchmark:
    """Return the benchmark of a scenario whose frames are shapes alone."""
    objects, sessions = (np.repeat(grid.ravel(), config.frames) for grid in np.mgrid[:50, :11])
    images = blank_images(len(objects), config.side)
    frames = Core50(
        name="",
        images=images,
        session=sessions,
        object=objects,
        frame=objects,
        object_names=OBJECT_NAMES,
        category_names=CATEGORY_NAMES,
    )
    schedule, start = schedule_of(config, scenario), start_of_shapes(images)
    return core50_benchmark(config, schedule, BlankFrames(frames, "object"), 0, start)


def start_of_shapes(images: UInt8[np.ndarray, "n side side 3"]) -> InitialWeights:
    """Return the frames' shapes, and no weights: all are drawn."""
    return InitialWeights({}, stored_shapes(images), source="", features=lambda: None)


def schedule_of(config: Core50Config, scenario: Scenario) -> TrainingSchedule:
    """Return a scenario's batches, and how methods learn from them."""
    # The gain makes up for a first batch of more classes, which NI has not.
    gain = 1.0 if scenario == "NI" else config.gain
    return TrainingSchedule(
        setting=scenario,
        scenario=scenario,
        length=partial(length_of, config, scenario),
        gain=gain,
        whole_rate=config.dense_rate,
    )


def _load_weights(
    config: Core50Config, material: LabelledFrames, seed: int, runs: Path, folder: RunFolder
) -> InitialWeights:
    frames = material.frames
    if config.features is None:
        return initial_weights(folder, config, frames, seed)
    images = ImageSet("", frames.images, frames.object, frames.object[:0], frames.object_names)
    features = load_features(config.features, images, runs)
    stored = store_features(features, ~material.tested)
    checksums = checksums_of(np.asarray(stored.pieces), *features.marks())
    return InitialWeights({}, stored, f"on {features.note}", checksums=checksums)


def length_of(config: Core50Config, scenario: Scenario, method: Method) -> Length:
    """Return steps and learning rate of a method on every batch of a scenario."""
    if method.trains == "head":
        return config.head
    return config.cumulative if method.retrains_from_scratch else getattr(config, scenario.lower())


def core50_benchmark(
    config: Base,
    schedule: TrainingSchedule,
    material: LabelledFrames,
    seed: int,
    start: InitialWeights,
) -> Benchmark:
    """Return a benchmark of published orders."""
    capabilities = {"class scores", "one label", "last weights", "pretrained layers", "named head"}
    if not config.has_features:
        capabilities.add("layer outputs")
    if schedule.scenario == "NC":
        capabilities.add("disjoint classes")
    data = _data(schedule, material, seed, start)
    training = _training(config, schedule, material, start)
    setting = Setting(
        name=schedule.setting,
        draws="published order of batches",
        capabilities=frozenset(capabilities),
        metrics=METRICS,
        tested="the full test set",
    )
    return Benchmark("core50", data, setting, training, Selection(config.chosen, grids=GRIDS))


def _reads_trunk(method: Method, start: InitialWeights) -> bool:
    """Return True if a method learns a head on the frozen convolutions' features of frames."""
    return method.trains == "head" and start.features is not None


def _data(
    schedule: TrainingSchedule, material: LabelledFrames, seed: int, start: InitialWeights
) -> Data:
    checksums = (*material.checksums, *start.checksums)

    @functools.cache
    def load_sequence(use: Use, number: int) -> TaskSequence:
        if use == "validation":
            return material.sequence(schedule.scenario, RUNS - 1 - number, True)
        return material.sequence(schedule.scenario, number)

    def shared(method: Method) -> SharedFrames:
        length = schedule.length(method)
        frames, layers = start.stored, start.layers if schedule.pretrained else {}
        if _reads_trunk(method, start):
            values = start.features().values
            frames, layers = StoredImages.of(values, jnp.float32(0), jnp.float32(1)), {}
        rate, factor = jnp.float32(length.learning_rate), jnp.float32(length.later_factor)
        return SharedFrames(frames, layers, rate, factor)

    fingerprint = {
        "seed": seed,
        "level": material.level,
        "data": list(checksums),
        "beginning": start.fingerprint if schedule.pretrained else None,
    }
    return Data(
        note=material.note,
        checksums=checksums,
        fingerprint=fingerprint,
        shared=shared,
        sequence=lambda method, seq_id: load_sequence(seq_id.use, seq_id.number),
    )


def _training(
    config: Base,
    schedule: TrainingSchedule,
    material: LabelledFrames,
    start: InitialWeights,
) -> Training:
    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        operations = start.features().operations if _reads_trunk(method, start) else 0.0
        return {**result.evaluation._asdict(), "trunk_operations": np.array(operations)}

    return Training(
        words=_training_words(config, start),
        fingerprint=lambda method: {
            "length": dataclasses.asdict(schedule.length(method)),
            **config.fingerprint(),
        },
        setup=setup_factory(config, schedule, len(material.names), start.features is None),
        protocol=lambda method: schedule.length(method).protocol(config.batch_size),
        keep=keep,
        learning_rate=lambda method: schedule.length(method).rates_in_words,
        one_by_one=True,
        program=schedule.setting,
    )


def setup_factory(
    config: Base, schedule: TrainingSchedule, classes: int, has_feature_inputs: bool = False
) -> Callable[[Method, RunData], tuple[Setup, StrategyArguments]]:
    """Return the parts of strategies: softmax over all classes, SGD with momentum and decay.

    With `has_feature_inputs` every method learns a head on features in the frames' place.
    """

    def make(method: Method, data: RunData) -> tuple[Setup, StrategyArguments]:
        shared: SharedFrames = data.shared
        frozen = has_feature_inputs or method.trains == "head"
        optimizer = optax.chain(
            optax.add_decayed_weights(WEIGHT_DECAY),
            optax.sgd(shared.rate, momentum=MOMENTUM),
            scale_layers(1.0 if frozen else schedule.whole_rate),
        )
        # Another name of the head draws other initial values.
        head_name = "head" if "named head" in method.requirements else None
        net = (
            make_head(config, classes) if frozen else make_net(config, classes, head_name=head_name)
        )
        drawn = flax_setup(net, shared.frames, fixed_test_objective(classes), optimizer)
        setup = with_layers(drawn, shared.layers)._replace(
            task_rate=lambda number: jnp.where(number == 0, 1.0, shared.later_factor)
        )
        strategy_arguments = StrategyArguments(
            BATCHES[schedule.scenario],
            classes,
            EXEMPLARS,
            importance_samples=IMPORTANCE_SAMPLES,
            replay_batch_size=getattr(config, "replay_batch_size", None),
        )
        has_gain = "first_task_gain" in method.row_arguments(strategy_arguments)
        arguments = {"first_task_gain": schedule.gain} if has_gain else {}
        return setup, strategy_arguments._replace(arguments=arguments)

    return make


def _training_words(config: Base, start: InitialWeights) -> str:
    net, weights = (
        net_note(config),
        (
            f"every method begins with weights {start.source}; CWR and methods of "
            "counting work on the frozen trunk's features"
        ),
    )
    if start.features is None:
        net, weights = "a linear head", start.source
    return (
        f"{net}, SGD with momentum {MOMENTUM} and weight decay {WEIGHT_DECAY:g}, restarted at "
        f"every batch, in batches of {config.batch_size}; fully connected layers of the whole "
        f"network at {config.dense_rate:g} times the learning rate, biases at twice their layer's; "
        f"{weights}"
    )
