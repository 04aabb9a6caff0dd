"""Domain-incremental streams: every task has the same labels.

Most have all classes in every task, with inputs or labels of its own. `split-domains` divides the
classes, and labels them by their position in their task.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np

from everlight.continual import Setup, TaskSequence
from everlight.scenarios import (
    domain_incremental,
    draw_transform,
    named_stream,
    replace_test_with_validation,
    transform_inputs,
    validation_fractions,
)
from everlight.scenarios.streams import Stream
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.run_data import PerRunData, Use
from everlight_experiments.images.config import DIVIDING, Config

STREAM_SEED = 2_000
"""Seed of permutations and wrong labels, which are the same for every seed of a run."""


def domain_sequences(images: ImageSet, config: Config) -> Callable[[int, Use], TaskSequence]:
    """Return the function from seed and use to a sequence.

    It is the same for all seeds, but where every seed draws labels of its own.
    """

    classes, fraction = len(images.class_names), config.validation_fraction
    fractions = validation_fractions(images.train_labels, classes, fraction) if fraction else 0.0

    @functools.cache
    def sequence_of(seed: int, use: Use) -> TaskSequence:
        sequence = domain_incremental(
            images.train_labels,
            images.test_labels,
            config.number_of_tasks,
            classes,
            label_maps=_stream(images, config, seed).label_maps,
            valid_fraction=fractions,
        )
        return replace_test_with_validation(sequence) if use == "validation" else sequence

    draws_labels = draws_stream(config) and config.stream == "permuted-labels"
    return lambda seed, use: sequence_of(STREAM_SEED + seed if draws_labels else STREAM_SEED, use)


def draws_stream(config: Config) -> bool:
    """Return True if every seed draws permutations or angles of its tasks."""
    return config.stream not in DIVIDING and config.stream_draws == "seeded"


def number_of_labels(config: Config, classes: int) -> int:
    """Return the number of outputs of a network for so many classes of images."""
    return classes // config.number_of_tasks if config.stream == "split-domains" else classes


def with_stream(setup: Setup, images: ImageSet, config: Config, per_run: PerRunData) -> Setup:
    """Return the setup whose inputs are those of the task of their index."""
    if config.stream in DIVIDING:
        return setup
    count = len(images.train_labels) + len(images.test_labels)
    if not per_run.stream_seed:
        return transform_inputs(setup, count, _stream(images, config, STREAM_SEED).transform)
    # The key of the sequence itself is that of its initial weights.
    key = jax.random.fold_in(jax.random.key(STREAM_SEED), per_run.stream_seed[0])
    transform = draw_transform(config.stream, config.number_of_tasks, _pixels(images), key)
    return transform_inputs(setup, count, transform)


def _stream(images: ImageSet, config: Config, seed: int) -> Stream:
    classes = len(images.class_names)
    return named_stream(config.stream, config.number_of_tasks, classes, _pixels(images), seed)


def _pixels(images: ImageSet) -> int:
    return int(np.prod(images.images.shape[1:3]))
