"""Networks that are trained on another image set before the first task."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array

from everlight.continual import (
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    Strategy,
    fixed_test_objective,
    flax_setup,
    naive,
)
from everlight.scenarios import class_incremental
from everlight_data.images.as_inputs import store_images
from everlight_data.images.image_set import ImageSet
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.many_runs import (
    DIVERGED_AT,
    Unit,
    refuse_diverged,
    train_units,
)

Layers = dict[str, dict[str, Array]]


class Pretrained(NamedTuple):
    """A network's layers after training on an image set."""

    layers: Layers
    stored: StoredImages
    """Images of the set, with the normalization that the network reads."""
    accuracy: float
    """Accuracy on the test images of the set."""


def pretrained(
    folder: RunFolder,
    net: Callable[[int], nn.Module],
    images: ImageSet,
    epochs: int,
    learning_rate: float,
    key: Array,
    facts: Mapping[str, Any],
) -> Pretrained:
    """Train a network with Adam on all classes of an image set; a folder keeps what was learned.

    `net` is a function from the number of classes; `facts` identify the training.
    """
    stored, classes = store_images(images), len(images.class_names)
    made = net(classes)

    def build(data: StoredImages) -> tuple[Setup, Strategy]:
        setup = flax_setup(made, data, fixed_test_objective(classes), optax.adam(learning_rate))
        return setup, naive(setup)

    def keep(result: SequenceResult) -> dict[str, Array]:
        layers = flatten_dict(result.learner.params, sep="/")
        return {"accuracy": result.evaluation.accuracy, **layers}

    sequence = class_incremental(
        images.train_labels, images.test_labels, [range(classes)], classes, valid_fraction=0.0
    )
    # Several networks that share a folder have a name each.
    unit = Unit(f"pretraining-{zlib.crc32(repr(facts).encode()):08x}", dict(facts), sequence, key)
    protocol = Protocol(epochs=epochs, select="last")
    (arrays,) = train_units(folder, [unit], build, protocol, stored, keep, one_by_one=True)
    refuse_diverged([unit], [arrays])
    del arrays[DIVERGED_AT]
    accuracy = float(arrays.pop("accuracy")[0])
    layers = {name: jnp.asarray(value) for name, value in arrays.items()}
    return Pretrained(unflatten_dict(layers, sep="/"), stored, accuracy)
