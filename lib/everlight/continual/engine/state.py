"""State of a task sequence, and the pure functions that advance it.

They advance it by the start of a task, an epoch or the end of a task. A stopped sequence continues
from its state. The state belongs to one run or, stacked, to many.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import Epoch, Learner, Memory, Setup, Strategy, Task, TaskSequence
from everlight.continual.engine.evaluation import evaluate
from everlight.continual.engine.keys import epoch_keys, task_keys
from everlight.continual.engine.steps import (
    Best,
    EpochScores,
    Order,
    Progress,
    Protocol,
    StepScores,
    Usage,
    all_finite,
    begin_sequence,
    begin_task,
    close_epoch,
    close_task,
    count_steps,
    epoch_step,
    no_scores,
    not_reached,
    open_epoch,
    stored_before,
    take_task,
)

PROGRAMS = 8
"""Number of builds whose compiled parts a process caches; each may take 20 MB or more."""

Build = Callable[[Any], tuple[Setup, Strategy]]
"""Function from the data on the device to the setup and the strategy. It is called while tracing,
so that the data are an argument of the compiled program and not a constant inside it."""

Announce = Callable[[Int[np.ndarray, "n"]], None]
"""Function that receives the samples of an epoch, in order, so that reading can begin early."""


class SequenceResult(NamedTuple):
    """Result of a sequence; for tasks not reached yet, floats are NaN and others 0."""

    evaluation: PyTree
    """Result of the objective on the test union after each task, with a leading axis over tasks.
    With softmax it is both accuracy matrices, `[i, j]` after task i on task j. Floats are NaN from
    the task on in which the run diverged."""
    usage: Usage
    losses: Float[Array, "t e"]
    """Mean loss of every epoch's steps, without a strategy's penalty; NaN from the epoch on in
    which the run diverged. A run diverges if a loss, the parameters after the epoch, its validation
    or the strategy's memory after the task is not finite."""
    validation: Float[Array, "t e"]
    """Validation on the current task after every epoch; NaN without validation samples."""
    memory: Memory
    learner: Learner
    prequential: Float[Array, "t e"] | None = None
    """Mean metric of every epoch's batches, each before it was learned. With one epoch per task it
    is the prequential (online) accuracy. None unless `Protocol.prequential`."""


class SequenceState(NamedTuple):
    """State from which a stopped sequence continues: its results and its position."""

    result: SequenceResult
    task: Int[Array, ""]
    """Current task; the number of tasks at the end."""
    epoch: Int[Array, ""]
    """Number of finished epochs of the task; 0 before its start."""
    best: Best | None
    """Best epoch of the task so far; None unless the protocol keeps the best epoch."""


def begin_state(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceState:
    """Return the state before the first task."""
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
    prequential = curve if protocol.prequential else None
    learned = (start.memory, start.learner)
    result = SequenceResult(evaluation, usage, curve, curve, *learned, prequential)
    return SequenceState(result, jnp.int32(0), jnp.int32(0), start.best)


def begin_task_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
) -> SequenceState:
    """Return the state after the start of its task."""
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
    """Return the samples of the state's next epoch, and their order."""
    _, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)
    keys = epoch_keys(task_keys(key, state.task).epochs, state.epoch)
    return open_epoch(strategy, state.result.memory, task, keys.order)


def learn_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    key: PRNGKeyArray,
    epoch: Int[Array, ""],
) -> tuple[Progress, EpochScores]:
    """Learn one epoch of a task; `key` is the `epochs` of the task's keys."""
    keys = epoch_keys(key, epoch)
    opened = open_epoch(strategy, progress.memory, task, keys.order)
    steps = count_steps(opened[1], protocol)

    def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
        progress, scores = epoch_step(
            setup, strategy, protocol, carry[0], opened, task, step, keys.steps
        )
        return progress, jax.tree.map(jnp.add, carry[1], scores)

    progress, sums = jax.lax.fori_loop(0, steps, one_step, (progress, no_scores(protocol)))
    return _closed(setup, strategy, protocol, progress, task, sums, steps, keys.validation)


def _closed(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    sums: StepScores,
    steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Progress, EpochScores]:
    """Close an epoch, given its number of steps and the sums of their scores."""
    progress, score = close_epoch(setup, strategy, protocol, progress, task, key)
    loss = sums.loss / jnp.maximum(steps, 1)
    loss = nan_where_diverged(loss, strategy, progress, task, score)
    prequential = sums.prequential
    if prequential is not None:
        prequential = prequential[0] / jnp.maximum(prequential[1], 1)
    return progress, EpochScores(loss, score, prequential)


def learn_epochs(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
    epochs: Int[Array, ""],
) -> SequenceState:
    """Return the state after the given number of epochs of its task, which has begun."""
    setup, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)
    key_epochs = task_keys(key, state.task).epochs

    def one_epoch(_: Int[Array, ""], state: SequenceState) -> SequenceState:
        progress, scores = learn_epoch(
            setup, strategy, protocol, progress_of(state), task, key_epochs, state.epoch
        )
        return with_epoch(state, progress, scores)

    return jax.lax.fori_loop(0, epochs, one_epoch, state)


def close_epoch_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
    progress: Progress,
    sums: StepScores,
    steps: Int[Array, ""],
) -> SequenceState:
    """Return the state after an epoch, given its final `progress` and the sums of its scores."""
    setup, strategy = build(data)
    task = take_task(strategy, protocol, sequence, state.task)
    key_end = epoch_keys(task_keys(key, state.task).epochs, state.epoch).validation
    parts = (setup, strategy, protocol, progress, task, sums, steps, key_end)
    return with_epoch(state, *_closed(*parts))


