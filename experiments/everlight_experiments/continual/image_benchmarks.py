"""Benchmarks of images or features: loads the data, divides the tasks and makes the network."""

import functools
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PyTree

from everlight.continual import (
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    TaskSequence,
    network_setup,
    softmax_objective,
    with_predictions,
)
from everlight.continual.methods.method import Demand, Method, Needs
from everlight.metrics import diagnose_plasticity
from everlight.models import (
    Network,
    NetworkRequest,
    VisionTransformer,
    crop_and_flip,
    with_xavier,
)
from everlight.scenarios import (
    class_incremental_by_seed,
    noisy_labels,
    validation_fractions,
    with_shots,
    without_validation,
)
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.image_requests import load_images
from everlight_data.images.inputs.as_inputs import store_features, store_images
from everlight_data.images.user_files.feature_files import Features, features_alone
from everlight_data.pretrained.trunk_features import LITE0
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import ImageRequest
from everlight_data.sets.image_set import ImageSet, PerClass
from everlight_experiments.continual.benchmark import (
    STEPS_WITHIN,
    Benchmark,
    Benchmarks,
    RunData,
    Use,
)
from everlight_experiments.continual.config import Config, config_of
from everlight_experiments.continual.config_checks import check_parts
from everlight_experiments.continual.domain_streams import (
    DOMAIN,
    STREAM_SEED,
    domain_sequences,
    refuse_unfit,
    with_stream,
)
from everlight_experiments.continual.image_descriptions import (
    data_counts,
    data_sections,
    number_of_tasks,
    training_words,
)
from everlight_experiments.continual.method_arguments import loss_arguments
from everlight_experiments.continual.metrics import (
    BY_STEP,
    MATRIX,
    OVER_ALL_TIMES,
    PREDICTED,
    WITHIN,
    class_metrics,
    read_diagnostics,
    read_predictions,
)
from everlight_experiments.continual.normalization import (
    first_task_statistics,
    normalized_by,
    refuse_unused,
)
from everlight_experiments.continual.parts import (
    TRUNK_SIDE,
    feature_head,
    load_features,
    module_of,
    network,
    network_capabilities,
    optimizer,
)
from everlight_experiments.continual.pretrained import (
    RELEASED,
    Pretrained,
    begin_with,
    is_released,
    load_layers,
)

NOT_IDENTIFYING = {
    *("data", "test_data", "chosen", "criterion", "grids", "features", "features_learning_rate"),
    *("features_chosen", "method_settings", "first_class", "pretrained"),
}
"""Fields of a configuration that do not identify a run."""


class ImageInputs(NamedTuple):
    """Images, stored inputs and network that a configuration loads before training."""

    config: Config
    images: ImageSet
    stored: StoredImages
    """Images, or features, as networks read them."""
    note: str
    net: Network
    checksums: tuple[int, ...]
    layers: dict[str, PyTree] | None = None
    """Layers with which the network begins; None draws them."""
    features: Features | None = None
    """Features that replace the images."""


def image_benchmarks(
    name: str, config: Config, settings: tuple[str, ...], seed: int, runs: Path
) -> Benchmarks:
    """Return the benchmark of a configuration in every setting.

    The seed is that of the procedural world; computed features are kept in `runs`.

    Raises:
      DataError: data that cannot be read, or parts that do not fit together.
    """
    if config.features is not None and config.pretrained is not None:
        raise DataError("--pretrained and --features both replace the network; give one of them")
    if config.features is not None and config.augmentation != "none":
        raise DataError("--augmentation changes images; leave out --features")
    refuse_unused(config)
    images, note, features = _load(config, seed, runs)
    if features is not None:
        rate, chosen = config.features_learning_rate, config.features_chosen
        config = replace(config, learning_rate=rate, chosen=chosen)
    classes = len(images.class_names)
    check_parts(config, settings, np.bincount(images.train_labels, minlength=classes))
    noisy = noisy_labels(images.train_labels, classes, config.label_noise, STREAM_SEED)
    images = images._replace(train_labels=noisy)
    content = [images.images, images.train_labels, images.test_labels]
    layers = None
    if features is None:
        shape = images.images.shape[1:]
        network_request = NetworkRequest(classes, shape[0], config.dtype, config.dropout)
        net = network(config.net, network_request, shape)
        stored, layers = _pretrained(config, images, net)
        content += map(np.asarray, jax.tree.leaves(layers))
    else:
        net = feature_head(features.note, classes)
        stored = store_features(features, slice(len(images.train_labels)))
        content += [np.asarray(stored.pieces), *features.marks()]
    if config.compute_budget is not None and "online" in settings:
        raise DataError("--compute-budget: the online setting is one pass; leave one of them out")
    if config.stream != "classes":
        refuse_unfit(config, settings)
        settings = (DOMAIN,)
        stored = replace(stored, copies=number_of_tasks(config))
    data = ImageInputs(config, images, stored, note, net, checksums_of(*content), layers, features)
    training = training_words(config, net, settings)
    factory = partial(_benchmark_in_setting, name, training, data, sequences_of(images, config))
    return {setting: factory(setting) for setting in settings}


