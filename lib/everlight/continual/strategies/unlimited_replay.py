"""Unlimited replay (ER-infinite of Abdelsalam et al. 2021, CVPR): all samples so far, every epoch.

It continues from the last task's network. Samples keep the labels of their own tasks.

Equal to the code of IIRC's authors (chandar-lab/IIRC, `finetune.py` with an unlimited buffer) at
the samples and labels of every epoch; differs in storing indices into the data set, where the
official code stores a copy.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int

from everlight.base import Epoch, Memory, Setup, Strategy, Task
from everlight.checks import checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive


@checked
def unlimited_replay(setup: Setup) -> Strategy:
    """Return unlimited replay: all data so far, from the last task's parameters.

    Args:
      setup: network, objective, optimizer and data access.
    """
    return naive(setup)._replace(
        epoch_data=cumulative_epoch, uses_past=True, stored_samples=_samples_of_earlier_tasks
    )


def cumulative_epoch(memory: Memory, task: Task) -> Epoch:
    """Return the epoch of the samples of all tasks so far."""
    return Epoch(task.past, jnp.zeros_like(task.past.mask))


def _samples_of_earlier_tasks(memory: Memory, task: Task) -> Int[Array, ""]:
    return jnp.sum(task.past.mask) - jnp.sum(task.train.mask)


METHODS = (
    Method(
        "ER-infinite",
        unlimited_replay,
        Publication("Abdelsalam et al.", 2021, "CVPR", ("all samples",)),
        "unlimited replay: all data so far, from the last task's parameters",
        takes_targets=True,
    ),
)
