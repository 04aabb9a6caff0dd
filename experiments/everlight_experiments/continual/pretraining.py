"""Networks that are trained on other data before the first task, and features of frozen ones."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from everlight.continual import (
    Protocol,
    Samples,
    Setup,
    StoredImages,
    Strategy,
    fixed_test_objective,
    flax_setup,
    naive,
    sample_features,
)
from everlight.continual.engine.tasks import init_learner
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
AT_ONCE = 128
"""Images in one pass through a frozen network."""


class Pretrained(NamedTuple):
    """A network's layers after training on an image set."""

    layers: Layers
    stored: StoredImages
    """Images of the set, with the normalization that the network reads."""
    accuracy: float
    """Accuracy on the test images of the set."""


class FrozenFeatures(NamedTuple):
    """Features of every stored image by a frozen network."""

    values: Float[Array, "n f"]
    operations: float
    """Floating-point operations per image."""


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

    Args:
      folder: folder of the run.
      net: function from the number of classes to the network.
      images: image set to train on.
      epochs: number of epochs.
      learning_rate: learning rate of Adam.
      key: random key of the training.
      facts: identification of the training; another one is trained anew.
    """
    stored, classes = store_images(images), len(images.class_names)
    made = net(classes)

    def build(data: StoredImages) -> tuple[Setup, Strategy]:
        setup = flax_setup(made, data, fixed_test_objective(classes), optax.adam(learning_rate))
        return setup, naive(setup)

    sequence = class_incremental(
        images.train_labels, images.test_labels, [range(classes)], classes, valid_fraction=0.0
    )
    # Several networks that share a folder have a name each.
    unit = Unit(f"pretraining-{zlib.crc32(repr(facts).encode()):08x}", dict(facts), sequence, key)
    (arrays,) = train_units(
        folder,
        [unit],
        build,
        Protocol(epochs=epochs, select="last"),
        stored,
        lambda result: {
            "accuracy": result.evaluation.accuracy,
            **{
                f"{layer}/{leaf}": value
                for layer, leaves in result.learner.params.items()
                for leaf, value in leaves.items()
            },
        },
        one_by_one=True,
    )
    refuse_diverged([unit], [arrays])
    del arrays[DIVERGED_AT]
    accuracy = float(arrays.pop("accuracy")[0])
    layers: Layers = {}
    for name, value in arrays.items():
        layer, leaf = name.split("/")
        layers.setdefault(layer, {})[leaf] = jnp.asarray(value)
    return Pretrained(layers, stored, accuracy)


def frozen_features(net: nn.Module, layers: Layers, stored: StoredImages) -> FrozenFeatures:
    """Return the features of every stored image by a network with the given layers, frozen."""
    count = len(stored.pieces)
    samples = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))

    def features(stored: StoredImages, layers: PyTree, samples: Samples) -> Float[Array, "n f"]:
        setup = flax_setup(net, stored, fixed_test_objective(1), optax.identity())
        learner = init_learner(setup, 1, jax.random.key(0))
        learner = learner._replace(params={**learner.params, **layers})
        return sample_features(setup, learner, samples, AT_ONCE)

    program = jax.jit(features).lower(stored, layers, samples).compile()
    # The analysis counts one pass of the loop.
    operations = float(program.cost_analysis()["flops"]) / AT_ONCE
    return FrozenFeatures(program(stored, layers, samples), operations)
