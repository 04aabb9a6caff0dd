"""Problems on which networks lose plasticity: setup, tasks and score of each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.continual import (
    ComputedInputs,
    GeneratedResult,
    Setup,
    StoredImages,
    TaskGenerator,
    learn_generated,
    network_setup,
    regression_objective,
    softmax_objective,
)
from everlight.continual.methods.method import (
    INCOMPATIBILITIES,
    NETWORK_REQUIREMENTS,
    Method,
    StrategyArguments,
)
from everlight.metrics import diagnose_plasticity
from everlight.models import Network, NetworkRequest, with_kaiming
from everlight.scenarios import (
    binary_digits,
    change_slow_bits,
    class_pair_tasks,
    draw_samples,
    draw_target_network,
    label_permuted_tasks,
    permuted_pixels,
    permuted_tasks,
    target_values,
    transform_inputs,
)
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.image_requests import load_images
from everlight_data.images.inputs.as_inputs import store_images
from everlight_data.sets.data_set import ImageRequest
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.parts import network, network_capabilities
from everlight_experiments.images.metrics import DIAGNOSTICS
from everlight_experiments.plasticity.config import PlasticityConfig

INPUTS, SLOW = 20, 15
"""Bits of regression, and those of them that stay during a task."""
ERROR, ONLINE, TESTED = "online error", "online accuracy", "accuracy after the task"
"""Scores: loss or accuracy of every batch before it is learned, or accuracy on test images."""


class Problem(NamedTuple):
    """A problem that a configuration makes."""

    begin: Callable[[StoredImages | None, PRNGKeyArray], tuple[Setup, TaskGenerator]]
    """Function from the images and a run's key to its setup and its tasks."""
    images: StoredImages | None
    """Images, which enter a program as an argument; None where inputs are computed."""
    checksums: tuple[int, ...] | None
    """Checksums of images and labels; None where inputs are computed."""
    note: str
    net: Network
    classes: int
    score: str
    """Name of the score by which methods are compared."""


def load_problem(name: str, config: PlasticityConfig, seed: int) -> Problem:
    """Return a problem with its data.

    Raises:
      DataError: samples that batches do not divide, data that cannot be read, or a network that
        does not fit.
    """
    if config.samples % config.batch_size:
        raise DataError(
            f"--samples {config.samples} with --batch-size {config.batch_size}; give a multiple of "
            "the batch size"
        )
    if name == "regression":
        net = network(config.net, NetworkRequest(1, 1), (INPUTS,))
        note = f"{INPUTS} bits, of which {SLOW} stay during a task"
        return Problem(partial(_begin_regression, config, net), None, None, note, net, 1, ERROR)
    images, _ = load_images(ImageRequest(config.data, config.side, config.classes, seed=seed))
    classes = 2 if name == "class-pairs" else len(images.class_names)
    shape = images.images.shape[1:]
    net = network(config.net, NetworkRequest(classes, shape[0]), shape)
    if name == "class-pairs" and not net.named:
        raise DataError(
            f"--net {config.net} has no layer named head, which class-pairs sets to 0; "
            "name the last layer head"
        )
    stored = store_images(images, unit=True)
    if name == "permuted":
        stored = replace(stored, copies=config.tasks)
    generator, wrap = _image_tasks(name, images, config.tasks, jax.random.key(seed))

    def begin(stored: StoredImages, key: PRNGKeyArray) -> tuple[Setup, TaskGenerator]:
        optimizer = optax.sgd(config.learning_rate)
        setup = network_setup(net.make("linear"), stored, softmax_objective(), optimizer)
        return wrap(with_kaiming(setup)._replace(measure=diagnose_plasticity)), generator

    note = f"{config.data}, {len(images.train_labels):,} training images in [0, 1]"
    score = TESTED if name == "class-pairs" else ONLINE
    checksums = checksums_of(stored.pieces, images.train_labels, images.test_labels)
    return Problem(begin, stored, checksums, note, net, classes, score)


def _begin_regression(
    config: PlasticityConfig, net: Network, images: None, key: PRNGKeyArray
) -> tuple[Setup, TaskGenerator]:
    target = draw_target_network(key, INPUTS)
    objective = regression_objective(
        lambda number: target_values(target, binary_digits(number))[:, None]
    )
    inputs, optimizer = ComputedInputs(binary_digits, (INPUTS,)), optax.sgd(config.learning_rate)
    setup = with_kaiming(network_setup(net.make("linear"), inputs, objective, optimizer))
    generator = TaskGenerator(
        begin=lambda key: jax.random.bernoulli(key, shape=(SLOW,)),
        next_task=lambda bits, key: change_slow_bits(bits, key, config.flips),
        draw=lambda bits, count, key: draw_samples(bits, count, INPUTS, key),
    )
    return setup._replace(measure=diagnose_plasticity), generator


def _image_tasks(
    name: str, images: ImageSet, tasks: int, key: PRNGKeyArray
) -> tuple[TaskGenerator, Callable[[Setup], Setup]]:
    """Return the generator of a problem of images, and what it changes in the setup."""
    train, test, classes = images.train_labels, images.test_labels, len(images.class_names)
    if name == "class-pairs":
        return class_pair_tasks(train, test), lambda setup: setup
    if name == "permuted-labels":
        return label_permuted_tasks(train, classes), lambda setup: setup
    count, pixels = len(train) + len(test), int(np.prod(images.images.shape[1:3]))
    transform = permuted_pixels(tasks, pixels, key)
    wrap = partial(transform_inputs, count=count, transform=transform)
    return permuted_tasks(train, classes, count), wrap


def refuse_unfit(problem: Problem, methods: Sequence[Method]) -> None:
    """Refuse methods that need layers by name, or their inputs, where the network lacks them.

    Raises:
      DataError: the message names the methods.
    """
    has = network_capabilities(problem.net)
    for method in methods:
        for requirement in method.requirements:
            if requirement in NETWORK_REQUIREMENTS - has:
                raise DataError(f"{method.name} {INCOMPATIBILITIES[requirement]}")


def learn_problem(
    problem: Problem,
    config: PlasticityConfig,
    method: Method,
    images: StoredImages | None,
    key: PRNGKeyArray,
    value: Float[Array, ""],
) -> GeneratedResult:
    """Return the result of one run, as a pure function of images, key and hyper-parameter."""
    of_problem, of_run = jax.random.split(key)
    setup, generator = problem.begin(images, of_problem)
    arguments = StrategyArguments(
        config.tasks,
        problem.classes,
        exemplars_per_class=1,
        hyperparameter=value,
        implicit_rate=config.learning_rate,
        layers=problem.net.layers,
    )
    return learn_generated(
        setup,
        method.make(setup, arguments),
        generator,
        config.tasks,
        -(-config.samples // config.batch_size),
        of_run,
        config.batch_size,
        prequential=problem.score == ONLINE,
    )


def values_of(problem: Problem, result: GeneratedResult) -> dict[str, Float[np.ndarray, "seeds t"]]:
    """Return the score and the diagnostics of all seeds and tasks by name; NaN after divergence.

    The accuracy of a network of NaN is finite: it predicts the first class.
    """
    diverged = np.logical_or.accumulate(~np.isfinite(np.asarray(result.losses)), axis=1)
    scores = {ERROR: result.losses, ONLINE: result.prequential, TESTED: result.tested}
    measured = dict(zip(DIAGNOSTICS, result.measured, strict=True))
    series = {problem.score: scores[problem.score], **measured}
    return {name: np.where(diverged, np.nan, values) for name, values in series.items()}
