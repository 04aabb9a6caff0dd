"""Strategies that store all data: cumulative training, joint training and unlimited replay.

Cumulative training restarts from new parameters at every task and learns from all data so far.
Joint training waits for the last task and then learns from all data at once. Unlimited replay
continues from the last task's network. Samples keep the labels of their own tasks (IIRC's
ER-infinite).

Equal to the code of IIRC's authors (chandar-lab/IIRC, `finetune.py` with an unlimited buffer) at
the samples and labels of every epoch of unlimited replay; differs in storing indices into the data
set, where theirs stores a copy. Cumulative and joint training have no official code.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from everlight.base import Epoch, Learner, Memory, Samples, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.strategies.naive import naive


@checked
def cumulative(setup: Setup) -> Strategy:
    """Return cumulative training: all data so far, from new parameters at every task.

    The baseline of Díaz-Rodríguez et al. 2018. The validation samples of all tasks so far choose
    the best epoch.

    Args:
      setup: network, objective, optimizer and data access.
    """

    def begin_task(
        memory: Memory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        params, batch_stats = setup.init(key)
        return memory, learner._replace(params=params, batch_stats=batch_stats)

    return unlimited_replay(setup)._replace(begin_task=begin_task, valid_data=_all_validation)


@checked
def joint(setup: Setup, tasks: PositiveInt) -> Strategy:
    """Return joint training: all tasks' data at the last task, none before it.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: number of tasks in the sequence.
    """

    def epoch_data(memory: Memory, task: Task) -> Epoch:
        epoch = _all_so_far(memory, task)
        now = epoch.samples.mask & (task.id == tasks - 1)
        return epoch._replace(samples=epoch.samples._replace(mask=now))

    return unlimited_replay(setup)._replace(
        epoch_data=epoch_data, valid_data=_all_validation, tasks=tasks
    )


@checked
def unlimited_replay(setup: Setup) -> Strategy:
    """Return unlimited replay: all data so far, from the last task's parameters.

    Args:
      setup: network, objective, optimizer and data access.
    """
    return naive(setup)._replace(
        epoch_data=_all_so_far, uses_past=True, stored_samples=_samples_of_earlier_tasks
    )


def _all_so_far(memory: Memory, task: Task) -> Epoch:
    return Epoch(task.past, jnp.zeros_like(task.past.mask))


def _all_validation(memory: Memory, task: Task) -> Samples:
    return task.past_valid


def _samples_of_earlier_tasks(memory: Memory, task: Task) -> Int[Array, ""]:
    return jnp.sum(task.past.mask) - jnp.sum(task.train.mask)
