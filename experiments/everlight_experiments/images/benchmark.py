"""Benchmarks of images or features with one class each, composed from a configuration."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import Array

from everlight.continual import (
    Protocol,
    SequenceResult,
    Setup,
    network_setup,
    softmax_objective,
    with_predictions,
)
from everlight.continual.methods.method import Method, Requirement, StrategyArguments
from everlight.continual.objectives import Accuracies
from everlight.metrics import diagnose_plasticity
from everlight.models import Network, NetworkRequest, VisionTransformer, crop_and_flip, with_xavier
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_data.sets.image_set import ImageSet, LoadedImages
from everlight_data.user_code.streams import UserStream
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    Benchmarks,
    Request,
    Selection,
    Setting,
    Training,
)
from everlight_experiments.continual.benchmarks.config import SETTINGS, SettingName
from everlight_experiments.continual.benchmarks.metric import STEPS_WITHIN
from everlight_experiments.continual.benchmarks.parts import (
    module_of,
    network,
    network_capabilities,
    optimizer,
)
from everlight_experiments.continual.benchmarks.run_data import PerRunData, RunData
from everlight_experiments.continual.benchmarks.shapes import image_set, stored_shapes
from everlight_experiments.images.added_images import with_added_task
from everlight_experiments.images.config import DIVIDING, Config, config_of
from everlight_experiments.images.config_checks import DOMAIN, check_options
from everlight_experiments.images.data import ImageInputs, load_inputs
from everlight_experiments.images.descriptions import training_words
from everlight_experiments.images.domain_streams import draws_stream, with_stream
from everlight_experiments.images.methods.arguments import loss_arguments
from everlight_experiments.images.metrics import (
    BY_STEP,
    MASKED_MATRIX,
    MATRIX,
    OVER_ALL_TIMES,
    PREDICTED,
    TASK_MASKED,
    WITHIN,
    class_metrics,
    read_diagnostics,
    read_predictions,
)
from everlight_experiments.images.normalization import normalize_inputs
from everlight_experiments.images.pretrained import Pretrained, with_pretrained_layers
from everlight_experiments.images.user_stream import (
    brings_no_class,
    check_stream_options,
    classes_recur,
)


def compose(
    config: Config,
    images: ImageSet | None = None,
    name: str = "images",
    setting: SettingName = "class-incremental",
    seed: int = 0,
    runs: Path = Path("runs"),
) -> Benchmark:
    """Return the benchmark of a configuration in one setting.

    Args:
      config: data, tasks, network, optimizer, protocol, memory and metrics.
      images: images in the place of those of `config.data`.
      name: name of the benchmark.
      setting: class-incremental, task-incremental or online.
      seed: seed of the procedural world.
      runs: folder of run folders; computed features are kept there.

    Raises:
      DataError: an unknown setting, data that cannot be read, or parts that do not fit together.
    """
    check_name("setting", setting, SETTINGS)
    request = Request(name=name, config=config, settings=(setting,), seed=seed, runs=runs)
    loaded = None if images is None else LoadedImages(images, images.name)
    (benchmark,) = image_benchmarks(request, loaded).values()
    return benchmark


def image_benchmarks(request: Request[Config], images: LoadedImages | None = None) -> Benchmarks:
    """Return the benchmark of a configuration in every setting; `images` replace its data set.

    Raises:
      DataError: data that cannot be read, or parts that do not fit together.
    """
    config, settings = request.config, request.settings
    check_options(config, settings)
    inputs = _with_added_tasks(load_inputs(request, images), request, settings)
    if config.stream != "classes":
        settings = (DOMAIN,)
    return setting_benchmarks(request.name, inputs, settings)


def _with_added_tasks(
    inputs: ImageInputs, request: Request[Config], settings: tuple[str, ...]
) -> ImageInputs:
    """Return the inputs with the further tasks of a request."""
    for added in request.added:
        known = len(inputs.images.class_names)
        inputs = with_added_task(inputs, added, request.runs)
        if settings == (DOMAIN,) and len(inputs.images.class_names) > known:
            raise DataError(
                f"--data {added.data} has the new class {inputs.images.class_names[known]!a}, and "
                "the run is domain-incremental: all of its tasks have the same classes. Train a "
                "new run."
            )
        if "task-incremental" in settings and inputs.classes_recur:
            raise DataError(
                f"--data {added.data} has images of earlier classes, which have another task in "
                "the setting task-incremental; give only new classes"
            )
    return inputs


def user_stream_benchmarks(request: Request[Config], user_stream: UserStream) -> Benchmarks:
    """Return the benchmark of a user's stream in every setting.

    A stream whose later tasks bring no new class is domain-incremental.

    Raises:
      DataError: options that the stream does not have, or parts that do not fit together.
    """
    images, experiences = user_stream.loaded.images, user_stream.experiences
    check_stream_options(request.name, request.config, user_stream.features is not None)
    settings, recur = request.settings, classes_recur(images, experiences)
    if recur and "task-incremental" in settings:
        raise DataError(
            f"--setting task-incremental: classes recur in {request.name}, so they have no task; "
            "give another setting"
        )
    if recur and brings_no_class(images, experiences):
        if settings != ("class-incremental",):
            raise DataError(f"{request.name} is {DOMAIN}; leave out --setting")
        settings = (DOMAIN,)
    config = replace(request.config, tasks=(len(experiences.train),))
    check_options(config, request.settings)
    inputs = load_inputs(request._replace(config=config), user_stream=user_stream)
    inputs = _with_added_tasks(inputs, request, settings)
    return setting_benchmarks(request.name, inputs, settings)


def shapes(name: str, config: Config, setting: str) -> Benchmark:
    """Return the benchmark of a configuration whose images are shapes alone."""
    side, names = config.side, tuple(map(str, range(config.classes)))
    images = image_set(names, config.per_class, side)
    request = NetworkRequest(len(names), side, config.dtype, config.dropout)
    inputs = ImageInputs(
        config=config,
        images=images,
        note="",
        stored=stored_shapes(images.images),
        net=network(config.net, request, (side, side, 3)),
        checksums=(),
    )
    return setting_benchmarks(name, inputs, (setting,))[setting]


def setting_benchmarks(name: str, inputs: ImageInputs, settings: tuple[str, ...]) -> Benchmarks:
    """Return the benchmark of the same data in every setting."""
    config, net, data = inputs.config, inputs.net, inputs.data
    words = training_words(config, net, settings)
    criterion = None if config.criterion == "final accuracy" else OVER_ALL_TIMES
    metrics = class_metrics(config.metrics, inputs.images.class_names)
    if config.protocol.evaluate_steps:
        metrics = metrics._replace(others=(*metrics.others, *BY_STEP))
    return {
        setting: Benchmark(
            name,
            data,
            Setting(
                setting,
                draws=_draws(inputs),
                capabilities=capabilities_of(net, setting, config, inputs.classes_recur),
                metrics=metrics,
                remedies=_remedies(config),
            ),
            _training(name, words, inputs, setting),
            Selection(config.chosen, criterion, config.grids),
        )
        for setting in settings
    }


def _draws(inputs: ImageInputs) -> str:
    """Return what differs between seeds, in words."""
    config = inputs.config
    if inputs.experiences is not None:
        return "initial network"
    if draws_stream(config):
        return "permutations or angles of the tasks"
    ordered = config.order == "seeded" and config.stream in DIVIDING
    if config.unevenness.shared:
        return "order of classes and samples of each task" if ordered else "samples of each task"
    return "order of classes" if ordered else "initial network"


def _remedies(config: Config) -> dict[Requirement, tuple[str, ...]]:
    """Return the options that give every task classes of its own, or its identity."""
    shared = tuple(f"--{name} 0" for name in config.unevenness.shared)
    if shared:
        task_given = ("--setting task-incremental", *shared)
        return {"disjoint classes": shared, "task-incremental": task_given}
    return {"disjoint classes": ("--cycles 1",)} if config.cycles > 1 else {}


def _training(name: str, words: str, inputs: ImageInputs, setting: str) -> Training:
    """Return the training of one setting."""
    config = inputs.config
    task_given = setting == "task-incremental"
    online = Protocol(
        epochs=1,
        batch_size=config.online_batch,
        select="last",
        evaluate_steps=config.protocol.evaluate_steps,
        boundaries=config.protocol.boundaries,
    )

    def protocol(method: Method) -> Protocol:
        return online if setting == "online" else config_of(config, method).protocol

    def fingerprint(method: Method) -> dict[str, Any]:
        values = config_of(config, method).fingerprint()
        # A run's own `order` is the seed of its sequence.
        values["class_order"] = values.pop("order")
        return {"benchmark": name, **values, **inputs.network_of(method).fingerprint()}

    def images_of(setup: Setup, per_run: PerRunData) -> Setup:
        return with_stream(setup, inputs.images, config, per_run)

    return Training(
        words=words,
        fingerprint=fingerprint,
        setup=setup_factory(config, inputs.network_of, task_given, images_of),
        protocol=protocol,
        keep=lambda method, result: run_arrays(config.metrics, task_given, result),
        learning_rate=lambda method: f"{config_of(config, method).learning_rate:g}",
        compute_budget=config.compute_budget,
        # Settings differ in their data and protocol alone, unless predictions are kept.
        program=setting if read_predictions(config.metrics) else "",
    )


def run_arrays(
    metrics: tuple[str, ...], task_given: bool, result: SequenceResult
) -> dict[str, Array]:
    """Return the arrays of a run that accuracies and the named metrics read."""
    predicts, measures = read_predictions(metrics), read_diagnostics(metrics)

    def both_accuracies(evaluation: Any) -> Accuracies:
        scored = evaluation.evaluation if measures else evaluation
        return scored[0] if predicts else scored

    def accuracies(evaluation: Any) -> Array:
        both = both_accuracies(evaluation)
        return both.task_masked if task_given else both.class_incremental

    arrays = {MATRIX: accuracies(result.evaluation), "validation": result.validation}
    within, scored = result.within_tasks, result.evaluation
    if within is not None:
        arrays |= {WITHIN: accuracies(within.evaluation), STEPS_WITHIN: within.steps}
    if TASK_MASKED in metrics:
        arrays[MASKED_MATRIX] = both_accuracies(scored).task_masked
    if measures:
        arrays |= scored.measured._asdict()
        scored = scored.evaluation
    return arrays | ({PREDICTED: scored[1]} if predicts else {})


def setup_factory(
    config: Config,
    network_of: Callable[[Method], Network],
    task_given: bool,
    images_of: Callable[[Setup, PerRunData], Setup] = lambda setup, per_run: setup,
) -> Callable[[Method, RunData], tuple[Setup, StrategyArguments]]:
    """Return the function that makes the parts of a strategy: softmax over the seen classes.

    With `task_given` every task has its own head. `images_of` changes the setup's inputs, such as
    to ones that depend on the task.
    """
    augment = crop_and_flip if config.augmentation == "crop-and-flip" else None

    def make(method: Method, data: RunData) -> tuple[Setup, StrategyArguments]:
        net = network_of(method)
        method_config, group = config_of(config, method), data.per_run.class_group
        updates = optimizer(
            method_config.optimizer, method_config.learning_rate, method_config.weight_decay
        )
        objective = softmax_objective(group, config.loss_classes == "seen")
        if read_predictions(config.metrics):
            objective = with_predictions(objective, task_given)
        pretrained = isinstance(data.shared, Pretrained)
        stored = data.shared.stored if pretrained else data.shared
        stored = normalize_inputs(stored, data.per_run.normalization)
        module = module_of(net, method, pretrained)
        setup = network_setup(module, stored, objective, updates.transformation, augment)
        if config.initialization == "xavier":
            setup = with_xavier(setup)
        if read_diagnostics(config.metrics):
            setup = setup._replace(measure=diagnose_plasticity)
        arguments = StrategyArguments(
            config.sequence_length,
            net.classes,
            config.exemplars_per_class,
            implicit_rate=updates.implicit_rate,
            layers=net.layers if method.trains == "net" else (),
            class_group=group,
            replay_batch_size=method_config.replay_batch_size,
            buffer_size=config.buffer_size,
            ema_decay=config.ema_decay,
            arguments={**loss_arguments(config, method), **method_config.arguments},
        )
        if pretrained:
            setup = with_pretrained_layers(setup, module, data.shared.layers, method, arguments)
        return images_of(setup, data.per_run), arguments

    return make


def capabilities_of(
    net: Network, setting: str, config: Config, classes_recur: bool
) -> frozenset[Requirement]:
    """Return what methods may require of images with classes."""
    has = {
        "task-incremental": setting == "task-incremental",
        # No class belongs to one task if every task has all classes.
        "disjoint classes": setting != DOMAIN and not classes_recur,
        "task boundaries": config.protocol.boundaries,
        "chosen classes": setting != DOMAIN and config.loss_classes == "seen",
        "last weights": config.ema_decay is None,
        "pretrained layers": config.pretrained is not None or config.features is not None,
        "pretrained transformer": config.pretrained is not None
        and isinstance(net.shape, VisionTransformer),
    }
    met = {name for name, is_met in has.items() if is_met}
    return network_capabilities(net) | {"class scores", "one label", *met}