def nan_where_diverged(
    loss: Float[Array, ""],
    strategy: Strategy,
    progress: Progress,
    task: Task,
    score: Float[Array, ""],
) -> Float[Array, ""]:
    """Return an epoch's loss; NaN if the parameters after it, or its validation, are not finite.

    The loss of the last step belongs to the parameters before that step.
    """
    validated = jnp.any(strategy.valid_data(progress.memory, task).mask)
    well = all_finite(progress.learner.params) & (jnp.isfinite(score) | ~validated)
    return jnp.where(well, loss, jnp.nan)


def nan_where_ended_badly(
    losses: Float[Array, "*e"], last: Int[Array, ""], progress: Progress
) -> Float[Array, "*e"]:
    """Return a task's losses; NaN at its last epoch if memory or parameters are not finite.

    The end of a task computes importances, gates and merged parameters.
    """
    well = all_finite((progress.memory, progress.learner.params))
    return losses.at[last].set(jnp.where(well, losses[last], jnp.nan))


def close_task_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
) -> SequenceState:
    """Return the state after the end of its task and the evaluation."""
    setup, strategy = build(data)
    task, result = take_task(strategy, protocol, sequence, state.task), state.result
    tasks, most = result.losses.shape
    before = jnp.arange(tasks)[:, None] <= state.task
    planned = jnp.arange(most) < epochs_of_each(protocol, tasks)[:, None]
    diverged = jnp.any(before & planned & ~jnp.isfinite(result.losses))
    parts = (task, sequence, state.task, task_keys(key, state.task), diverged)
    progress, kept = close_task(setup, strategy, protocol, progress_of(state), *parts)
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
    """Return the progress from which the state's next step starts."""
    return Progress(state.result.memory, state.result.learner, state.best)


def with_progress(state: SequenceState, progress: Progress) -> SequenceState:
    """Return the state with another progress."""
    memory, learner, best = progress
    return state._replace(result=state.result._replace(memory=memory, learner=learner), best=best)


def with_epoch(state: SequenceState, progress: Progress, scores: EpochScores) -> SequenceState:
    """Return the state after one more epoch, with its scores."""
    at, result = (state.task, state.epoch), state.result
    curves = EpochScores(result.losses, result.validation, result.prequential)
    curves = jax.tree.map(lambda curve, new: curve.at[at].set(new), curves, scores)
    result = result._replace(
        losses=curves.loss, validation=curves.validation, prequential=curves.prequential
    )
    state = state._replace(result=result)
    return with_progress(state, progress)._replace(epoch=state.epoch + 1)


def epochs_of_each(protocol: Protocol, tasks: int) -> Int[np.ndarray, "t"]:
    """Return the number of epochs of every task, `[tasks]`."""
    return np.array([protocol.epochs_of(task) for task in range(tasks)])


def evaluated_tasks(protocol: Protocol, tasks: int) -> Bool[np.ndarray, "t"]:
    """Return True for tasks after which the test union is evaluated, `[tasks]`."""
    number = np.arange(1, tasks + 1)
    return (number % protocol.evaluate_every == 0) | (number == tasks)


def give_out(protocol: Protocol, state: SequenceState) -> SequenceState:
    """Return the state in its public form, with NaN where nothing was measured.

    Inside programs these entries are 0, or -inf for a validation without samples. `jax_debug_nans`
    therefore finds only the NaN that training produces.
    """
    return _with_placeholders(protocol, state, jnp.nan)


def take_in(protocol: Protocol, state: SequenceState) -> SequenceState:
    """Return the internal form of a public state, the inverse of `give_out`."""
    return _with_placeholders(protocol, state, 0.0)


def _with_placeholders(protocol: Protocol, state: SequenceState, value: float) -> SequenceState:
    result = state.result
    curves = (result.losses, result.validation, result.prequential)
    # The check is for what training makes.
    with jax.debug_nans(False):
        evaluation, curves = _filled(
            protocol, state.task, state.epoch, result.evaluation, curves, value
        )
    losses, validation, prequential = curves
    return state._replace(
        result=result._replace(
            evaluation=evaluation, losses=losses, validation=validation, prequential=prequential
        )
    )


@partial(jax.jit, static_argnums=0)
def _filled(
    protocol: Protocol,
    task: Int[Array, ""],
    epoch: Int[Array, ""],
    evaluation: PyTree,
    curves: PyTree,
    value: Float[Array, ""],
) -> tuple[PyTree, PyTree]:
    """Return evaluation and curves with a value where nothing was measured; runs may lead."""
    tasks, most = curves[0].shape[-2:]
    planned = jnp.arange(most) < epochs_of_each(protocol, tasks)[:, None]
    number = jnp.arange(tasks)
    reached = number < task
    epochs = jnp.where(reached[:, None], most, jnp.where(number[:, None] == task, epoch, 0))
    measured = planned & (jnp.arange(most) < epochs)
    evaluated = reached & evaluated_tasks(protocol, tasks)
    lead = curves[0].ndim - 2

    def of_evaluation(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        rows = evaluated.reshape(*[1] * lead, tasks, *[1] * (leaf.ndim - lead - 1))
        return jnp.where(rows, leaf, value)

    curves = jax.tree.map(lambda leaf: jnp.where(measured, leaf, value), curves)
    losses, validation, prequential = curves
    missing = jnp.isneginf(validation) | jnp.isnan(validation)
    without = jnp.where(jnp.isnan(value), jnp.nan, -jnp.inf)
    validation = jnp.where(measured & missing, without, validation)
    return jax.tree.map(of_evaluation, evaluation), (losses, validation, prequential)
