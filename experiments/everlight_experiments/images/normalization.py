"""Training images whose mean and standard deviation normalize the inputs (`--normalization`)."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from everlight.continual import StoredImages, TaskSequence
from everlight_data.images.inputs.as_inputs import feature_statistics, image_statistics
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.run_data import Normalization
from everlight_experiments.images.config import DIVIDING, Config
from everlight_experiments.images.pretrained import is_released


def first_task_statistics(
    images: ImageSet, features: Features | None, offset: tuple[float, ...]
) -> Callable[[TaskSequence], Normalization]:
    """Return the function from a sequence to mean and deviation of its first task's inputs.

    The inputs are those that the first task trains on, without validation samples. `offset` is
    that of the stored inputs (`StoredImages.offset`), which the mean leaves out.
    """

    def statistics(sequence: TaskSequence) -> Normalization:
        first = sequence.tasks.train
        index = np.asarray(first.index[0])[np.asarray(first.mask[0])]
        if features is None:
            mean, deviation = image_statistics(images.images[index])
        else:
            mean, deviation = feature_statistics(features, index, ", task 1,")
        return jnp.asarray(mean - np.array(offset or 0.0), jnp.float32), jnp.float32(deviation)

    return statistics


def normalize_inputs(stored: StoredImages, normalization: Normalization) -> StoredImages:
    """Return stored inputs with a run's own mean and deviation, if it has them."""
    if not normalization:
        return stored
    mean, deviation = normalization
    return replace(stored, mean=mean, deviation=deviation)


def normalization_words(config: Config) -> str:
    """Return a phrase that names the images whose statistics normalize the inputs."""
    if config.normalization is not None:
        return "inputs normalized by the training images of each seed's first task"
    if is_released(config.pretrained, config.net):
        return "pixels normalized by the statistics of the released network"
    if config.pixels == "unit" and config.features is None:
        return "pixels divided by 255"
    if config.stream not in DIVIDING:
        return "inputs normalized by the training images"
    return (
        "inputs normalized by the training images of all tasks, which is optimistic "
        "(--normalization first-task takes the first task's)"
    )
