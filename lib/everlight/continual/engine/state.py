"""A sequence's state, and the pure functions that bring it forward a task's beginning, an epoch or
a task's end: what a stopped sequence needs to go on, for one run or, stacked, for many.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import Epoch, Learner, Memory, Setup, Strategy, Task, TaskSequence
from everlight.continual.engine.evaluation import evaluate
from everlight.continual.engine.steps import (
    Best,
    Order,
    Progress,
    Protocol,
    Usage,
    begin_sequence,
    begin_task,
    close_epoch,
    close_task,
    count_steps,
    epoch_step,
    not_reached,
    open_epoch,
    stored_before,
    take_task,
    task_keys,
)

PROGRAMS = 8
"""Of how many builds a process keeps the compiled parts, the last ones; each may take 20 MB and
more."""

Build = Callable[[Any], tuple[Setup, Strategy]]
"""From the data on the device to the setup and the strategy; called while tracing, so that the
data are an argument of the compiled program and not a constant inside it."""

Announce = Callable[[Int[np.ndarray, "n"]], None]
"""Told the samples of an epoch, in their order, so that reading them can begin before its steps."""


class SequenceResult(NamedTuple):
    """What a sequence leaves; of tasks not reached yet, floats are NaN and others 0."""

    evaluation: PyTree
    """What the objective keeps of the test union after each task, with a leading axis over tasks:
    with softmax both accuracy matrices, `[i, j]` after task i on task j."""
    usage: Usage
    losses: Float[Array, "t e"]
    """Mean loss of every epoch's steps, without a strategy's penalty; NaN from where it diverged:
    a loss, the parameters after the epoch, its validation, or what the strategy keeps after the
    task's end (then in the task's last epoch)."""
    validation: Float[Array, "t e"]
    """In-task validation after every epoch; NaN where a task has no validation samples."""
    memory: Memory
    learner: Learner


class SequenceState(NamedTuple):
    """All that a stopped sequence needs to go on: its results so far, and where it is."""

    result: SequenceResult
    task: Int[Array, ""]
    """The task to go on with; the number of tasks at the end."""
    epoch: Int[Array, ""]
    """How many epochs of it are done; 0 is before its beginning."""
    best: Best | None
    """Its best epoch so far, where the protocol keeps that one."""


def begin_state(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceState:
    """The state before the first task."""
    tasks = sequence.tasks.id.shape[0]
    setup, strategy = build(data)
    start = begin_sequence(setup, strategy, protocol, sequence.class_task.shape[0], key)

    def first_row(memory: Memory, learner: Learner) -> PyTree:
        if strategy.before_evaluation is not None:
            memory, learner = strategy.before_evaluation(memory, learner, key)
        return evaluate(setup, strategy, memory, learner, sequence, protocol.evaluation_batch)

    kept = jax.eval_shape(first_row, start.memory, start.learner)
    evaluation = jax.tree.map(lambda leaf: not_reached((tasks, *leaf.shape), leaf.dtype), kept)
    curve = not_reached((tasks, protocol.most_epochs), jnp.float32)
    usage = Usage(*[jnp.zeros(tasks, jnp.int32)] * 2)
    result = SequenceResult(evaluation, usage, curve, curve, start.memory, start.learner)
    return SequenceState(result, jnp.int32(0), jnp.int32(0), start.best)


def begin_task_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
) -> SequenceState:
    """The state with its task begun."""
    setup, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)
    key_begin, usage = task_keys(key, state.task).begin, state.result.usage
    stored = stored_before(strategy, state.result.memory, task)
    usage = usage._replace(stored_samples=usage.stored_samples.at[state.task].set(stored))
    begun = begin_task(setup, strategy, protocol, progress_of(state), task, key_begin)
    return with_progress(state._replace(result=state.result._replace(usage=usage)), begun)


def open_epoch_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
) -> tuple[Epoch, Order]:
    """The samples of the state's next epoch, and their order."""
    _, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)
    return open_epoch(strategy, state.result.memory, task, epoch_key(key, state.task, state.epoch))


def learn_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Progress, Float[Array, ""], Float[Array, ""]]:
    """One epoch of a task, with its key; returns the steps' mean loss and the validation too."""
    opened = open_epoch(strategy, progress.memory, task, key)
    steps = count_steps(opened[1], protocol)

    def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
        progress, loss = epoch_step(setup, strategy, protocol, carry[0], opened, task, step, key)
        return progress, carry[1] + loss

    progress, total = jax.lax.fori_loop(0, steps, one_step, (progress, jnp.array(0.0)))
    progress, score = close_epoch(setup, strategy, protocol, progress, task, key)
    loss = nan_where_diverged(total / jnp.maximum(steps, 1), strategy, progress, task, score)
    return progress, loss, score


