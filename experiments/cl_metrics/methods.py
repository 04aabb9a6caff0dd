"""The strategies that the experiment compares, and how each is built for a sequence."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import optax
from jaxtyping import Array, Float, Int

from everlight.continual.base import Setup, Strategy
from everlight.continual.engine.flax_setup import StoredImages, flax_setup
from everlight.continual.engine.state import Build
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.cumulative import cumulative
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.si import si
from everlight.models.small_cnn import SmallCNN

Scenario = Literal["task-aware", "class-incremental"]
SCENARIOS: tuple[Scenario, ...] = ("task-aware", "class-incremental")


class SequenceData(NamedTuple):
    """What a compiled sequence gets as its data; another order or strength compiles nothing."""

    images: StoredImages
    class_task: Int[Array, "c"]
    strength: Float[Array, ""]


def join_data(images: StoredImages, own: tuple[Int[Array, "c"], Float[Array, ""]]) -> SequenceData:
    """What all runs share with what is a run's own: each class's task, and the strength."""
    return SequenceData(images, *own)


class Heads(NamedTuple):
    """Where tasks have heads of their own, which class has which; None is one head."""

    class_group: Int[Array, "c"] | None
    count: int


class Method(NamedTuple):
    """A strategy's factory from setup, strength and heads, and the strengths to choose from."""

    make: Callable[[Setup, Array, Heads], Strategy]
    strengths: tuple[float, ...] = ()


METHODS: dict[str, Method] = {
    "Naive": Method(lambda setup, strength, heads: naive(setup)),
    "Cumulative": Method(lambda setup, strength, heads: cumulative(setup)),
    "EWC": Method(lambda setup, strength, heads: ewc(setup, strength), (10, 100, 1e3, 1e4)),
    "LwF": Method(lambda setup, strength, heads: lwf(setup, strength, 2.0, *heads), (1, 3, 10, 30)),
    "SI": Method(lambda setup, strength, heads: si(setup, strength), (0.1, 1, 10, 100)),
}


def build_method(name: str, scenario: Scenario, tasks: int, net: SmallCNN, rate: float) -> Build:
    """How the engine builds a method: Adam, and a head per task where tasks are told.

    Args:
      name: of `METHODS`.
      scenario: task-aware: every task has a head of its own; class-incremental: one head, over
        the classes seen so far.
      tasks: in the sequence.
      net: the network.
      rate: Adam's.
    """

    def build(data: SequenceData) -> tuple[Setup, Strategy]:
        told = scenario == "task-aware"
        heads = Heads(data.class_task, tasks) if told else Heads(None, 1)
        objective = softmax_objective(heads.class_group)
        setup = flax_setup(net, data.images, objective, optax.adam(rate))
        return setup, METHODS[name].make(setup, data.strength, heads)

    return build