def _pretrained(
    config: Config, images: ImageSet, net: Network
) -> tuple[StoredImages, dict[str, PyTree] | None]:
    """Return the images as the network reads them, and its layers if they are given."""
    unit, path = config.pixels == "unit", config.pretrained
    if path is None:
        return store_images(images, unit=unit), None
    layers = load_layers(path, net, images.images.shape[1:])
    channels = RELEASED if is_released(path) else None
    return store_images(images, channels, unit=unit), layers


def _refuse_options_of_images(config: Config) -> None:
    """Refuse options that a file of features without images does not have."""
    options = ("test_data", "classes", "first_class", "per_class", "side")
    values = [name for name in options if getattr(config, name) != getattr(Config(), name)]
    if values:
        names = ", ".join("--" + name.replace("_", "-") for name in values)
        raise DataError(
            f"{names} with only the features of {config.features}; leave out {names}, and put the "
            "selected rows into the file, of which --test-every sets the test rows"
        )


def _load(config: Config, seed: int, runs: Path) -> tuple[ImageSet, str, Features | None]:
    if not config.data and config.features not in (None, LITE0):
        _refuse_options_of_images(config)
        features, images, note = features_alone(config.features, config.test_every)
        return images, note, features
    if not config.data:
        raise DataError(
            "give --data: the name of an image set, tfds:NAME, a folder with one sub-folder per "
            "class, a .csv of file and label, an .npz of images and labels, or a folder of IDX "
            "files"
        )
    side = config.side
    if config.features is not None:
        # A pretrained network has its own size, to which it enlarges small images.
        side = None if config.data in IMAGE_SETS else side or TRUNK_SIDE
    per_class = None if config.per_class is None else PerClass(*config.per_class)
    limits = config.classes, per_class, config.test_every, config.test_data
    request = ImageRequest(config.data, side, *limits, seed, config.first_class)
    images, note = load_images(request)
    features = None if config.features is None else load_features(config.features, images, runs)
    return images, note, features


def _benchmark_in_setting(
    name: str,
    training: str,
    inputs: ImageInputs,
    sequences: Callable[[int, Use], TaskSequence],
    setting: str,
) -> Benchmark:
    """Return the benchmark of one setting, with the metrics that the configuration names."""
    config, images, stored, note, net, checksums, layers, features = inputs
    task_given, predicts = setting == "task-incremental", read_predictions(config.metrics)
    measures = read_diagnostics(config.metrics)
    domain, protocol = setting == DOMAIN, config.protocol
    if setting == "online":
        protocol = Protocol(
            epochs=1,
            batch_size=config.online_batch,
            select="last",
            evaluate_steps=protocol.evaluate_steps,
            boundaries=protocol.boundaries,
        )
    ordered = config.order == "seeded" and config.stream == "classes"
    wrap = partial(with_stream, images=images, config=config) if domain else None

    def fingerprint(method: Method) -> dict[str, Any]:
        settings = asdict(config_of(config, method))
        identity = {key: value for key, value in settings.items() if key not in NOT_IDENTIFYING}
        # Most methods have none, and older runs name none.
        if not identity["arguments"]:
            del identity["arguments"]
        # A run's own `order` is the seed of its sequence.
        identity["class_order"] = identity.pop("order")
        identity |= {"last_relu": False} if method.head != "linear" else {}
        identity |= net.fingerprint()
        return {"benchmark": name, "net": net.note, "data": list(checksums), **identity}

    def keep(method: Method, result: SequenceResult) -> dict[str, Array]:
        def accuracies(evaluation: Any) -> Array:
            scored = evaluation.evaluation if measures else evaluation
            accuracy = scored[0] if predicts else scored
            return accuracy.task_masked if task_given else accuracy.class_incremental

        arrays = {MATRIX: accuracies(result.evaluation), "validation": result.validation}
        within = result.within_tasks
        if within is not None:
            arrays |= {WITHIN: accuracies(within.evaluation), STEPS_WITHIN: within.steps}
        scored = result.evaluation
        if measures:
            arrays |= scored.measured._asdict()
            scored = scored.evaluation
        return arrays | ({PREDICTED: scored[1]} if predicts else {})

    of_first = {}
    if config.normalization is not None:
        of_first = {"normalization": first_task_statistics(images, features, stored.offset)}
    return Benchmark(
        **of_first,
        name=name,
        setting=setting,
        note=note,
        draws="order of classes" if ordered else "initial network",
        training=training,
        chosen=config.chosen,
        checksums=checksums,
        capabilities=capabilities_of(net, setting, config),
        metrics=class_metrics(config.metrics, images.class_names)
        + (BY_STEP if protocol.evaluate_steps else ()),
        fingerprint=fingerprint,
        shared=lambda method: stored if layers is None else Pretrained(stored, layers),
        begin=setup_factory(config, net, task_given, wrap),
        protocol=lambda method: protocol,
        compute_budget=config.compute_budget,
        sequence=lambda method, seq_id: sequences(seq_id.order, seq_id.use),
        keep=keep,
        learning_rate=lambda method: f"{config_of(config, method).learning_rate:g}",
        criterion=None if config.criterion == "final accuracy" else OVER_ALL_TIMES,
        hyperparameters=config.grids,
        counts=data_counts(
            images, config, sequences_of(images, replace(config, shots=None))(0, "evaluation")
        ),
        images=images,
        # Settings differ in their data and protocol alone, unless predictions are kept.
        program=setting if predicts else "",
        sections=partial(data_sections, images=images),
    )


