"""IIRC as a benchmark: labels are incomplete, and a superclass comes before its subclasses.

A seed is a task configuration. Methods learn by a binary cross-entropy over the classes seen so
far, and what they predict for every test sample is kept, from which all metrics are computed.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from everlight.continual import (
    Optimizer,
    Protocol,
    SequenceResult,
    Setup,
    TaskSequence,
    binary_objective,
    network_setup,
)
from everlight.continual.methods.method import Method, Requirement, StrategyArguments
from everlight.continual.objectives.multilabel import label_scores
from everlight.metrics.multilabel import LabelScores
from everlight.models import Network, NetworkRequest
from everlight.models.augmentation import crop_and_flip
from everlight.trees import checksums_of
from everlight_data.iirc.metadata import official_metadata
from everlight_data.iirc.sets import STATISTICS, IIRCData, IIRCRequest, load_iirc
from everlight_data.images.imagenet import ImageFiles
from everlight_data.images.inputs.as_inputs import stream
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.runs.finished_runs import matrix_name
from everlight_data.sets.image_set import PerClass
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    Benchmarks,
    Data,
    Request,
    Selection,
    Setting,
    Training,
)
from everlight_experiments.continual.benchmarks.metric import (
    Axis,
    Metric,
    Metrics,
    once_per_run,
)
from everlight_experiments.continual.benchmarks.parts import (
    AS_THEY_COME,
    Inputs,
    feature_head,
    inputs_of,
    module_of,
    network,
    network_capabilities,
    optimizer,
)
from everlight_experiments.continual.benchmarks.run_data import RunData, SequenceId, TrainedRun
from everlight_experiments.continual.benchmarks.shapes import image_set, stored_shapes
from everlight_experiments.iirc.config import IIRCConfig
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.streaming import leave_out_undecodable

SETTING = "incomplete labels"
LABELS = 2
"""Largest number of labels per sample."""
SCORE = "pw-JS"
SCORES, SCORE_NAMES = "scores", (SCORE, "JS", "exact match", "recall")
NEWEST = "pw-JS on the newest task"
CONFUSION = "confusion of labels"
CLASS_TYPES = ("superclasses", "subclasses", "classes without one")
MAX_CONFIGURATIONS = 10
"""Task configurations of `everlight run iirc`."""
CAPABILITIES: frozenset[Requirement] = frozenset(
    ("class scores", "multi-label", "disjoint classes", "chosen classes", "last weights")
)
Sequences = Callable[[Method, SequenceId], TaskSequence]


class IIRCInputs(NamedTuple):
    """Data, sequences and network of a configuration."""

    data: IIRCData
    inputs: Inputs
    net: Network
    checksums: tuple[int, ...]
    sequence: Sequences


def iirc_benchmarks(request: Request[IIRCConfig]) -> Benchmarks:
    """Return the benchmark of `everlight run iirc`, whose last configurations are for validation.

    Raises:
      DataError: more seeds than configurations, or data or options that cannot be used.
    """
    config, seed = request.config, request.seed
    data = load_data(config, MAX_CONFIGURATIONS, seed)
    request.refuse_more_seeds_than(len(data.metadata.configurations), "configurations")

    def benchmark_of(data: IIRCData) -> Benchmark:
        return iirc_benchmark(config, load_inputs(config, data, request.runs, True), seed)

    def prepare(folder: RunFolder) -> tuple[Data, Training]:
        prepared = benchmark_of(decodable(config, data, folder))
        return prepared.data, prepared.training

    skips = config.undecodable == "skip"
    return {SETTING: benchmark_of(data)._replace(prepare=prepare if skips else None)}


def shapes(config: IIRCConfig) -> Benchmark:
    """Return IIRC-CIFAR in its first task configuration, whose images are shapes alone."""
    metadata = official_metadata("iirc_cifar100")
    metadata = metadata._replace(configurations=metadata.configurations[:1])
    introduced = {name for task in metadata.configurations[0].tasks for name in task}
    names = tuple(sorted(introduced - set(metadata.hierarchy)))
    data = IIRCData(image_set(names, config.per_class, config.side), metadata)
    loaded = IIRCInputs(
        data=data,
        inputs=Inputs(stored_shapes(data.images.images)),
        net=network_of(config, data.classes),
        checksums=(),
        sequence=sequences_of(data, validation=False),
    )
    return iirc_benchmark(config, loaded, seed=0)


def load_data(config: IIRCConfig, configurations: int, seed: int) -> IIRCData:
    """Return a configuration's data; features are computed from images of the set's own size."""
    request = IIRCRequest(
        config.data,
        side_of(config),
        PerClass(*config.per_class),
        configurations,
        superclasses=config.superclasses,
        seed=seed,
    )
    return load_iirc(request)


def side_of(config: IIRCConfig) -> int:
    """Return the side of the images in pixels."""
    return config.side if config.features is None else AS_THEY_COME


def decodable(config: IIRCConfig, data: IIRCData, folder: RunFolder) -> IIRCData:
    """Return the data without broken image files, if these are to be skipped."""
    files = data.images
    if config.undecodable == "fail" or not isinstance(files, ImageFiles):
        return data
    return data._replace(images=leave_out_undecodable(folder, files, reader(config, files)))


def reader(config: IIRCConfig, files: ImageFiles) -> JpegStore:
    """Return the reader of ImageNet's files."""
    return JpegStore(files.folder, files.images, config.side, config.memory_limit)


