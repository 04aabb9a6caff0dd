"""IIRC as a benchmark: labels are incomplete, and a superclass comes before its subclasses.

A seed is a task configuration. Methods learn by a binary cross-entropy over the classes seen so
far, and what they predict for every test sample is kept, from which all metrics are computed.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, UInt8

from everlight.continual import (
    Optimizer,
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    TaskSequence,
    binary_objective,
    flax_setup,
    multi_hot,
)
from everlight.continual.method import Demand, Method, Needs
from everlight.metrics.multilabel import LabelScores, sequence_label_scores
from everlight.models import Network, NetworkRequest
from everlight.models.augmentation import crop_and_flip
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.images.as_inputs import Channels, channels, store_features, store_images, stream
from everlight_data.images.iirc_sets import CHANNELS, IIRCData, IIRCRequest, load_iirc
from everlight_data.images.imagenet import ImageFiles
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.continual.benchmark import (
    Axis,
    Benchmark,
    Benchmarks,
    Draw,
    Metric,
    Request,
    RunData,
    Trained,
    once_per_run,
)
from everlight_experiments.continual.outcome import BY_TASK
from everlight_experiments.continual.parts import (
    AS_THEY_COME,
    feature_head,
    load_features,
    network,
    optimizer,
)
from everlight_experiments.iirc.config import Config
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.streaming import leave_out_undecodable

SETTING = "incomplete labels"
LABELS = 2
"""Largest number of labels per sample."""
SCORE = "pw-JS"
SCORES, SCORE_NAMES = "scores", (SCORE, "JS", "exact match", "recall")
RECALL_BATCH = 128
"""Samples per batch of the recall that the authors average over batches."""
NEWEST = "pw-JS on the newest task"
CONFUSION = "confusion of labels"
CLASS_TYPES = ("superclasses", "subclasses", "classes without one")
MOST_CONFIGURATIONS = 10
"""Task configurations of `everlight run iirc`."""
CAPABILITIES: frozenset[Demand] = frozenset(
    ("class scores", "several labels", "own classes", "chosen classes")
)
Sequences = Callable[[Method, Draw], TaskSequence]


class Learned(NamedTuple):
    """Data, sequences and network of a configuration."""

    data: IIRCData
    shared: StoredImages | Channels
    """Images or features as networks read them; the channels of images that are streamed."""
    net: Network
    checksums: tuple[int, ...]
    sequence: Sequences
    store: JpegStore | None = None
    """Reader of images that are not in memory."""


def iirc_benchmarks(request: Request) -> Benchmarks:
    """Return the benchmark of `everlight run iirc`, whose last configurations are for validation.

    Raises:
      DataError: more seeds than configurations, or data or options that cannot be used.
    """
    config, seed = request.config, request.seed
    data = load_data(config, MOST_CONFIGURATIONS, seed)
    there = len(data.metadata.configurations)
    left = there - request.validation_seeds
    if request.seeds > left:
        raise DataError(
            f"--seeds {request.seeds}; iirc has {there} configurations, of which "
            f"--validation-seeds {request.validation_seeds} take some: give {left} or less"
        )

    def made(data: IIRCData) -> Benchmark:
        return iirc_benchmark(config, learn(config, data, request.runs, True), seed)

    def prepare(folder: RunFolder) -> Benchmark:
        return made(decodable(config, data, folder))

    found = made(data)
    return {SETTING: found._replace(prepare=prepare) if config.undecodable == "skip" else found}


def load_data(config: Config, configurations: int, seed: int) -> IIRCData:
    """Return a configuration's data; features are computed from images of the set's own size."""
    side = config.side if config.features is None else AS_THEY_COME
    limits = side, config.per_class, configurations, config.superclasses, seed
    return load_iirc(IIRCRequest(config.data, *limits))


def decodable(config: Config, data: IIRCData, folder: RunFolder) -> IIRCData:
    """Return the data without broken image files, if these are to be skipped."""
    files = data.images
    if config.undecodable == "fail" or not isinstance(files, ImageFiles):
        return data
    store = JpegStore(files.folder, files.images, config.side, config.memory_limit)
    return data._replace(images=leave_out_undecodable(folder, files, store))


def learn(config: Config, data: IIRCData, runs: Path, validation: bool = False) -> Learned:
    """Return data and network of a configuration.

    Args:
      config: of the benchmark.
      data: of the configuration.
      runs: where run folders are made; computed features are kept there.
      validation: whether the post-task validation of the last task configurations is read.

    Raises:
      DataError: options that do not fit together, or features that cannot be used.
    """
    images, sequence = data.images, sequences_of(data, validation)
    content = [images.images, images.train_labels, images.test_labels]
    if config.features is not None:
        if isinstance(images, ImageFiles):
            raise DataError("--features is not for ImageNet's files, which are streamed")
        features = load_features(config.features, images, runs)
        stored = store_features(features, slice(len(images.train_labels)))
        net, checksums = feature_head(features.note, data.classes), checksums_of(features.values)
        return Learned(data, stored, net, (*checksums_of(*content), *checksums), sequence)
    net, checksums = network_of(config, data.classes), checksums_of(*content)
    if isinstance(images, ImageFiles):
        store = JpegStore(images.folder, images.images, config.side, config.memory_limit)
        return Learned(data, channels(), net, checksums, sequence, store)
    stored = store_images(images, CHANNELS.get(config.data))
    return Learned(data, stored, net, checksums, sequence)


def network_of(config: Config, classes: int) -> Network:
    """Return the network that a configuration names."""
    return network(
        config.net, NetworkRequest(classes, config.side, config.dtype, remat=config.remat)
    )


def sequences_of(data: IIRCData, validation: bool) -> Sequences:
    """Return the sequence of every method and draw, all of one shape per method."""
    made = functools.cache(data.sequences)

    def sequence(method: Method, draw: Draw) -> TaskSequence:
        tests, held = made(method.setting, validation)
        return held[-1 - draw.number] if draw.use == "validation" else tests[draw.number]

    return sequence


def iirc_benchmark(config: Config, learned: Learned, seed: int) -> Benchmark:
    """Return the benchmark of a configuration, for any methods.

    Args:
      config: of the benchmark.
      learned: its data and network.
      seed: of the run.
    """
    data, net = learned.data, learned.net
    tasks = len(data.metadata.configurations[0].tasks)
    side = f"{config.side}×{config.side} pixels"
    apart = ("chosen", "memory_limit", "undecodable")
    facts = {name: value for name, value in asdict(config).items() if name not in apart}
    facts |= {"checksums": list(learned.checksums), "seed": seed}
    return Benchmark(
        name="iirc",
        setting=SETTING,
        note=f"{data.images.name}, {side}: {data.sizes}; {tasks} tasks",
        draws="task configuration",
        training=training_words(config, net),
        chosen=config.chosen,
        checksums=learned.checksums,
        capabilities=CAPABILITIES | (frozenset({"named head"}) if net.named else frozenset()),
        metrics=metrics_of(data),
        facts=lambda method: facts,
        shared=lambda method: learned.shared,
        begin=beginning(config, net, data.classes, tasks, learned.store),
        protocol=lambda method: protocol_of(config, method),
        sequence=learned.sequence,
        keep=keep,
        store=learned.store,
    )


def beginning(
    config: Config, net: Network, classes: int, tasks: int, store: JpegStore | None = None
) -> Callable[[Method, RunData], tuple[Setup, Needs]]:
    """Return the function that makes the parts of a strategy.

    Images from a store crop and mirror themselves; features have nothing to crop.
    """
    augment = crop_and_flip if store is None and config.features is None else None

    def begin(method: Method, data: RunData) -> tuple[Setup, Needs]:
        images = data.shared if store is None else stream(store, data.shared)
        found = optimizer_of(config, method)
        decay = optax.add_decayed_weights(config.weight_decay)
        transformation = optax.chain(decay, found.transformation)
        setup = flax_setup(net.make(method), images, binary_objective(), transformation, augment)
        return setup, Needs(
            1 if method.setting == "joint" else tasks,
            classes,
            config.exemplars_per_class,
            reach=found.implicit_rate,
            labels=LABELS,
            replay_batch_size=config.replay_batch_size,
        )

    return begin


def optimizer_of(config: Config, method: Method | None = None) -> Optimizer:
    """Return the optimizer of a method; without one, of most methods."""
    rate = config.learning_rate
    if config.features is not None:
        rate = config.features_learning_rate
    elif method is not None:
        rate = config.learning_rates.get(method.name, rate)
    return optimizer(config.optimizer, rate)


def protocol_of(config: Config, method: Method) -> Protocol:
    """Return the protocol with the method's own choice of epoch and joint training's length."""
    protocol = config.protocol
    if method.setting == "joint" and config.joint_epochs is not None:
        protocol = replace(protocol, first_epochs=config.joint_epochs)
    return protocol if method.select == "best" else replace(protocol, select=method.select)


def keep(method: Method, result: SequenceResult) -> dict[str, Array]:
    """Return the labels predicted after every task, as bits, and the validation curves."""
    return {"predicted": result.evaluation, "validation": result.validation}


def metrics_of(data: IIRCData) -> tuple[Metric, ...]:
    """Return all metrics, which share what is computed once for a run."""

    @once_per_run
    def scores(run: Trained) -> LabelScores:
        number = run.draw.number
        superclass = data.superclass(-1 - number if run.draw.use == "validation" else number)
        return label_scores(run.sequence, run.arrays["predicted"], superclass)

    def metric(
        name: str,
        read: Callable[[LabelScores], Array],
        *axes: Axis,
        better: bool | None = True,
        meaning: str = "",
    ) -> Metric:
        return Metric(
            name, lambda run: at_the_end(run, read(scores(run)), axes), axes, better, meaning
        )

    final = "Mean over the test samples of all tasks, after the last task."
    return (
        metric(SCORE, lambda found: found.means.union.precision_weighted_jaccard, "time"),
        metric(
            BY_TASK.format(SCORE),
            lambda found: found.means.by_task.precision_weighted_jaccard,
            *("time", "task"),
        ),
        metric(
            SCORES,
            lambda found: jnp.stack(found.means.union, axis=-1),
            *("time", SCORE_NAMES),
            meaning=final,
        ),
        metric(
            "recall by batches",
            lambda found: found.batch_recall,
            meaning="Recall after the last task as the authors average it: labels found over true "
            f"labels of each {RECALL_BATCH} samples.",
        ),
        metric(
            "labels per sample",
            lambda found: found.counts,
            *("time", ("predicted", "true")),
            better=None,
            meaning=final,
        ),
        metric(
            NEWEST,
            lambda found: found.means.current.precision_weighted_jaccard,
            "time",
            meaning="Mean over the test samples of the newest task, R_jj (figure 5).",
        ),
        metric(
            "pw-JS by class type",
            lambda found: found.by_class_type.precision_weighted_jaccard,
            CLASS_TYPES,
            meaning="Mean after the last task over the test samples with a label of the type; "
            "only labels of the type count.",
        ),
        metric(CONFUSION, lambda found: found.confusion, *[data.classes] * 2, better=None),
    )


def label_scores(
    sequence: TaskSequence,
    predicted: UInt8[np.ndarray, "t m packed"],
    superclass: Int[np.ndarray, "c"],
) -> LabelScores:
    """Return all scores of the labels predicted after each task, which are kept as bits."""
    classes = sequence.class_task.shape[0]
    return sequence_label_scores(
        jnp.asarray(np.unpackbits(predicted, axis=-1, count=classes).astype(bool)),
        multi_hot(sequence.test.labels, classes),
        sequence.test_member,
        sequence.tasks.classes,
        jnp.asarray(superclass),
        RECALL_BATCH,
    )


def at_the_end(run: Trained, value: Array, axes: Sequence[Axis]) -> np.ndarray:
    """Return joint training's values as those after the last task; NaN where it has none."""
    value, missing = np.asarray(value), run.tasks - len(run.sequence.tasks.id)
    if not missing or "time" not in axes:
        return value
    if "task" in axes:
        return np.full((run.tasks, run.tasks), np.nan)
    return np.concatenate([np.full((missing, *value.shape[1:]), np.nan), value])


def training_words(config: Config, net: Network) -> str:
    """Return network, optimizer, memory and length in words, for the report."""
    others = "".join(f" ({rate:g} for {name})" for name, rate in config.learning_rates.items())
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
