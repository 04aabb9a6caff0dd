"""Tasks of a run: its state before the first task, and after the start and end of each.

Every function takes a run and its state. `run_sequence` and `drive_runs` call the same functions.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Memory, Plateau, Samples, Setup, Strategy, Task, TaskSequence
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.epochs import (
    ShuffledEpoch,
    best_candidate,
    learn_epoch,
    most_evaluations,
    open_epoch,
    strategy_protocol,
)
from everlight.continual.engine.evaluation import Measured, evaluate, measure
from everlight.continual.engine.keys import epoch_keys, sequence_keys, task_keys
from everlight.continual.engine.optimizer_check import check_optimizer
from everlight.continual.engine.placeholders import all_finite, nan_where, planned_epochs
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import (
    Best,
    Run,
    SequenceResult,
    SequenceState,
    StepEvaluations,
    Usage,
    with_learned,
)
from everlight.continual.engine.updates import call_hook
from everlight.errors import Argument, ArgumentError


def begin_state(run: Run) -> SequenceState:
    """Return the state before the first task.

    Raises:
      ValueError: the strategy needs task boundaries and the protocol has none.
    """
    setup, strategy = run.setup_and_strategy()
    protocol, sequence = run.protocol, run.sequence
    if strategy.needs_boundaries and not protocol.boundaries:
        raise ArgumentError(
            "the strategy acts at the start or end of a task, and the protocol has no boundaries; "
            "give Protocol(boundaries=True), or a strategy that learns without boundaries"
        )
    keys = sequence_keys(run.key)
    learner = init_learner(setup, sequence.class_task.shape[0], keys.learner)
    memory = strategy.init(keys.memory, learner)

    ready_row = partial(_ready_row, setup, strategy, run)
    row = jax.eval_shape(ready_row, (memory, learner), run.key)[1]

    def no_rows(*axes: int) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.zeros((*axes, *leaf.shape), leaf.dtype), row)

    evaluation, within_tasks = no_rows(run.tasks), None
    if protocol.evaluate_steps is not None:
        task = take_task(strategy, protocol, sequence, jnp.int32(0))
        samples = jax.eval_shape(strategy.epoch_data, memory, task).samples.mask.shape[0]
        axes = (
            run.tasks,
            protocol.most_epochs,
            most_evaluations(samples, strategy_protocol(strategy, protocol)),
        )
        within_tasks = StepEvaluations(no_rows(*axes), jnp.zeros(axes, jnp.int32))
    curve = jnp.zeros((run.tasks, protocol.most_epochs), jnp.float32)
    usage = Usage(*[jnp.zeros(run.tasks, jnp.int32)] * 2)
    prequential = curve if protocol.prequential else None
    result = SequenceResult(
        evaluation, usage, curve, curve, memory, learner, prequential, within_tasks
    )
    best = _initial_best(strategy, protocol, memory, learner)
    return SequenceState(result, jnp.int32(0), jnp.int32(0), best)


def initial_evaluation(run: Run) -> PyTree:
    """Return the objective's evaluation of all test samples before the first task.

    Raises:
      ValueError: as `begin_state`.
    """
    setup, strategy = run.setup_and_strategy()
    start = begin_state(run).result
    size = run.protocol.evaluation_batch
    return evaluate(setup, strategy, start.memory, start.learner, run.sequence, size)


@checked
def init_learner(setup: Setup, classes: PositiveInt, key: PRNGKeyArray) -> Learner:
    """Return a new learner, which has seen no class.

    Args:
      setup: network and optimizer.
      classes: number of all classes.
      key: random key of the initial parameters.

    Raises:
      ValueError: the optimizer needs more than gradients and parameters (`check_optimizer`).
    """
    params, batch_stats = setup.init(key)
    check_optimizer(setup.optimizer, params)
    return Learner(
        params=params,
        batch_stats=batch_stats,
        opt_state=setup.optimizer.init(params),
        step=jnp.int32(0),
        seen=jnp.zeros(classes, bool),
        schedule=Plateau(jnp.float32(1), jnp.float32(-jnp.inf), jnp.int32(0)),
    )


def begin_task(run: Run, state: SequenceState) -> SequenceState:
    """Return the state after the start of its task.

    The task's classes are seen from now on. Schedule and best epoch are reset, and the optimizer if
    the protocol asks for it.
    """
    setup, strategy = run.setup_and_strategy()
    protocol, result = run.protocol, state.result
    task = take_task(strategy, protocol, run.sequence, state.task)
    stored = result.usage.stored_samples.at[state.task].set(
        _count_stored(strategy, result.memory, task)
    )
    result = result._replace(usage=result.usage._replace(stored_samples=stored))
    state = state._replace(result=result)
    if not protocol.boundaries:
        return state
    learner = result.learner._replace(seen=result.learner.seen | task.classes)
    key = task_keys(run.key, state.task).begin
    memory, learner = call_hook(strategy, "begin_task", (result.memory, learner), task, key)
    if protocol.new_optimizer:
        rate = jnp.float32(1) if setup.task_rate is None else setup.task_rate(task.id)
        learner = learner._replace(
            opt_state=setup.optimizer.init(learner.params),
            schedule=Plateau(rate, jnp.float32(-jnp.inf), jnp.int32(0)),
        )
    best = _initial_best(strategy, protocol, memory, learner)
    return with_learned(state, memory, learner)._replace(best=best)


def next_epoch(run: Run, state: SequenceState) -> ShuffledEpoch:
    """Return the state's next epoch in its order."""
    _, strategy = run.setup_and_strategy()
    task = take_task(strategy, run.protocol, run.sequence, state.task)
    keys = epoch_keys(task_keys(run.key, state.task).epochs, state.epoch)
    return open_epoch(strategy, state.result.memory, task, keys.order, state.epoch)