def load_inputs(
    config: IIRCConfig, data: IIRCData, runs: Path, validation: bool = False
) -> IIRCInputs:
    """Return inputs and network; with `validation` the sequences for validation too.

    Raises:
      DataError: options that do not fit together, or features that cannot be used.
    """
    images = data.images
    source = reader(config, images) if isinstance(images, ImageFiles) else images
    inputs = inputs_of(config.features, source, runs, STATISTICS.get(config.data))
    if inputs.features is None:
        net = network_of(config, data.classes)
    else:
        net = feature_head(inputs.features.note, data.classes)
    content = [images.images, images.train_labels, images.test_labels, *inputs.feature_arrays]
    return IIRCInputs(data, inputs, net, checksums_of(*content), sequences_of(data, validation))


def network_of(config: IIRCConfig, classes: int) -> Network:
    """Return the network that a configuration names."""
    request = NetworkRequest(classes, config.side, config.dtype, remat=config.remat)
    return network(config.net, request, (config.side, config.side, 3))


def sequences_of(data: IIRCData, validation: bool) -> Sequences:
    """Return the sequence of every method and `SequenceId`, all of one shape per method."""
    cached_sequences = functools.cache(data.sequences)

    def sequence(method: Method, seq_id: SequenceId) -> TaskSequence:
        tests, held = cached_sequences(method.label_setting, validation)
        return held[-1 - seq_id.number] if seq_id.use == "validation" else tests[seq_id.number]

    return sequence


def iirc_benchmark(config: IIRCConfig, loaded: IIRCInputs, seed: int) -> Benchmark:
    """Return the benchmark of a configuration, for any methods."""
    data, net, inputs, side = loaded.data, loaded.net, loaded.inputs, side_of(config)
    tasks = len(data.metadata.configurations[0].tasks)
    return Benchmark(
        "iirc",
        Data(
            note=f"{data.images.name}, {side}×{side} pixels: {data.sizes}; {tasks} tasks",
            checksums=loaded.checksums,
            fingerprint={"checksums": list(loaded.checksums), "seed": seed},
            shared=lambda method: inputs.stored,
            sequence=loaded.sequence,
            store=inputs.store,
        ),
        Setting(SETTING, "task configuration", capabilities_of(config, net), metrics_of(data)),
        Training(
            words=training_words(config, net),
            fingerprint=lambda method: {**config.fingerprint(), **net.fingerprint()},
            setup=setup_factory(config, net, data.classes, tasks, inputs.store),
            protocol=lambda method: protocol_of(config, method),
            keep=keep,
            learning_rate=lambda method: f"{rate_of(config, method):g}",
        ),
        Selection(config.chosen),
    )


def capabilities_of(config: IIRCConfig, net: Network) -> frozenset[Requirement]:
    """Return what methods may require of IIRC."""
    pretrained: set[Requirement] = set() if config.features is None else {"pretrained layers"}
    return CAPABILITIES | network_capabilities(net) - {"hidden layers"} | pretrained


def setup_factory(
    config: IIRCConfig, net: Network, classes: int, tasks: int, store: JpegStore | None = None
) -> Callable[[Method, RunData], tuple[Setup, StrategyArguments]]:
    """Return the function that makes the parts of a strategy."""
    # Images from a store crop and mirror themselves; features have nothing to crop.
    augment = crop_and_flip if store is None and config.features is None else None

    def make(method: Method, data: RunData) -> tuple[Setup, StrategyArguments]:
        images = data.shared if store is None else stream(store, data.shared)
        updates = optimizer_of(config, method)
        setup = network_setup(
            module_of(net, method), images, binary_objective(), updates.transformation, augment
        )
        return setup, StrategyArguments(
            1 if method.label_setting == "joint" else tasks,
            classes,
            config.exemplars_per_class,
            implicit_rate=updates.implicit_rate,
            labels=LABELS,
            replay_batch_size=config.replay_batch_size,
        )

    return make


def optimizer_of(config: IIRCConfig, method: Method | None = None) -> Optimizer:
    """Return the optimizer of a method; without one, of most methods."""
    return optimizer(config.optimizer, rate_of(config, method), config.weight_decay)


