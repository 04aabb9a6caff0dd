"""Strategies that keep all data: cumulative, joint, and replay without a limit.

Cumulative restarts from scratch at every task and learns from all data so far; joint learns nothing
until the last task and then everything at once. Replay without a limit goes on from the last task's
network; samples keep the labels that they had in their tasks (IIRC's ER-infinite).

Equal to the code of IIRC's authors (chandar-lab/IIRC, `finetune.py` with an unlimited buffer) at
the samples and labels of every epoch of replay without a limit; differs in that they are indices
into the data set, where theirs are a copy of it. Cumulative and joint have no official code.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from everlight.checks import PositiveInt, checked
from everlight.continual.base import Epoch, Learner, Memory, Samples, Setup, Strategy, Task
from everlight.continual.strategies.naive import naive


@checked
def cumulative(setup: Setup) -> Strategy:
    """All data so far, from new initial parameters at every task (cl_metrics paper).

    The validation samples of all tasks so far choose its epoch.
    """

    def begin_task(
        memory: Memory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        params, batch_stats = setup.init(key)
        return memory, learner._replace(params=params, batch_stats=batch_stats)

    return unlimited_replay(setup)._replace(begin_task=begin_task, valid_data=_all_validation)


@checked
def joint(setup: Setup, tasks: PositiveInt) -> Strategy:
    """All tasks' data at the last task, nothing before it.

    Args:
      setup: what is static.
      tasks: how many the sequence has.
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
    """All data so far, from the last task's parameters."""
    return naive(setup)._replace(
        epoch_data=_all_so_far, uses_past=True, stored_samples=_samples_of_earlier_tasks
    )


def _all_so_far(memory: Memory, task: Task) -> Epoch:
    return Epoch(task.past, jnp.zeros_like(task.past.mask))


def _all_validation(memory: Memory, task: Task) -> Samples:
    return task.past_valid


def _samples_of_earlier_tasks(memory: Memory, task: Task) -> Int[Array, ""]:
    return jnp.sum(task.past.mask) - jnp.sum(task.train.mask)
