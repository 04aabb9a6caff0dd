"""Projections of features to vectors of length 1, which only losses use."""

import itertools
from typing import NamedTuple

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Learner, Setup
from everlight.continual.strategies.parts.added_parameters import (
    AddedParameters,
    updated_parameters,
)
from everlight.models.heads import unit_vectors


class Linear(NamedTuple):
    """Parameters of a linear layer."""

    kernel: Float[Array, "f w"]
    bias: Float[Array, "w"]


class Projection(NamedTuple):
    """Linear layers with ReLU between them, and the state of their optimizer."""

    layers: tuple[Linear, ...]
    opt_state: optax.OptState


def new_projection(setup: Setup, widths: tuple[int, ...], key: PRNGKeyArray) -> Projection:
    """Return a projection whose parameters are uniform within ± inputs^(-1/2), PyTorch's default.

    Args:
      setup: network, objective, optimizer and data access; the optimizer trains the projection too.
      widths: number of inputs, then of outputs of each layer.
      key: random key of the parameters.
    """
    keys = jax.random.split(key, 2 * len(widths) - 2).reshape(-1, 2)
    shapes = itertools.pairwise(widths)
    layers = tuple(_new_linear(*pair, *shape) for pair, shape in zip(keys, shapes, strict=True))
    return Projection(layers, setup.optimizer.init(layers))


def _new_linear(
    key_kernel: PRNGKeyArray, key_bias: PRNGKeyArray, inputs: int, width: int
) -> Linear:
    bound = inputs**-0.5
    return Linear(
        jax.random.uniform(key_kernel, (inputs, width), minval=-bound, maxval=bound),
        jax.random.uniform(key_bias, (width,), minval=-bound, maxval=bound),
    )


def projected(layers: tuple[Linear, ...], features: Float[Array, "n f"]) -> Float[Array, "n w"]:
    """Return projections of length 1 of the features."""
    *hidden, output = layers
    for layer in hidden:
        features = jax.nn.relu(features @ layer.kernel + layer.bias)
    return unit_vectors(features @ output.kernel + output.bias, -1)


def updated_projection(
    setup: Setup, learner: Learner, projection: Projection, gradient: PyTree
) -> Projection:
    """Return the projection after a step of its optimizer, at the network's learning rate."""
    added = AddedParameters(projection.layers, projection.opt_state)
    return Projection(*updated_parameters(setup, learner, added, gradient))
