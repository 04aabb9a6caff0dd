"""Random keys of a sequence. Every key is consumed once.

JAX's `split(key, n)[i]` equals `fold_in(key, i)`, and a key's random bits depend on the same words.
A key with two uses may therefore give equal numbers to both. Hence a key is either split once into
named roles, or indices of one kind are folded into it, or it is consumed:

    sequence -> learner, memory, tasks
    tasks, task number -> begin, epochs, end, evaluation
    epochs, epoch number -> order, steps, validation, evaluations
    steps, step number, update number -> batch, gradient, after, score
    batch -> inputs, draw, replay
"""

from typing import NamedTuple, TypeVar

import jax
from jaxtyping import Array, Int, PRNGKeyArray

Number = Int[Array, ""] | int


class SequenceKeys(NamedTuple):
    """Roles of a sequence's key."""

    learner: PRNGKeyArray
    """Initial parameters."""
    memory: PRNGKeyArray
    """The strategy's initial memory."""
    tasks: PRNGKeyArray
    """Folded with the number of a task by `task_keys`."""


class TaskKeys(NamedTuple):
    """Roles of a task's key."""

    begin: PRNGKeyArray
    """`Strategy.begin_task`."""
    epochs: PRNGKeyArray
    """Folded with the number of an epoch by `epoch_keys`."""
    end: PRNGKeyArray
    """`Strategy.end_task`."""
    evaluation: PRNGKeyArray
    """`Strategy.before_evaluation` on all test samples."""


class EpochKeys(NamedTuple):
    """Roles of an epoch's key."""

    order: PRNGKeyArray
    """The shuffle."""
    steps: PRNGKeyArray
    """Folded with the number of a step by `step_key`."""
    validation: PRNGKeyArray
    """`Strategy.before_evaluation` in validation."""
    evaluations: PRNGKeyArray
    """`Strategy.before_evaluation` in evaluations within the epoch, folded with their number."""


class BatchKeys(NamedTuple):
    """Roles of the key that completes a batch with inputs and replay."""

    inputs: PRNGKeyArray
    """Augmentation of the batch."""
    draw: PRNGKeyArray
    """`Strategy.draw`."""
    replay: PRNGKeyArray
    """Augmentation of replayed batches, folded with the place of each."""


class StepKeys(NamedTuple):
    """Roles of the key of one update."""

    batch: PRNGKeyArray
    """Split into `BatchKeys`."""
    gradient: PRNGKeyArray
    """`Strategy.grads`."""
    after: PRNGKeyArray
    """`Strategy.after_step`."""
    score: PRNGKeyArray
    """`Strategy.before_evaluation` in prequential evaluation."""


Roles = TypeVar("Roles", SequenceKeys, TaskKeys, EpochKeys, StepKeys, BatchKeys)


def sequence_keys(key: PRNGKeyArray) -> SequenceKeys:
    """Return the roles of a sequence's key."""
    return _roles(SequenceKeys, key)


def task_keys(key: PRNGKeyArray, task: Number) -> TaskKeys:
    """Return the roles of a task's key, from the sequence's key and the task's number."""
    return _roles(TaskKeys, jax.random.fold_in(sequence_keys(key).tasks, task))


def epoch_keys(epochs: PRNGKeyArray, epoch: Number) -> EpochKeys:
    """Return the roles of an epoch's key, from its task's `epochs` and the epoch's number."""
    return _roles(EpochKeys, jax.random.fold_in(epochs, epoch))


def step_key(steps: PRNGKeyArray, step: Number) -> PRNGKeyArray:
    """Return a step's key, from its epoch's `steps` and the step's number."""
    return jax.random.fold_in(steps, step)


def update_keys(key: PRNGKeyArray) -> StepKeys:
    """Return the roles of the key of one update."""
    return _roles(StepKeys, key)


def batch_keys(key: PRNGKeyArray) -> BatchKeys:
    """Return the roles of the key by which a batch is completed."""
    return _roles(BatchKeys, key)


def _roles(kind: type[Roles], key: PRNGKeyArray) -> Roles:
    return kind(*jax.random.split(key, len(kind._fields)))