def setup_factory(
    config: Config,
    net: Network,
    task_given: bool,
    wrap: Callable[[Setup], Setup] | None = None,
) -> Callable[[Method, RunData], tuple[Setup, Needs]]:
    """Return the function that makes the parts of a strategy: softmax over the seen classes.

    With `task_given` every task has its own head. `wrap` changes the setup, such as to inputs that
    depend on the task.
    """
    only_seen = config.loss_classes == "seen"

    def begin(method: Method, data: RunData) -> tuple[Setup, Needs]:
        settings, group = config_of(config, method), data.per_run.class_group
        updates = optimizer(settings.optimizer, settings.learning_rate, settings.weight_decay)
        objective = softmax_objective(group, only_seen)
        if read_predictions(config.metrics):
            objective = with_predictions(objective, task_given)
        pretrained = isinstance(data.shared, Pretrained)
        stored = data.shared.stored if pretrained else data.shared
        stored = normalized_by(stored, data.per_run.normalization)
        module = module_of(net, method, pretrained)
        augment = crop_and_flip if config.augmentation == "crop-and-flip" else None
        setup = network_setup(module, stored, objective, updates.transformation, augment)
        if config.initialization == "xavier":
            setup = with_xavier(setup)
        if read_diagnostics(config.metrics):
            setup = setup._replace(measure=diagnose_plasticity)
        needs = Needs(
            number_of_tasks(config),
            net.classes,
            config.exemplars_per_class,
            implicit_rate=updates.implicit_rate,
            layers=net.layers if method.trains == "net" else (),
            class_group=group,
            replay_batch_size=settings.replay_batch_size,
            buffer_size=config.buffer_size,
            ema_decay=config.ema_decay,
            arguments={**loss_arguments(config, method), **settings.arguments},
        )
        if pretrained:
            setup = begin_with(setup, module, data.shared.layers, method, needs)
        return setup if wrap is None else wrap(setup), needs

    return begin


def capabilities_of(net: Network, setting: str, config: Config) -> frozenset[Demand]:
    """Return what methods may require of images with classes."""
    has = {
        "task-incremental": setting == "task-incremental",
        # Where every task has all classes, no class is its own.
        "own classes": setting != DOMAIN and config.cycles == 1,
        "task boundaries": config.protocol.boundaries,
        "chosen classes": setting != DOMAIN and config.loss_classes == "seen",
        "last weights": config.ema_decay is None,
        "pretrained layers": config.pretrained is not None or config.features is not None,
        "pretrained transformer": config.pretrained is not None
        and isinstance(net.shape, VisionTransformer),
    }
    met = {name for name, is_met in has.items() if is_met}
    return network_capabilities(net) | {"class scores", "one label", *met}


def sequences_of(images: ImageSet, config: Config) -> Callable[[int, Use], TaskSequence]:
    """Return the sequence of every seed and use, all of one shape."""
    if config.stream != "classes":
        return domain_sequences(images, config)
    classes, fraction = len(images.class_names), config.validation_fraction
    tasks = config.tasks if len(config.tasks) > 1 else config.tasks[0]
    labels, natural = (images.train_labels, images.test_labels), config.order == "natural"
    fractions = fraction and validation_fractions(images.train_labels, classes, fraction)
    by_seed = class_incremental_by_seed(*labels, tasks, classes, natural, fractions, config.cycles)

    @functools.cache
    def sequence(seed: int, use: Use) -> TaskSequence:
        if use == "validation" and not fraction:
            raise DataError(
                "--validation-fraction 0 leaves nothing to select hyper-parameters on; give each "
                "method's value, as in --hyperparameters EWC=100, or a fraction"
            )
        tasks_of_seed = by_seed(seed, use == "validation")
        if config.shots is not None:
            tasks_of_seed = with_shots(tasks_of_seed, config.shots, seed)
        return tasks_of_seed if config.protocol.validates else without_validation(tasks_of_seed)

    return sequence
