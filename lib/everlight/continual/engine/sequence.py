"""Two ways to train on a sequence of tasks, built from the same parts.

`run_sequence` compiles tasks, epochs and steps into one program, which can be vmapped over seeds
and task orders. `drive_sequence` is a Python loop over the same step that can stop and continue.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import checked
from everlight.continual.base import Epoch, Setup, Strategy, TaskSequence
from everlight.continual.engine.entry import refuse_unfit
from everlight.continual.engine.keys import epoch_keys, task_keys
from everlight.continual.engine.state import (
    PROGRAMS,
    Announce,
    Build,
    SequenceResult,
    SequenceState,
    begin_state,
    begin_task_state,
    close_epoch_state,
    close_task_state,
    epochs_of_each,
    evaluated_tasks,
    give_out,
    learn_epoch,
    nan_where_ended_badly,
    open_epoch_state,
    progress_of,
    take_in,
)
from everlight.continual.engine.steps import (
    EpochScores,
    Order,
    Progress,
    Protocol,
    StepScores,
    Usage,
    begin_sequence,
    begin_task,
    close_task,
    count_steps,
    epoch_step,
    no_scores,
    not_reached,
    stored_before,
    take_task,
)


class DivergedError(FloatingPointError):
    """Error for a loss, validation or parameters that are not finite.

    Attributes:
      task, epoch: task and epoch, from 0, in which training diverged.
      step: step of the loss that is not finite; None if it is not a loss.
    """

    def __init__(self, task: int, epoch: int, step: int | None, what: str = "the loss is"):
        place = "" if step is None else f", step {step}"
        super().__init__(f"{what} not finite at task {task}, epoch {epoch}{place}")
        self.task, self.epoch, self.step = task, epoch, step


@checked
def run_sequence(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceResult:
    """Train on a whole sequence of tasks, as one pure function for `jit` and `vmap`.

    If training diverges, `losses` and the floats of `evaluation` are NaN from there on, since
    compiled code cannot raise. Give data as arguments of `jit`: data in a closure become constants
    of the program.

    Args:
      build: function from `data` to the setup and the strategy.
      protocol: epochs, batches and selection of the best epoch.
      data: data from which the setup gathers inputs.
      sequence: tasks and test union.
      key: random key of any implementation, for initial parameters, shuffles, augmentation and the
        strategy's choices (module `keys`).

    Raises:
      ValueError: the best epoch is to be kept and a task has no validation samples; the strategy
        needs boundaries and the protocol has none; the sequence does not fit the images; or images
        are not finite (`refuse_unfit`). Traced values cannot be checked: without validation samples
        the last epoch is then kept, and its `validation` is NaN.
    """
    refuse_unfit(protocol, data, sequence)
    setup, strategy = build(data)
    start = begin_sequence(setup, strategy, protocol, sequence.class_task.shape[0], key)

    def one_task(carry: tuple, number: Int[Array, ""]) -> tuple:
        progress, diverged = carry
        task, keys = take_task(strategy, protocol, sequence, number), task_keys(key, number)
        stored = stored_before(strategy, progress.memory, task)
        progress = begin_task(setup, strategy, protocol, progress, task, keys.begin)

        def one_epoch(epoch: Int[Array, ""], reached: tuple) -> tuple:
            progress, curves = reached
            progress, scores = learn_epoch(
                setup, strategy, protocol, progress, task, keys.epochs, epoch
            )
            return progress, jax.tree.map(lambda each, new: each.at[epoch].set(new), curves, scores)

        epochs = jnp.where(number == 0, protocol.epochs_of(0), protocol.epochs)
        curve = not_reached((protocol.most_epochs,), jnp.float32)
        curves = EpochScores(curve, curve, curve if protocol.prequential else None)
        progress, curves = jax.lax.fori_loop(0, epochs, one_epoch, (progress, curves))
        diverged |= ~jnp.all(jnp.isfinite(curves.loss))
        parts = (task, sequence, number, keys, diverged)
        progress, kept = close_task(setup, strategy, protocol, progress, *parts)
        losses = nan_where_ended_badly(curves.loss, epochs - 1, progress)
        usage = Usage(progress.learner.step, stored)
        after = progress, diverged | ~jnp.all(jnp.isfinite(losses))
        return after, (kept, usage, curves._replace(loss=losses))

    tasks = sequence.tasks.id.shape[0]
    (progress, _), (evaluation, usage, curves) = jax.lax.scan(
        one_task, (start, jnp.array(False)), jnp.arange(tasks, dtype=jnp.int32)
    )
    return _given_out(protocol, progress, evaluation, usage, curves)


def _given_out(
    protocol: Protocol, progress: Progress, evaluation: PyTree, usage: Usage, curves: EpochScores
) -> SequenceResult:
    """Return the result in its public form, with NaN where nothing was measured."""
    tasks, most = curves.loss.shape
    planned = np.arange(most) < epochs_of_each(protocol, tasks)[:, None]
    if not planned.all():
        curves = jax.tree.map(lambda leaf: jnp.where(planned, leaf, jnp.nan), curves)
    measured = evaluated_tasks(protocol, tasks)
    if not measured.all():
        evaluation = jax.tree.map(
            lambda leaf: (
                leaf.at[~measured].set(jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
            ),
            evaluation,
        )
    validation = jnp.where(jnp.isneginf(curves.validation), jnp.nan, curves.validation)
    memory, learner, _ = progress
    return SequenceResult(
        evaluation, usage, curves.loss, validation, memory, learner, curves.prequential
    )


@checked
def drive_sequence(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    state: SequenceState | None = None,
    announce: Announce | None = None,
) -> Iterator[SequenceState]:
    """Train on a sequence step by step; yields its state after every epoch and the end of a task.

    Training continues from any yielded state with bit-identical results, if the other arguments are
    the same. Compiled parts are cached for calls with the same function object `build` and an equal
    `protocol`; the cache holds the last `PROGRAMS` of them.

    Args:
      build: function from `data` to the setup and the strategy, as for `run_sequence`.
      protocol: epochs, batches and selection of the best epoch.
      data: data from which the setup gathers inputs.
      sequence: tasks and test union.
      key: random key of initial parameters, shuffles, augmentation and the strategy's choices.
      state: state to continue from; None starts from the beginning.
      announce: function called once per epoch, before its first step; None is no call.

    Raises:
      DivergedError: a loss, parameters, a validation or the strategy's memory is not finite. It is
        raised at the end of that epoch.
      ValueError: an error of `run_sequence`.
    """
    refuse_unfit(protocol, data, sequence)
    tasks = sequence.tasks.id.shape[0]
    parts, given = _compiled(build, protocol), (data, sequence, key)
    if state is None:
        state = parts.begin_sequence(*given)
    elif int(state.task) == tasks:
        yield state
        return
    else:
        state = take_in(protocol, state)
    while (task := int(state.task)) < tasks:
        epoch = int(state.epoch)
        if epoch == 0:
            state = parts.begin_task(*given, state)
        # A copy, which every step takes back for the next one; the state stays the caller's.
        progress = jax.device_put(progress_of(state), may_alias=False)
        opened = parts.open_epoch(*given, state)
        if announce is not None:
            announce(_order_of(*opened))
        scores = []
        for step in range(int(count_steps(opened[1], protocol))):
            progress, found = parts.epoch_step(*given, task, epoch, step, progress, opened)
            scores.append(found)
        _refuse_divergence(task, epoch, np.asarray([each.loss for each in scores]))
        sums = jax.tree.map(lambda *leaves: sum(leaves), no_scores(protocol), *scores)
        state = parts.close_epoch(*given, state, progress, sums, len(scores))
        _refuse_nan(task, epoch, state, "parameters or validation are")
        if epoch + 1 >= protocol.epochs_of(task):
            state = parts.close_task(*given, state)
            _refuse_nan(task, epoch, state, "what the strategy made at the task's end is")
        yield give_out(protocol, state)


@checked
def initial_state(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray | jax.ShapeDtypeStruct,
) -> SequenceState:
    """Return shapes and dtypes of the state before the first task, to read a stored state.

    Arguments may be shapes and dtypes too (`jax.ShapeDtypeStruct`).
    """
    return jax.eval_shape(partial(begin_state, build, protocol), data, sequence, key)


@checked
def lower_step(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray | jax.ShapeDtypeStruct,
) -> jax.stages.Lowered:
    """Return one training step, traced but neither compiled nor run.

    Its `.compile()` compiles ahead of time and reports memory and cost. Arguments may be shapes and
    dtypes (`jax.ShapeDtypeStruct`), also with shardings over devices that do not exist here.
    """
    parts, given = _compiled(build, protocol), (data, sequence, key)
    state = initial_state(build, protocol, *given)
    progress, opened = progress_of(state), jax.eval_shape(parts.open_epoch, *given, state)
    placed = {leaf.sharding for leaf in jax.tree.leaves(data) if getattr(leaf, "sharding", None)}
    if len(placed) == 1:
        (sharding,) = placed
        progress, opened = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            (progress, opened),
        )
    return parts.epoch_step.lower(*given, 0, 0, 0, progress, opened)


@checked
def operations_per_step(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> float:
    """Return the floating-point operations of one training step, by XLA's cost analysis.

    On CPU the traced program is analysed, which takes 5% of the time of compiling and differs by 1
    to 2%. Accelerators' plugins analyse compiled programs alone. Loops inside the step are counted
    once (GEM's quadratic program). Random bits and data movement are not counted. For a strategy
    that trains on memory alone (`Strategy.on_memory`), the step is one on memory.
    """
    on_memory = build(data)[1].on_memory
    if on_memory is None:
        lowered = lower_step(build, protocol, data, sequence, key)
    else:

        def memory_build(data: Any) -> tuple[Setup, Strategy]:
            setup, strategy = build(data)
            return setup, strategy.on_memory[0]

        of_memory = replace(protocol, batch_size=on_memory[1])
        lowered = lower_step(memory_build, of_memory, data, sequence, key)
    found = lowered.cost_analysis() or lowered.compile().cost_analysis()
    return float(found["flops"])


def _order_of(epoch: Epoch, order: Order) -> Int[np.ndarray, "n"]:
    index, slots = np.asarray(epoch.samples.index), np.asarray(order.slots)
    return index[slots[: int(order.count)]]


def _refuse_divergence(task: int, epoch: int, losses: Float[np.ndarray, "n"]) -> None:
    wrong = np.flatnonzero(~np.isfinite(losses))
    if len(wrong):
        raise DivergedError(task, epoch, int(wrong[0]))


def _refuse_nan(task: int, epoch: int, state: SequenceState, what: str) -> None:
    if not np.isfinite(state.result.losses[task, epoch]):
        raise DivergedError(task, epoch, None, what)


class _Parts(NamedTuple):
    begin_sequence: Callable[..., SequenceState]
    begin_task: Callable[..., SequenceState]
    open_epoch: Callable[..., tuple[Epoch, Order]]
    epoch_step: Any
    close_epoch: Callable[..., SequenceState]
    close_task: Callable[..., SequenceState]


@lru_cache(PROGRAMS)
def _compiled(build: Build, protocol: Protocol) -> _Parts:
    """Return the compiled parts, cached for further sequences with the same build."""
    parts = (begin_state, begin_task_state, open_epoch_state, _epoch_step)
    parts += (close_epoch_state, close_task_state)
    return _Parts(
        *(
            jax.jit(partial(part, build, protocol), donate_argnums=_DONATED.get(part, ()))
            for part in parts
        )
    )


def _epoch_step(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    number: Int[Array, ""] | int,
    epoch: Int[Array, ""] | int,
    step: Int[Array, ""] | int,
    progress: Progress,
    opened: tuple[Epoch, Order],
) -> tuple[Progress, StepScores]:
    setup, strategy = build(data)
    task = take_task(strategy, protocol, sequence, jnp.int32(number))
    key_steps = epoch_keys(task_keys(key, number).epochs, epoch).steps
    return epoch_step(setup, strategy, protocol, progress, opened, task, step, key_steps)


_DONATED = {_epoch_step: 6, close_epoch_state: 4}
"""Position of the donated argument after build and protocol: an epoch's progress."""
