"""The strategies of the CORe50 runs, and how each is built."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from everlight.continual.base import Setup, Strategy
from everlight.continual.engine.flax_setup import StoredImages, flax_setup
from everlight.continual.engine.state import Build
from everlight.continual.objectives.fixed_test import fixed_test_objective
from everlight.continual.strategies.agem import agem
from everlight.continual.strategies.cumulative import cumulative
from everlight.continual.strategies.cwr import cwr
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.mas import mas
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.replay import experience_replay
from everlight.continual.strategies.si import si
from experiments.core50.plans import Approach

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4


class SequenceData(NamedTuple):
    """What a compiled sequence gets as its data; other values compile nothing."""

    frames: StoredImages
    """The images, or what the frozen trunk makes of them."""
    layers: PyTree
    """That every net begins with; the others are drawn."""
    rate: Float[Array, ""]
    later_factor: Float[Array, ""]
    """On the rate, in all batches but the first."""


class Method(NamedTuple):
    """A strategy's factory from the setup and CWR's gain, and which of a plan's lengths it has."""

    make: Callable[[Setup, float], Strategy]
    approach: Approach = "tuned"


# The paper's three, CWR in both forms, then others with strengths that do not diverge in NI, not
# tuned.
METHODS: dict[str, Method] = {
    "naive": Method(lambda setup, gain: naive(setup)),
    "CWR": Method(cwr, "frozen"),
    "CWR as coded": Method(lambda setup, gain: cwr(setup, gain, "code"), "frozen"),
    "cumulative": Method(lambda setup, gain: cumulative(setup), "cumulative"),
    "EWC": Method(lambda setup, gain: ewc(setup, 1.0, fisher_samples=256)),
    "SI": Method(lambda setup, gain: si(setup, 1.0)),
    "MAS": Method(lambda setup, gain: mas(setup, 0.01, importance_samples=256)),
    "LwF": Method(lambda setup, gain: lwf(setup, 1.0)),
    "ER": Method(lambda setup, gain: experience_replay(setup, 20)),
    "A-GEM": Method(lambda setup, gain: agem(setup, 20)),
}
PAPER_METHODS = {
    "NI": ("naive", "cumulative"),
    "NC": ("naive", "CWR", "cumulative"),
    "NIC": ("naive", "CWR", "cumulative"),
}


def build_method(name: str, net: nn.Module, classes: int, dense_rate: float, gain: float) -> Build:
    """How the engine builds a method: softmax over all classes, SGD with momentum and weight decay.

    Args:
      name: of `METHODS`.
      net: what is trained.
      classes: outputs of the net.
      dense_rate: factor on the rate of fully connected layers.
      gain: CWR's, of the weights consolidated at the first batch.
    """

    def build(data: SequenceData) -> tuple[Setup, Strategy]:
        optimizer = optax.chain(
            optax.add_decayed_weights(WEIGHT_DECAY),
            optax.sgd(data.rate, momentum=MOMENTUM),
            scale_layers(dense_rate),
        )
        drawn = flax_setup(net, data.frames, fixed_test_objective(classes), optimizer)
        setup = drawn._replace(
            init=lambda key: _begin(drawn, data.layers, key),
            task_rate=lambda number: jnp.where(number == 0, 1.0, data.later_factor),
        )
        return setup, METHODS[name].make(setup, gain)

    return build


def _begin(drawn: Setup, layers: PyTree, key: Array) -> tuple[PyTree, PyTree]:
    params, batch_stats = drawn.init(key)
    return {**params, **layers}, batch_stats


def scale_layers(dense_rate: float) -> optax.GradientTransformation:
    """Updates times `dense_rate` in fully connected layers, and biases twice their layer's.

    For parameters by layer, each of a `kernel`, `[in, out]` where it is fully connected, and a
    `bias`.
    """

    def scale(updates: PyTree, params: PyTree) -> PyTree:
        scaled = {}
        for name, layer in updates.items():
            factor = dense_rate if layer["kernel"].ndim == 2 else 1.0
            scaled[name] = {
                "kernel": factor * layer["kernel"],
                "bias": 2 * factor * layer["bias"],
            }
        return scaled

    return optax.stateless(scale)