def learn_epochs(run: Run, state: SequenceState, epochs: Int[Array, ""] | int) -> SequenceState:
    """Return the state after the given number of epochs of its task, which has begun."""
    setup, strategy = run.setup_and_strategy()
    task = take_task(strategy, run.protocol, run.sequence, state.task)
    key = task_keys(run.key, state.task).epochs

    def row_of(memory: Memory, learner: Learner, key: PRNGKeyArray) -> PyTree:
        return _ready_row(setup, strategy, run, (memory, learner), key)[1]

    def learn_one_epoch(_: Int[Array, ""], state: SequenceState) -> SequenceState:
        return learn_epoch(setup, strategy, run.protocol, state, task, key, row_of)

    return jax.lax.fori_loop(0, epochs, learn_one_epoch, state)


def end_task(run: Run, state: SequenceState) -> SequenceState:
    """Return the state after the end of its task and, if one is due, the evaluation.

    The next task continues from memory and learner that `Strategy.before_evaluation` returned.
    The evaluation's floats are NaN if the run diverged during the task or at its end. The loss of
    the last epoch is NaN if memory or parameters are not finite then: the end of a task computes
    importances, gates and merged parameters.
    """
    setup, strategy = run.setup_and_strategy()
    protocol, number, result = run.protocol, state.task, state.result
    task = take_task(strategy, protocol, run.sequence, number)
    keys = task_keys(run.key, number)
    reached = jnp.arange(run.tasks)[:, None] <= number
    reached &= planned_epochs(protocol, run.tasks)
    diverged = jnp.any(reached & ~jnp.isfinite(result.losses))
    memory, learner = selected_epoch(strategy, state)
    if protocol.boundaries:
        memory, learner = call_hook(strategy, "end_task", (memory, learner), task, keys.end)
    diverged |= ~all_finite((memory, learner.params))

    def evaluate_task() -> tuple[tuple[Memory, Learner], PyTree]:
        ready, row = _ready_row(setup, strategy, run, (memory, learner), keys.evaluation)
        return ready, nan_where(diverged, row)

    (memory, learner), row = _evaluate_if_due(run, number, evaluate_task, (memory, learner))
    evaluation = jax.tree.map(lambda rows, new: rows.at[number].set(new), result.evaluation, row)
    steps = result.usage.steps.at[number].set(learner.step)
    well, last = all_finite((memory, learner.params)), (number, state.epoch - 1)
    losses = result.losses.at[last].set(jnp.where(well, result.losses[last], jnp.nan))
    result = result._replace(
        evaluation=evaluation, usage=result.usage._replace(steps=steps), losses=losses
    )
    after = with_learned(state._replace(result=result), memory, learner)
    return after._replace(task=number + 1, epoch=jnp.zeros_like(state.epoch))


