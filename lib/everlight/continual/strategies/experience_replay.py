"""Experience replay (ER) from a reservoir (Chaudhry et al. 2019, "On tiny episodic memories").

Every step joins the incoming batch with one drawn without replacement from the memory. It takes one
mean of the loss over the samples of both, in one pass. The memory is a reservoir (Vitter 1985):
each sample so far is held with equal probability, whatever its class. The method needs no task
boundaries. It is the "ER" of Buzzega et al. 2020 (NeurIPS).

Samples enter the memory after their step, at every step of every epoch as in the authors' code. A
sample may therefore be held more than once over several epochs. The literature holds 200 to 5,120
samples on CIFAR-10.

Equal to the official code (facebookresearch/agem, and Mammoth's `er.py`) at the gradient of a step,
for every size of the replayed batch; differs in two points. The loss runs over the classes that the
objective counts; Mammoth's runs over all outputs, and the first code's, on split CIFAR, over those
of each sample's task. The n-th sample replaces a held one with probability m / n; the first code
has m / (n - 1).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.memory import (
    add_to_reservoir,
    arrived,
    draw_from_reservoir,
    empty_buffer,
)
from everlight.continual.strategies.parts.replayed import joint_gradient


class Reservoir(NamedTuple):
    """Memory of strategies that replay from a reservoir."""

    samples: Samples
    arrived: Int[Array, ""]
    """Number of samples that have arrived so far."""


@checked
def experience_replay(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
) -> Strategy:
    """Return experience replay (ER) with a reservoir, whose memory is `Reservoir`.

    The objective determines the classes of the loss. For all outputs of the head, as in Mammoth,
    give the setup `softmax_objective(jnp.zeros(classes, int))`, one group of all classes.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      labels: labels per sample in the sequence.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Reservoir:
        return Reservoir(empty_buffer(buffer_size, labels), jnp.int32(0))

    def draw(memory: Reservoir, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        size = replay_batch_size or batch.index.shape[0]
        return draw_from_reservoir(memory.samples, memory.arrived, size, batch, key).batch

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return joint_gradient(setup, learner, batch, key)

    def after_step(
        memory: Reservoir, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Reservoir, Learner]:
        new = arrived(info)
        samples, count = add_to_reservoir(memory.samples, memory.arrived, new, new.mask, key)
        return Reservoir(samples, count), learner

    return naive(setup)._replace(
        init=init,
        draw=draw,
        grads=grads,
        after_step=after_step,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )


METHODS = (
    Method(
        "ER",
        experience_replay,
        Publication("Chaudhry et al.", 2019, "arXiv 1902.10486", ("samples",)),
        "experience replay: a replay batch from a reservoir at every step",
        authors={"replay_batch_size": 10, "batch size": 10, "epochs per task": 1},
        takes_targets=True,
    ),
)
