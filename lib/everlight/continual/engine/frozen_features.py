"""Features of all stored images by a frozen network, computed once before training."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from everlight.base import Samples
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.engine.setups.flax_setup import flax_setup
from everlight.continual.engine.sources import StoredImages
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives import fixed_test_objective


class FrozenFeatures(NamedTuple):
    """Features of every stored image by a frozen network."""

    values: Float[Array, "n f"]
    operations: float
    """Floating-point operations per image."""


@checked
def frozen_features(
    net: nn.Module, layers: dict[str, PyTree], stored: StoredImages, size: PositiveInt = 128
) -> FrozenFeatures:
    """Return the features of every stored image by a network with the given layers, frozen.

    Args:
      net: network whose outputs have the field `features`.
      layers: parameters by name of the layer; the others are drawn and do not matter to features.
      stored: images with their normalization.
      size: images per forward pass.
    """
    count = len(stored.pieces)
    samples = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))

    def features(stored: StoredImages, layers: PyTree, samples: Samples) -> Float[Array, "n f"]:
        setup = flax_setup(net, stored, fixed_test_objective(1), optax.identity())
        learner = init_learner(setup, 1, jax.random.key(0))
        learner = learner._replace(params={**learner.params, **layers})
        return sample_features(setup, learner, samples, size)

    program = jax.jit(features).lower(stored, layers, samples).compile()
    # The analysis counts one pass of the loop.
    operations = float(program.cost_analysis()["flops"]) / size
    return FrozenFeatures(program(stored, layers, samples), operations)