def selected_epoch(strategy: Strategy, state: SequenceState) -> tuple[Memory, Learner]:
    """Return memory and learner of the epoch that the protocol keeps.

    Without validation samples it is the last one.
    """
    memory, learner, best = state.result.memory, state.result.learner, state.best
    if best is None:
        return memory, learner
    validated = best.score > -jnp.inf
    selected = jax.tree.map(
        lambda best, last: jnp.where(validated, best, last),
        best,
        best_candidate(strategy, best.score, memory, learner),
    )
    learner = learner._replace(params=selected.params, batch_stats=selected.batch_stats)
    return (memory if strategy.after_step is None else selected.memory), learner


def _evaluate_if_due(
    run: Run,
    number: Int[Array, ""],
    evaluate_task: Callable[[], tuple[tuple[Memory, Learner], PyTree]],
    learned: tuple[Memory, Learner],
) -> tuple[tuple[Memory, Learner], PyTree]:
    """Return the result of an evaluation after a task; 0 and what was learned if none is due."""

    def skip_evaluation() -> tuple[tuple[Memory, Learner], PyTree]:
        row = jax.eval_shape(evaluate_task)[-1]
        return learned, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), row)

    interval = run.protocol.evaluate_every
    if interval == 1:
        return evaluate_task()
    due = (number + 1) % interval == 0
    return jax.lax.cond(due | (number == run.tasks - 1), evaluate_task, skip_evaluation)


def _ready_row(
    setup: Setup, strategy: Strategy, run: Run, learned: tuple[Memory, Learner], key: PRNGKeyArray
) -> tuple[tuple[Memory, Learner], PyTree]:
    """Return memory and learner made ready for evaluation, and its result."""
    ready = call_hook(strategy, "before_evaluation", learned, key)
    row = evaluate(setup, strategy, *ready, run.sequence, run.protocol.evaluation_batch)
    if setup.measure is None:
        return ready, row
    return ready, Measured(row, measure(setup, ready[1], run.sequence.test))


def _initial_best(
    strategy: Strategy, protocol: Protocol, memory: Memory, learner: Learner
) -> Best | None:
    if protocol.select == "last":
        return None
    return best_candidate(strategy, jnp.float32(-jnp.inf), memory, learner)


def _count_stored(strategy: Strategy, memory: Memory, task: Task) -> Int[Array, ""]:
    """Return the number of samples of earlier tasks in memory when a task starts."""
    if strategy.stored_samples is None:
        return jnp.int32(0)
    return strategy.stored_samples(memory, task).astype(jnp.int32)


def take_task(
    strategy: Strategy, protocol: Protocol, sequence: TaskSequence, number: Int[Array, ""]
) -> Task:
    """Return one task, with the samples of all tasks up to it for strategies that use them.

    Without boundaries, its classes and number are set to 0.

    Raises:
      ValueError: the strategy was made for another number of tasks.
    """
    refuse_other_count(strategy, sequence.tasks.id.shape[0])
    task = jax.tree.map(lambda leaf: _narrow_integers(leaf[number]), sequence.tasks)
    # The number itself is common to all runs of a `vmap`, and conditions on it stay conditional.
    task = task._replace(id=jnp.asarray(number, jnp.int32))
    if not protocol.boundaries:
        return task._replace(classes=jnp.zeros_like(task.classes), id=jnp.zeros_like(task.id))
    return with_past(sequence, task) if strategy.uses_past else task


def refuse_other_count(strategy: Strategy, tasks: int) -> None:
    """Refuse a strategy that was made for another number of tasks than the sequence has.

    Raises:
      ValueError: the numbers differ.
    """
    if strategy.tasks not in (None, tasks):
        raise ArgumentError(
            "the strategy was made with ",
            Argument("tasks", strategy.tasks),
            f", the sequence has {tasks}",
            remedy=("give ", Argument("tasks", tasks)),
        )


def _narrow_integers(leaf: Array) -> Array:
    """Return the leaf with integers of 32 bits, which memories hold for every default of JAX."""
    return leaf.astype(jnp.int32) if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf


def with_past(sequence: TaskSequence, task: Task) -> Task:
    """Return the task with the training and validation samples of all tasks up to it."""
    tasks = sequence.tasks

    def past_samples(samples: Samples) -> Samples:
        past_mask = samples.mask & (tasks.id <= task.id)[:, None]
        return jax.tree.map(
            lambda leaf: _narrow_integers(leaf.reshape(-1, *leaf.shape[2:])),
            samples._replace(mask=past_mask),
        )

    return task._replace(past=past_samples(tasks.train), past_valid=past_samples(tasks.valid))