def learn_epochs(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
    epochs: Int[Array, ""],
) -> SequenceState:
    """The state after so many more epochs of its task, which is begun and has as many left."""
    setup, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)

    def one_epoch(_: Int[Array, ""], state: SequenceState) -> SequenceState:
        key_epoch = epoch_key(key, state.task, state.epoch)
        progress, loss, score = learn_epoch(
            setup, strategy, protocol, progress_of(state), task, key_epoch
        )
        return with_epoch(state, progress, loss, score)

    return jax.lax.fori_loop(0, epochs, one_epoch, state)


def close_epoch_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
    progress: Progress,
    loss: Float[Array, ""],
) -> SequenceState:
    """The state with an epoch closed whose steps led to `progress`."""
    setup, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)
    key_epoch = epoch_key(key, state.task, state.epoch)
    progress, score = close_epoch(setup, strategy, protocol, progress, task, key_epoch)
    loss = nan_where_diverged(loss, strategy, progress, task, score)
    return with_epoch(state, progress, loss, score)


def nan_where_diverged(
    loss: Float[Array, ""],
    strategy: Strategy,
    progress: Progress,
    task: Task,
    score: Float[Array, ""],
) -> Float[Array, ""]:
    """An epoch's loss; NaN where the parameters after it, or its validation, are not finite.

    The last step's loss is of the parameters before it.
    """
    validated = jnp.any(strategy.valid_data(progress.memory, task).mask)
    well = all_finite(progress.learner.params) & (jnp.isfinite(score) | ~validated)
    return jnp.where(well, loss, jnp.nan)


def nan_where_ended_badly(
    losses: Float[Array, "*e"], last: Int[Array, ""], progress: Progress
) -> Float[Array, "*e"]:
    """A task's losses; NaN at its last epoch where what its end left is not finite.

    Importances, gates and merged parameters are made there.
    """
    well = all_finite((progress.memory, progress.learner.params))
    return losses.at[last].set(jnp.where(well, losses[last], jnp.nan))


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether every number of every floating-point leaf is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def close_task_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
) -> SequenceState:
    """The state with its task ended and evaluated."""
    setup, strategy = build(data)
    task, result = take_task(strategy, protocol, sequence, state.task), state.result
    key_end = task_keys(key, state.task).end
    progress, kept = close_task(
        setup, strategy, protocol, progress_of(state), task, sequence, state.task, key_end
    )
    evaluation, steps = jax.tree.map(
        lambda every, new: every.at[state.task].set(new),
        (result.evaluation, result.usage.steps),
        (kept, progress.learner.step),
    )
    ended = nan_where_ended_badly(result.losses[state.task], state.epoch - 1, progress)
    losses = result.losses.at[state.task].set(ended)
    usage = result.usage._replace(steps=steps)
    state = state._replace(
        result=result._replace(evaluation=evaluation, usage=usage, losses=losses)
    )
    after = with_progress(state, progress)
    return after._replace(task=state.task + 1, epoch=jnp.zeros_like(state.epoch))


def progress_of(state: SequenceState) -> Progress:
    """What its next step begins from."""
    return Progress(state.result.memory, state.result.learner, state.best)


def with_progress(state: SequenceState, progress: Progress) -> SequenceState:
    """The state at another progress."""
    memory, learner, best = progress
    return state._replace(result=state.result._replace(memory=memory, learner=learner), best=best)


def with_epoch(
    state: SequenceState, progress: Progress, loss: Float[Array, ""], score: Float[Array, ""]
) -> SequenceState:
    """The state one epoch on, with its loss and validation."""
    at, result = (state.task, state.epoch), state.result
    losses, validation = result.losses.at[at].set(loss), result.validation.at[at].set(score)
    state = state._replace(result=result._replace(losses=losses, validation=validation))
    return with_progress(state, progress)._replace(epoch=state.epoch + 1)


def epoch_key(
    key: PRNGKeyArray, number: Int[Array, ""] | int, epoch: Int[Array, ""] | int
) -> PRNGKeyArray:
    """Of an epoch of a task."""
    return jax.random.fold_in(task_keys(key, number).epochs, epoch)
