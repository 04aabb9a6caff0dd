"""Domain-incremental streams: every task has all classes, with inputs or labels of its own."""

import functools
from collections.abc import Callable

import numpy as np

from everlight.continual import Setup, TaskSequence
from everlight.scenarios import domain_incremental, named_stream, tested_on_validation, transformed
from everlight.scenarios.streams import Stream
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmark import Use
from everlight_experiments.continual.config import Config

STREAM_SEED = 2_000
"""Seed of permutations and wrong labels, which are the same for every seed of a run."""


def domain_sequences(images: ImageSet, config: Config) -> Callable[[int, Use], TaskSequence]:
    """Return the function from seed and use to a sequence, which is the same for all seeds."""

    @functools.cache
    def sequence_of(use: Use) -> TaskSequence:
        sequence = domain_incremental(
            images.train_labels,
            images.test_labels,
            *config.tasks,
            len(images.class_names),
            label_maps=_stream(images, config).label_maps,
            valid_fraction=config.validation_fraction,
        )
        return tested_on_validation(sequence) if use == "validation" else sequence

    return lambda seed, use: sequence_of(use)


def with_stream(setup: Setup, images: ImageSet, config: Config) -> Setup:
    """Return the setup whose inputs are those of the task of their index."""
    count = len(images.train_labels) + len(images.test_labels)
    return transformed(setup, count, _stream(images, config).transform)


def _stream(images: ImageSet, config: Config) -> Stream:
    classes, pixels = len(images.class_names), int(np.prod(images.images.shape[1:3]))
    return named_stream(config.stream, *config.tasks, classes, pixels, STREAM_SEED)
