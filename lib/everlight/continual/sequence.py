"""The engine: one training step, and two drivers that share it.

`run_sequence` compiles tasks, epochs and steps into one program, to be vmapped over seeds and
orders; `drive_sequence` is a Python loop over the same step that can be stopped and continued.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.continual.base import (
    Batch,
    Best,
    Epoch,
    Learner,
    Memory,
    Plateau,
    Setup,
    Strategy,
    Task,
    TaskSequence,
)
from everlight.continual.evaluation import predict_samples, validate

Build = Callable[[Any], tuple[Setup, Strategy]]
"""From the data on the device to the setup and the strategy; called while tracing, so that the
data are an argument of the compiled program and not a constant inside it."""


@dataclass(frozen=True)
class Protocol:
    """How every task is trained, whatever the strategy."""

    epochs: int = 10
    """Epochs a task."""
    batch_size: int = 32
    """Samples a step."""
    select: Literal["best", "last"] = "best"
    """Keep the epoch with the best in-task validation (early stopping), or the last."""
    plateau_factor: float = 1.0
    """The rate is multiplied by this when validation stands still; 1 leaves it."""
    plateau_patience: int = 10
    """Epochs without improvement before that."""
    plateau_threshold: float = 1e-3
    """What counts as improvement."""
    evaluation_batch: int = 256
    """Samples a forward pass in validation and evaluation."""


class Usage(NamedTuple):
    """What learning took, as memory and computation are judged by (`metrics.cl_score`)."""

    steps: Int[Array, "t"]
    """Optimizer steps from the beginning of the sequence to the task's end."""
    stored_samples: Int[Array, "t"]
    """Samples of earlier tasks that were held while the task was learnt."""


class SequenceResult(NamedTuple):
    """What a sequence leaves; of tasks not reached yet, floats are NaN and others 0."""

    evaluation: PyTree
    """What the objective keeps of the test union after each task, with a leading axis over tasks:
    with softmax both accuracy matrices, `[i, j]` after task i on task j."""
    usage: Usage
    losses: Float[Array, "t e"]
    """Mean loss of every epoch's steps; NaN where training diverged."""
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


def train_step(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    batch: Batch,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Memory, Learner, Float[Array, ""]]:
    """The only training step there is; returns the batch's loss too."""
    key_grads, key_after = jax.random.split(key)
    gradient, info = strategy.grads(memory, learner, batch, task, key_grads)
    update, opt_state = setup.optimizer.update(gradient, learner.opt_state, learner.params)
    update = jax.tree.map(lambda leaf: leaf * learner.schedule.factor, update)
    if setup.trainable is not None:
        keep = setup.trainable(learner.params)
        update = jax.tree.map(lambda leaf, kept: jnp.where(kept, leaf, 0), update, keep)
    learner = learner._replace(
        params=optax.apply_updates(learner.params, update),
        batch_stats=info.batch_stats,
        opt_state=opt_state,
        step=learner.step + 1,
    )
    memory, learner = strategy.after_step(memory, learner, info._replace(update=update), key_after)
    return memory, learner, info.loss


class Order(NamedTuple):
    """An epoch's slots in shuffled order, those with samples first, and how many these are."""

    slots: Int[Array, "n"]
    count: Int[Array, ""]


def shuffle(epoch: Epoch, key: PRNGKeyArray) -> Order:
    """A random order keyed by what the samples are, so that padding never changes it."""

    def draw(index: Int[Array, ""], labels: Int[Array, "k"]) -> Array:
        return jax.random.bits(jax.random.fold_in(jax.random.fold_in(key, index), labels[0]))

    drawn = jax.vmap(draw)(epoch.samples.index, epoch.samples.labels)
    mask = epoch.samples.mask
    return Order(jnp.lexsort((drawn, ~mask)), jnp.sum(mask))


def take_batch(epoch: Epoch, order: Order, step: Int[Array, ""], size: int) -> Batch:
    """The step's samples; a partial batch is filled with samples of the epoch at weight 0."""
    position = step * size + jnp.arange(size)
    slot = order.slots[position % order.count]
    return Batch(
        epoch.samples.index[slot],
        epoch.samples.labels[slot],
        (position < order.count).astype(jnp.float32),
        epoch.from_memory[slot],
    )


