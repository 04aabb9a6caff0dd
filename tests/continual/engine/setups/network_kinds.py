"""The same networks in linen, NNX and Equinox, with the same weights."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from everlight.base import Outputs
from everlight.continual.engine import StoredImages, network_setup
from everlight.continual.objectives import softmax_objective
from everlight.models import MLP

INPUTS, HIDDEN, CLASSES, NUMBER = 3, 5, 4, 64
_RNG = np.random.default_rng(2)
WEIGHTS = {
    "hidden1": {"kernel": _RNG.normal(size=(INPUTS, HIDDEN)), "bias": _RNG.normal(size=HIDDEN)},
    "head": {"kernel": _RNG.normal(size=(HIDDEN, CLASSES)), "bias": _RNG.normal(size=CLASSES)},
}
WEIGHTS = jax.tree.map(jnp.float32, WEIGHTS)
DATA = jnp.float32(_RNG.normal(size=(NUMBER, INPUTS)))
STORED = StoredImages.of(DATA, jnp.float32(0), jnp.float32(1))


class NnxMLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden1 = nnx.Linear(INPUTS, HIDDEN, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

    def __call__(self, images):
        features = nnx.relu(self.hidden1(images))
        return Outputs(self.head(features), features)


class EquinoxMLP(eqx.Module):
    hidden1: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.hidden1 = eqx.nn.Linear(INPUTS, HIDDEN, key=first)
        self.head = eqx.nn.Linear(HIDDEN, CLASSES, key=second)

    def __call__(self, image):
        features = jax.nn.relu(self.hidden1(image))
        return Outputs(self.head(features), features)


def given_nnx(rngs):
    net = NnxMLP(rngs)
    for name, layer in WEIGHTS.items():
        part = getattr(net, name)
        part.kernel[...], part.bias[...] = layer["kernel"], layer["bias"]
    return net


def given_equinox(key):
    def where(net):
        return net.hidden1.weight, net.hidden1.bias, net.head.weight, net.head.bias

    values = [WEIGHTS[n][part].T for n in ("hidden1", "head") for part in ("kernel", "bias")]
    return eqx.tree_at(where, EquinoxMLP(key), tuple(values))


def given_linen(setup):
    """Return the setup whose linen network begins with the weights."""
    return setup._replace(init=lambda key: (WEIGHTS, {}))


def setup_of(kind, stored=STORED):
    net = {"linen": MLP(CLASSES, (HIDDEN,)), "nnx": given_nnx, "equinox": given_equinox}[kind]
    setup = network_setup(net, stored, softmax_objective(), optax.sgd(0.1))
    return given_linen(setup) if kind == "linen" else setup


class LinenNorm(nn.Module):
    @nn.compact
    def __call__(self, images, train):
        norm = nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5, name="norm")
        features = nn.relu(norm(nn.Dense(HIDDEN, name="hidden1")(images)))
        return Outputs(nn.Dense(CLASSES, name="head")(features), features)


class NnxNorm(nnx.Module):
    """Made in evaluation mode."""

    def __init__(self, rngs):
        self.hidden1 = nnx.Linear(INPUTS, HIDDEN, rngs=rngs)
        options = {"momentum": 0.9, "epsilon": 1e-5, "use_running_average": True}
        self.norm = nnx.BatchNorm(HIDDEN, **options, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

    def __call__(self, images):
        features = nnx.relu(self.norm(self.hidden1(images)))
        return Outputs(self.head(features), features)


class EquinoxNorm(eqx.Module):
    hidden1: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.hidden1 = eqx.nn.Linear(INPUTS, HIDDEN, key=first)
        self.norm = eqx.nn.BatchNorm(HIDDEN, "examples", momentum=0.9, eps=1e-5, mode="batch")
        self.head = eqx.nn.Linear(HIDDEN, CLASSES, key=second)

    def __call__(self, image, state):
        normed, state = self.norm(self.hidden1(image), state)
        features = jax.nn.relu(normed)
        return Outputs(self.head(features), features), state


class NnxDropout(nnx.Module):
    """Layers in a list, dropout, and logits alone; made in evaluation mode."""

    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(INPUTS, HIDDEN, rngs=rngs)])
        self.dropout = nnx.Dropout(0.5, deterministic=True, rngs=rngs)
        self.head = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

    def __call__(self, images):
        return self.head(self.dropout(nnx.relu(self.layers[0](images))))


class EquinoxDropout(eqx.Module):
    layers: list
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.layers = [eqx.nn.Linear(INPUTS, HIDDEN, key=first)]
        self.dropout = eqx.nn.Dropout(0.5)
        self.head = eqx.nn.Linear(HIDDEN, CLASSES, key=second)

    def __call__(self, image, *, key=None):
        return self.head(self.dropout(jax.nn.relu(self.layers[0](image)), key=key))


NORMS = {
    "linen": LinenNorm(),
    "nnx": NnxNorm,
    "equinox": lambda key: eqx.nn.make_with_state(EquinoxNorm)(key),
}
DROPOUT = {"nnx": NnxDropout, "equinox": EquinoxDropout}
