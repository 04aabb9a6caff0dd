"""The engine: two drivers of one set of parts.

`run_sequence` compiles tasks, epochs and steps into one program, to be vmapped over seeds and
orders; `drive_sequence` is a Python loop over the same step that can be stopped and continued.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import Epoch, Learner, Memory, Setup, Strategy, TaskSequence
from everlight.continual.evaluation import predict_samples
from everlight.continual.steps import (
    Order,
    Protocol,
    Usage,
    begin_sequence,
    begin_task,
    close_epoch,
    close_task,
    count_steps,
    epoch_step,
    open_epoch,
    take_task,
    task_keys,
)

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
    """Mean loss of every epoch's steps, without a strategy's penalty; NaN where it diverged."""
    validation: Float[Array, "t e"]
    """In-task validation after every epoch."""
    memory: Memory
    learner: Learner


class SequenceState(NamedTuple):
    """All that a stopped sequence needs to go on: its results so far, and where it is."""

    result: SequenceResult
    task: Int[Array, ""]
    """The task to go on with; the number of tasks at the end."""
    epoch: Int[Array, ""]
    """How many epochs of it are done; 0 is before its beginning."""


class DivergedError(FloatingPointError):
    """A loss that is no finite number; says in which task, epoch and step, counted from 0."""

    def __init__(self, task: int, epoch: int, step: int):
        super().__init__(f"the loss is not finite at task {task}, epoch {epoch}, step {step}")
        self.task, self.epoch, self.step = task, epoch, step


def run_sequence(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceResult:
    """A whole sequence of tasks as one pure function; jit it, vmap it over keys or sequences.

    Nothing can be raised inside: where training diverged, `losses` is NaN from there on.

    Args:
      build: from `data` to the setup and the strategy.
      protocol: epochs, batches, selection.
      data: what the setup gathers from.
      sequence: tasks and test union.
      key: of initial parameters, shuffles, augmentation and the strategy's own choices.
    """
    setup, strategy = build(data)
    start = begin_sequence(setup, strategy, sequence.class_task.shape[0], key)

    def one_task(carry: tuple[Memory, Learner], number: Int[Array, ""]) -> tuple:
        task, keys = take_task(strategy, sequence, number), task_keys(key, number)
        carry = begin_task(setup, strategy, *carry, task, keys.begin)

        def one_epoch(epoch: Int[Array, ""], reached: tuple) -> tuple:
            carry, losses, scores = reached
            key_epoch = jax.random.fold_in(keys.epochs, epoch)
            opened = open_epoch(strategy, carry[0], task, key_epoch)
            steps = count_steps(opened[1], protocol)

            def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
                learned, loss = epoch_step(
                    setup, strategy, protocol, carry[0], opened, task, step, key_epoch
                )
                return learned, carry[1] + loss

            carry, total = jax.lax.fori_loop(0, steps, one_step, (carry, jnp.array(0.0)))
            carry, score = close_epoch(setup, strategy, protocol, carry, task)
            loss = total / jnp.maximum(steps, 1)
            return carry, losses.at[epoch].set(loss), scores.at[epoch].set(score)

        epochs = jnp.where(number == 0, protocol.epochs_of(0), protocol.epochs)
        curve = _not_reached((protocol.most_epochs,), jnp.float32)
        carry, losses, scores = jax.lax.fori_loop(0, epochs, one_epoch, (carry, curve, curve))
        carry, closed = close_task(setup, strategy, protocol, carry, task, sequence, keys.end)
        return carry, (*closed, losses, scores)

    carry, rows = jax.lax.scan(one_task, start, jnp.arange(sequence.tasks.id.shape[0]))
    return SequenceResult(*rows, *carry)


def drive_sequence(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState | None = None,
    announce: Announce | None = None,
) -> Iterator[SequenceState]:
    """The same sequence, step by step: yields its state after every epoch and every task.

    Any state that it yielded, given back with the same other arguments, continues it to the same
    bits. Compiled parts are kept for the next call with the same function object as `build`
    and an equal `protocol`.

    Args:
      build: from `data` to the setup and the strategy; compare `run_sequence`.
      protocol: epochs, batches, selection.
      data: what the setup gathers from.
      sequence: tasks and test union.
      key: of everything that is drawn.
      state: to go on from; None is the beginning.
      announce: told once an epoch, before its first step; None is nobody.

    Raises:
      DivergedError: a loss that is not finite, at the end of its epoch.
    """
    tasks = sequence.tasks.id.shape[0]
    parts = (build, protocol, data, sequence, key)
    state = _begin_sequence(*parts) if state is None else state
    while (task := int(state.task)) < tasks:
        result, epoch = state.result, int(state.epoch)
        carry = (result.memory, result.learner)
        if epoch == 0:
            carry = _begin_task(*parts, task, carry)
        opened = _open_epoch(*parts, task, epoch, carry[0])
        if announce is not None:
            announce(_epoch_order(*opened))
        losses = []
        for step in range(int(count_steps(opened[1], protocol))):
            carry, loss = _epoch_step(*parts, task, epoch, step, carry, opened)
            losses.append(loss)
        _refuse_divergence(task, epoch, np.asarray(losses))
        state = _close_epoch(*parts, state, carry, jnp.mean(jnp.array(losses or [0.0])))
        if epoch + 1 >= protocol.epochs_of(task):
            state = _close_task(*parts, state)
        yield state


def initial_state(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceState:
    """The state before the first task, as shapes and dtypes: what a stored state is read into."""
    return jax.eval_shape(_begin_sequence, build, protocol, data, sequence, key)


def operations_per_step(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> float:
    """Floating-point operations of one training step, from the compiled step's cost analysis.

    Loops inside the step are counted once; the strategies here have none. What the backend's
    analysis leaves out stays out (random bits, data movement).
    """
    parts = (build, protocol, data, sequence, key)
    state = initial_state(*parts)
    carry = (state.result.memory, state.result.learner)
    opened = jax.eval_shape(_open_epoch, *parts, 0, 0, carry[0])
    step = _epoch_step.lower(*parts, 0, 0, 0, carry, opened).compile()
    return float(step.cost_analysis()["flops"])


def _epoch_order(epoch: Epoch, order: Order) -> Int[np.ndarray, "n"]:
    index, slots = np.asarray(epoch.samples.index), np.asarray(order.slots)
    return index[slots[: int(order.count)]]


def _not_reached(shape: tuple[int, ...], dtype: Any) -> Array:
    """NaN, or 0 where the type has none."""
    return jnp.full(shape, jnp.nan if jnp.issubdtype(dtype, jnp.floating) else 0, dtype)


def _refuse_divergence(task: int, epoch: int, losses: Float[np.ndarray, "n"]) -> None:
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise DivergedError(task, epoch, int(wrong[0]))


# The driver's compiled parts. What builds the program is static, so that a second sequence with
# the same setup compiles nothing.
_part = partial(jax.jit, static_argnums=(0, 1))


@_part
def _begin_sequence(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceState:
    tasks = sequence.tasks.id.shape[0]
    setup, strategy = build(data)
    start = begin_sequence(setup, strategy, sequence.class_task.shape[0], key)
    predict = partial(predict_samples, setup, strategy, size=protocol.evaluation_batch)
    scores = jax.eval_shape(predict, *start, sequence.test)
    kept = jax.eval_shape(setup.objective.evaluate, sequence, scores, start[1].seen)
    evaluation = jax.tree.map(lambda leaf: _not_reached((tasks, *leaf.shape), leaf.dtype), kept)
    curve = _not_reached((tasks, protocol.most_epochs), jnp.float32)
    usage = Usage(*[jnp.zeros(tasks, jnp.int32)] * 2)
    result = SequenceResult(evaluation, usage, curve, curve, *start)
    return SequenceState(result, jnp.int32(0), jnp.int32(0))


@_part
def _begin_task(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    number: Int[Array, ""] | int,
    carry: tuple[Memory, Learner],
) -> tuple[Memory, Learner]:
    setup, strategy = build(data)
    task = take_task(strategy, sequence, number)
    return begin_task(setup, strategy, *carry, task, task_keys(key, number).begin)


@_part
def _open_epoch(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    number: Int[Array, ""] | int,
    epoch: Int[Array, ""] | int,
    memory: Memory,
) -> tuple[Epoch, Order]:
    _, strategy = build(data)
    key_epoch = jax.random.fold_in(task_keys(key, number).epochs, epoch)
    return open_epoch(strategy, memory, take_task(strategy, sequence, number), key_epoch)


@_part
def _epoch_step(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    number: Int[Array, ""] | int,
    epoch: Int[Array, ""] | int,
    step: Int[Array, ""] | int,
    carry: tuple[Memory, Learner],
    opened: tuple[Epoch, Order],
) -> tuple[tuple[Memory, Learner], Float[Array, ""]]:
    setup, strategy = build(data)
    key_epoch = jax.random.fold_in(task_keys(key, number).epochs, epoch)
    task = take_task(strategy, sequence, number)
    return epoch_step(setup, strategy, protocol, carry, opened, task, step, key_epoch)


@_part
def _close_epoch(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
    carry: tuple[Memory, Learner],
    loss: Float[Array, ""],
) -> SequenceState:
    setup, strategy = build(data)
    task = take_task(strategy, sequence, state.task)
    (memory, learner), score = close_epoch(setup, strategy, protocol, carry, task)
    at, result = (state.task, state.epoch), state.result
    result = result._replace(
        losses=result.losses.at[at].set(loss),
        validation=result.validation.at[at].set(score),
        memory=memory,
        learner=learner,
    )
    return SequenceState(result, state.task, state.epoch + 1)


@_part
def _close_task(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState,
) -> SequenceState:
    setup, strategy = build(data)
    task, result = take_task(strategy, sequence, state.task), state.result
    key_end = task_keys(key, state.task).end
    carry = (result.memory, result.learner)
    (memory, learner), closed = close_task(
        setup, strategy, protocol, carry, task, sequence, key_end
    )
    evaluation, usage = jax.tree.map(
        lambda every, new: every.at[state.task].set(new), (result.evaluation, result.usage), closed
    )
    result = result._replace(evaluation=evaluation, usage=usage, memory=memory, learner=learner)
    return SequenceState(result, state.task + 1, jnp.zeros_like(state.epoch))