def init_learner(setup: Setup, classes: int, key: PRNGKeyArray) -> Learner:
    """A learner that has seen nothing."""
    params, batch_stats = setup.init(key)
    return Learner(
        params=params,
        batch_stats=batch_stats,
        opt_state=setup.optimizer.init(params),
        step=jnp.int32(0),
        seen=jnp.zeros(classes, bool),
        schedule=Plateau(jnp.float32(1), jnp.float32(-jnp.inf), jnp.int32(0)),
        best=Best(jnp.float32(-jnp.inf), params, batch_stats),
    )


def begin_task(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Memory, Learner]:
    """Makes the task's classes seen; optimizer, schedule and best epoch start anew."""
    learner = learner._replace(seen=learner.seen | task.classes)
    memory, learner = strategy.begin_task(memory, learner, task, key)
    return memory, learner._replace(
        opt_state=setup.optimizer.init(learner.params),
        schedule=Plateau(jnp.float32(1), jnp.float32(-jnp.inf), jnp.int32(0)),
        best=Best(jnp.float32(-jnp.inf), learner.params, learner.batch_stats),
    )


def end_epoch(protocol: Protocol, learner: Learner, score: Float[Array, ""]) -> Learner:
    """Keeps the best epoch and moves the learning rate."""
    better = score > learner.best.score
    best = jax.tree.map(
        lambda new, old: jnp.where(better, new, old),
        Best(score, learner.params, learner.batch_stats),
        learner.best,
    )
    schedule = learner.schedule
    improved = score > schedule.best + protocol.plateau_threshold
    stale = jnp.where(improved, 0, schedule.stale_epochs + 1)
    drop = stale > protocol.plateau_patience
    schedule = Plateau(
        jnp.where(drop, schedule.factor * protocol.plateau_factor, schedule.factor),
        jnp.where(improved, score, schedule.best),
        jnp.where(drop, 0, stale),
    )
    return learner._replace(best=best, schedule=schedule)


def end_task(
    strategy: Strategy,
    protocol: Protocol,
    memory: Memory,
    learner: Learner,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Memory, Learner]:
    """Goes back to the best epoch where the protocol says so, then lets the strategy finish.

    Without validation samples no epoch is better than another, and the last one stays.
    """
    if protocol.select == "best":
        validated = jnp.any(task.valid.mask)
        params, batch_stats = jax.tree.map(
            lambda best, last: jnp.where(validated, best, last),
            (learner.best.params, learner.best.batch_stats),
            (learner.params, learner.batch_stats),
        )
        learner = learner._replace(params=params, batch_stats=batch_stats)
    return strategy.end_task(memory, learner, task, key)


def take_task(strategy: Strategy, sequence: TaskSequence, number: Int[Array, ""]) -> Task:
    """One task; for a strategy that uses them with the training samples of all tasks up to it."""
    task = jax.tree.map(lambda leaf: leaf[number], sequence.tasks)
    return with_past(sequence, task) if strategy.uses_past else task


def with_past(sequence: TaskSequence, task: Task) -> Task:
    """The task with the training samples of all tasks up to it."""
    every = sequence.tasks
    tasks, slots = every.train.mask.shape
    so_far = every.train.mask & (every.id <= task.id)[:, None]
    past = every.train._replace(mask=so_far)
    return task._replace(
        past=jax.tree.map(lambda leaf: leaf.reshape(tasks * slots, *leaf.shape[2:]), past)
    )


class TaskKeys(NamedTuple):
    """The keys of one task's parts; an epoch's is folded from `epochs`, a step's from that."""

    begin: PRNGKeyArray
    epochs: PRNGKeyArray
    end: PRNGKeyArray


def task_keys(key: PRNGKeyArray, number: Int[Array, ""]) -> TaskKeys:
    """The keys of a task, from the sequence's."""
    return TaskKeys(*jax.random.split(jax.random.fold_in(key, number + 1), 3))


def begin_sequence(setup: Setup, strategy: Strategy, classes: int, key: PRNGKeyArray) -> tuple:
    """Memory and learner before the first task."""
    key_learner, key_memory = jax.random.split(jax.random.fold_in(key, 0))
    learner = init_learner(setup, classes, key_learner)
    return strategy.init(key_memory, learner), learner


def open_epoch(
    strategy: Strategy, memory: Memory, task: Task, key: PRNGKeyArray
) -> tuple[Epoch, Order]:
    """An epoch's samples and their order."""
    epoch = strategy.epoch_data(memory, task)
    return epoch, shuffle(epoch, key)


