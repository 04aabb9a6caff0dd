"""Balanced experience replay (ER-balanced): exemplars of earlier tasks join every epoch.

The class-balanced buffer is merged into the task's epoch once, as in IIRC's ER (Abdelsalam et al.
2021, CVPR). `experience_replay` draws a batch per step instead. Exemplars are drawn at random when
a task ends, with equal probability among all samples of a class so far. They keep the label of
their task. The literature keeps 20 samples per class on CIFAR-100.

Equal to the code of IIRC's authors (chandar-lab/IIRC, `finetune.py` with its buffer) at the samples
of an epoch, the task's and the exemplars once each; differs in two points. For a class that comes
again, in the official code the last task's exemplars replace the earlier ones. The equal part of a
fixed total is rounded down, in the official code rounded up, which may exceed the total.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, UInt32

from everlight.base import Epoch, Learner, Samples, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.exemplars import add_seen_exemplars, exemplar_slots
from everlight.continual.strategies.parts.memory import empty_buffer, hash_key, merge_buffer


class Exemplars(NamedTuple):
    """Memory of balanced experience replay."""

    buffer: Samples
    """Class-balanced exemplars."""
    key_data: UInt32[Array, "2"]
    """Data of the threefry key that chooses exemplars in all tasks."""


@checked
def balanced_replay(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return balanced experience replay (ER-balanced), whose memory is `Exemplars`.

    Args:
      setup: network, objective, optimizer and data access.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Exemplars:
        slots = exemplar_slots(exemplars_per_class, buffer_size, learner.seen.shape[0])
        buffer = empty_buffer(slots, labels)
        return Exemplars(buffer, jax.random.key_data(hash_key(key)))

    def epoch_data(memory: Exemplars, task: Task) -> Epoch:
        return merge_buffer(task.train, memory.buffer)

    def end_task(
        memory: Exemplars, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Exemplars, Learner]:
        key = jax.random.wrap_key_data(memory.key_data, impl="threefry2x32")
        classes = learner.seen.shape[0]
        among = None if buffer_size is None else learner.seen
        buffer = add_seen_exemplars(memory.buffer, task.train, classes, key, among)
        return memory._replace(buffer=buffer), learner

    return naive(setup)._replace(
        init=init,
        epoch_data=epoch_data,
        end_task=end_task,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.mask),
    )


METHODS = (
    Method(
        "ER-balanced",
        balanced_replay,
        Publication("Abdelsalam et al.", 2021, "CVPR", ("samples",)),
        "experience replay: equally many exemplars per class, mixed into every epoch",
        authors={"exemplars_per_class": 20},
    ),
)
