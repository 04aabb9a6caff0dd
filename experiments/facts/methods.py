"""The strategies of the paper, with EWC and IMM's mean beside them, and how each is built."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.base import Objective, Predictions, Setup, Strategy, TaskSequence
from everlight.continual.engine.flax_setup import StoredImages, StreamedImages, flax_setup
from everlight.continual.engine.state import Build
from everlight.continual.objectives.embedding import embedding_objective
from everlight.continual.strategies.cumulative import joint
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.expert_gate import expert_gate
from everlight.continual.strategies.imm import imm
from everlight.continual.strategies.mas import mas
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.si import si
from everlight.metrics.ranking import Facts, Ranks, distances_to_facts
from everlight.models.joint_embedding import JointEmbedding
from experiments.common.streaming import Channels

TOP = 5
"""A fact is found where it is among the nearest so many; 5 in the paper."""
GATE_SIDE = 8
"""ExpertGate's gate sees images as means of blocks, so many a side."""


class SequenceData(NamedTuple):
    """What a compiled sequence gets as its data; another split or strength compiles nothing."""

    images: StoredImages | Channels
    """Channels alone where images are streamed."""
    facts: Facts
    shown: Int[Array, "s"]
    """Test samples of which the nearest facts are kept, for the report's examples."""
    strength: Float[Array, ""]


def join_strength(
    shared: tuple[StoredImages | Channels, Facts, Int[Array, "s"]], strength: Float[Array, ""]
) -> SequenceData:
    """What all runs share with what is a run's own."""
    return SequenceData(*shared, strength)


class Kept(NamedTuple):
    """What is kept of the test union after a task."""

    ranks: Ranks
    found: Int[Array, "s k"]
    """The nearest facts of all tasks for the shown samples, nearest first."""


class Method(NamedTuple):
    """A strategy's factory from setup, strength and number of tasks; strengths to choose from."""

    make: Callable[[Setup, Array, int], Strategy]
    strengths: tuple[float, ...] = ()


def gate_features(inputs: Float[Array, "b h w c"]) -> Float[Array, "b f"]:
    """A fixed descriptor for ExpertGate's gate: normalised images as means of 8x8 blocks."""
    batch, side, _, channels = inputs.shape
    block = side // GATE_SIDE
    blocks = inputs.reshape(batch, GATE_SIDE, block, GATE_SIDE, block, channels)
    return jnp.mean(blocks, axis=(2, 4)).reshape(batch, -1)


METHODS: dict[str, Method] = {
    "ExpertGate": Method(lambda setup, strength, tasks: expert_gate(setup, tasks, gate_features)),
    "finetune": Method(lambda setup, strength, tasks: naive(setup)),
    "IMM mean": Method(
        lambda setup, strength, tasks: imm(setup, "mean", strength), (1e-3, 1e-2, 1e-1, 1)
    ),
    "IMM mode": Method(
        lambda setup, strength, tasks: imm(setup, "mode", strength), (1e-4, 1e-3, 1e-2, 1e-1)
    ),
    "SI": Method(lambda setup, strength, tasks: si(setup, strength), (0.01, 0.1, 1, 10, 100)),
    "MAS": Method(lambda setup, strength, tasks: mas(setup, strength), (0.1, 1, 10, 100, 1000)),
    "EWC": Method(lambda setup, strength, tasks: ewc(setup, strength), (100, 1e3, 1e4, 1e5, 1e6)),
    "joint": Method(lambda setup, strength, tasks: joint(setup, tasks)),
}
SEQUENTIAL = tuple(name for name in METHODS if name != "joint")
SINGLE_MODEL = ("finetune", "IMM mode", "SI", "MAS")
"""The paper's model-based methods; its IMM is the mode."""


def build_method(
    name: str,
    net: JointEmbedding,
    tasks: int,
    rate: float,
    streamed: Callable[[Channels], StreamedImages] | None = None,
) -> Build:
    """How the engine builds a method: Adam, and one embedding for all tasks.

    Args:
      name: of `METHODS`.
      net: the network.
      tasks: in the sequence.
      rate: Adam's.
      streamed: from the data's channels to images that are read as steps ask for them.
    """

    def build(data: SequenceData) -> tuple[Setup, Strategy]:
        objective = _keeping_examples(embedding_objective(data.facts), data)
        images = data.images if streamed is None else streamed(data.images)
        setup = flax_setup(net, images, objective, optax.adam(rate))
        return setup, METHODS[name].make(setup, data.strength, tasks)

    return build


def _keeping_examples(plain: Objective, data: SequenceData) -> Objective:
    def judge(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        return plain.judge(predictions, seen), predictions.scores

    def evaluate(sequence: TaskSequence, judged: tuple, seen: Bool[Array, "c"]) -> Kept:
        ranks, scores = judged
        embeddings = scores[data.shown].reshape(data.shown.shape[0], 3, -1)
        return Kept(plain.evaluate(sequence, ranks, seen), nearest_facts(embeddings, data.facts))

    return plain._replace(judge=judge, evaluate=evaluate)


def nearest_facts(embeddings: Float[Array, "s 3 d"], facts: Facts) -> Int[Array, "s k"]:
    """The facts of all tasks that are nearest, nearest first."""
    return jax.lax.top_k(-distances_to_facts(embeddings, facts).T, TOP)[1]