def count_steps(order: Order, protocol: Protocol) -> Int[Array, ""]:
    """Steps of an epoch."""
    return -(-order.count // protocol.batch_size)


def epoch_step(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    carry: tuple[Memory, Learner],
    opened: tuple[Epoch, Order],
    task: Task,
    step: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[tuple[Memory, Learner], Float[Array, ""]]:
    """Takes a step's batch from its epoch and trains on it; `key` is the epoch's."""
    batch = take_batch(*opened, step, protocol.batch_size)
    key_step = jax.random.fold_in(key, step)
    *carry, loss = train_step(setup, strategy, *carry, batch, task, key_step)
    return tuple(carry), loss


def close_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    carry: tuple[Memory, Learner],
    task: Task,
) -> tuple[tuple[Memory, Learner], Float[Array, ""]]:
    """Validates, keeps the best epoch and moves the schedule; returns the validation too."""
    memory, learner = carry
    score = validate(setup, strategy, memory, learner, task.valid, protocol.evaluation_batch)
    return (memory, end_epoch(protocol, learner, score)), score


def close_task(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    carry: tuple[Memory, Learner],
    task: Task,
    sequence: TaskSequence,
    key: PRNGKeyArray,
) -> tuple[tuple[Memory, Learner], tuple[PyTree, Usage]]:
    """Ends the task and evaluates on the test union."""
    held = (
        jnp.int32(0) if strategy.stored_samples is None else strategy.stored_samples(carry[0], task)
    )
    memory, learner = end_task(strategy, protocol, *carry, task, key)
    size = protocol.evaluation_batch
    scores = predict_samples(setup, strategy, memory, learner, sequence.test, size)
    kept = setup.objective.evaluate(sequence, scores, learner.seen)
    return (memory, learner), (kept, Usage(learner.step, held))


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

        def one_epoch(carry: tuple[Memory, Learner], epoch: Int[Array, ""]) -> tuple:
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
            return carry, (total / jnp.maximum(steps, 1), score)

        carry, (losses, scores) = jax.lax.scan(one_epoch, carry, jnp.arange(protocol.epochs))
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
) -> Iterator[SequenceState]:
    """The same sequence, step by step: yields its state after every epoch and every task.

    Any state that it yielded, given back with the same other arguments, continues it to the same
    bits. Compiled parts are kept for the next call with the same `build` and `protocol`.

    Args:
      build: from `data` to the setup and the strategy; compare `run_sequence`.
      protocol: epochs, batches, selection.
      data: what the setup gathers from.
      sequence: tasks and test union.
      key: of everything that is drawn.
      state: to go on from; None is the beginning.

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
        losses = []
        for step in range(int(count_steps(opened[1], protocol))):
            carry, loss = _epoch_step(*parts, task, epoch, step, carry, opened)
            losses.append(loss)
        _refuse_divergence(task, epoch, np.asarray(losses))
        state = _close_epoch(*parts, state, carry, jnp.mean(jnp.array(losses or [0.0])))
        if epoch + 1 == protocol.epochs:
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
    scores = jax.ShapeDtypeStruct((*sequence.test.mask.shape, *start[1].seen.shape), jnp.float32)
    kept = jax.eval_shape(setup.objective.evaluate, sequence, scores, start[1].seen)
    evaluation = jax.tree.map(lambda leaf: _not_reached((tasks, *leaf.shape), leaf.dtype), kept)
    curve = _not_reached((tasks, protocol.epochs), jnp.float32)
    usage = Usage(*[jnp.zeros(tasks, jnp.int32)] * 2)
    result = SequenceResult(evaluation, usage, curve, curve, *start)
    return SequenceState(result, jnp.int32(0), jnp.int32(0))


@_part
def _begin_task(build, protocol, data, sequence, key, number, carry):
    setup, strategy = build(data)
    task = take_task(strategy, sequence, number)
    return begin_task(setup, strategy, *carry, task, task_keys(key, number).begin)


@_part
def _open_epoch(build, protocol, data, sequence, key, number, epoch, memory):
    _, strategy = build(data)
    key_epoch = jax.random.fold_in(task_keys(key, number).epochs, epoch)
    return open_epoch(strategy, memory, take_task(strategy, sequence, number), key_epoch)


@_part
def _epoch_step(build, protocol, data, sequence, key, number, epoch, step, carry, opened):
    setup, strategy = build(data)
    key_epoch = jax.random.fold_in(task_keys(key, number).epochs, epoch)
    task = take_task(strategy, sequence, number)
    return epoch_step(setup, strategy, protocol, carry, opened, task, step, key_epoch)


@_part
def _close_epoch(build, protocol, data, sequence, key, state, carry, loss):
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
def _close_task(build, protocol, data, sequence, key, state):
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