def rate_of(config: IIRCConfig, method: Method | None = None) -> float:
    """Return the learning rate of a method; without one, of most methods."""
    if config.features is not None:
        return config.features_learning_rate
    rates = {} if method is None else config.learning_rates
    return rates.get(getattr(method, "name", ""), config.learning_rate)


def protocol_of(config: IIRCConfig, method: Method) -> Protocol:
    """Return the protocol with the method's own choice of epoch and joint training's length."""
    protocol = config.protocol
    if method.label_setting == "joint" and config.joint_epochs is not None:
        protocol = replace(protocol, first_epochs=config.joint_epochs)
    return protocol if method.select == "best" else replace(protocol, select=method.select)


def keep(method: Method, result: SequenceResult) -> dict[str, Array]:
    """Return the labels predicted after every task, as bits, and the validation curves."""
    return {"predicted": result.evaluation, "validation": result.validation}


_AFTER_LAST = "Mean over the test samples of all tasks, after the last task."
SCORE_METRICS = Metrics(
    score=Metric(SCORE, lambda scores: scores.means.union.precision_weighted_jaccard, ("time",)),
    score_by_task=Metric(
        matrix_name(SCORE),
        lambda scores: scores.means.by_task.precision_weighted_jaccard,
        ("time", "task"),
    ),
    others=(
        Metric(
            SCORES,
            lambda scores: jnp.stack(scores.means.union, axis=-1),
            ("time", SCORE_NAMES),
            meaning=_AFTER_LAST,
        ),
        Metric(
            "recall by batches",
            lambda scores: scores.batch_recall,
            meaning="Recall after the last task as the authors average it: labels found over true "
            "labels of each 128 samples.",
        ),
        Metric(
            "labels per sample",
            lambda scores: scores.counts,
            ("time", ("predicted", "true")),
            _AFTER_LAST,
        ),
        Metric(
            NEWEST,
            lambda scores: scores.means.current.precision_weighted_jaccard,
            ("time",),
            meaning="Mean over the test samples of the newest task, R_jj (figure 5).",
        ),
        Metric(
            "pw-JS by class type",
            lambda scores: scores.by_class_type.precision_weighted_jaccard,
            (CLASS_TYPES,),
            meaning="Mean after the last task over the test samples with a label of the type; "
            "only labels of the type count.",
        ),
    ),
)
"""Metrics that read the `LabelScores` of a run."""


def metrics_of(data: IIRCData) -> Metrics:
    """Return all metrics, which share the scores of a run."""

    @once_per_run
    def scores(run: TrainedRun) -> LabelScores:
        number = run.sequence_id.number
        superclass = data.superclass(-1 - number if run.sequence_id.use == "validation" else number)
        return label_scores(run.sequence, run.arrays["predicted"], superclass)

    def run_metric(metric: Metric) -> Metric:
        read, axes = metric.compute, metric.axes
        return metric._replace(compute=lambda run: align_to_last_task(run, read(scores(run)), axes))

    confusion = Metric(CONFUSION, lambda scores: scores.confusion, (data.classes, data.classes))
    return Metrics(
        score=run_metric(SCORE_METRICS.score),
        score_by_task=run_metric(SCORE_METRICS.score_by_task),
        others=tuple(map(run_metric, (*SCORE_METRICS.others, confusion))),
    )


def align_to_last_task(run: TrainedRun, value: Array, axes: Sequence[Axis]) -> np.ndarray:
    """Return joint training's values as those after the last task; NaN where it has none."""
    value, missing = np.asarray(value), run.tasks - len(run.sequence.tasks.id)
    if not missing or "time" not in axes:
        return value
    if "task" in axes:
        return np.full((run.tasks, run.tasks), np.nan)
    return np.concatenate([np.full((missing, *value.shape[1:]), np.nan), value])


def training_words(config: IIRCConfig, net: Network) -> str:
    """Return network, optimizer, memory and length in words, for the report."""
    rates = config.learning_rates if config.features is None else {}
    others = "".join(f" ({rate:g} for {name})" for name, rate in rates.items())
    augmented = ", crops and mirrors" if config.features is None else ""
    replay = config.replay_batch_size
    replayed = "" if replay is None else f", replayed in batches of {replay}"
    protocol = config.protocol
    joint = f", joint {config.joint_epochs}" if config.joint_epochs else ""
    return (
        f"{net.note}, {optimizer_of(config).note}{others}, restarted at every task{augmented}; "
        f"{config.exemplars_per_class} exemplars per class{replayed}; {protocol.epochs_of(1)} "
        f"epochs per task, {protocol.epochs_of(0)} for the first{joint}, in batches of "
        f"{protocol.batch_size}; the learning rate is multiplied by {protocol.plateau_factor:g} "
        f"after {protocol.plateau_patience} epochs without improved in-task validation"
    )
