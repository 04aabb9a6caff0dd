"""Learning from tasks that are drawn inside the program, so that thousands of them are one scan.

Neither the time of compilation nor the memory depends on the number of tasks or of steps; a task
leaves its mean loss and what is measured after it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Memory, Samples, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.evaluation import PROBE, measure
from everlight.continual.engine.keys import epoch_keys, sequence_keys, step_key, task_keys
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import same_kind, train_step


class TaskGenerator(NamedTuple):
    """Pure functions that draw tasks and their samples; the state is any tree of arrays."""

    begin: Callable[[PRNGKeyArray], Any]
    """Function that returns the state before the first task."""
    next_task: Callable[[Any, PRNGKeyArray], Any]
    """Function that returns the state of the next task."""
    draw: Callable[[Any, int, PRNGKeyArray], Samples]
    """Function that draws so many samples of the state's task."""


class GeneratedResult(NamedTuple):
    """Result of learning from generated tasks."""

    losses: Float[Array, "t"]
    """Mean loss of each task's batches, each before it was learned: the online error."""
    measured: PyTree
    """Results of `Setup.measure` after each task, with a leading axis over tasks; else empty."""
    memory: Memory
    learner: Learner


@checked
def learn_generated(
    setup: Setup,
    strategy: Strategy,
    generator: TaskGenerator,
    tasks: PositiveInt,
    steps: PositiveInt,
    key: PRNGKeyArray,
    batch_size: PositiveInt = 1,
    probe: PositiveInt = PROBE,
) -> GeneratedResult:
    """Learn from tasks that a generator draws, as one pure function for `jit` and `vmap`.

    Tasks have boundaries for the strategy. The optimizer is never reset, and every class counts as
    seen. There is no validation.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that learns. Its tasks hold the probe samples as training samples, from
        which importances are estimated.
      generator: functions that draw tasks and samples.
      tasks: number of tasks.
      steps: optimizer steps per task.
      key: random key of tasks, samples and learning.
      batch_size: samples per step.
      probe: samples per task, on whose outputs after the task `Setup.measure` is computed.
    """
    of_learning, of_tasks = jax.random.split(key)
    first, later = jax.random.split(of_tasks)
    roles = sequence_keys(of_learning)
    learner = init_learner(setup, 1, roles.learner)
    learner = learner._replace(seen=jnp.ones_like(learner.seen))
    memory = strategy.init(roles.memory, learner)

    def one_task(carry: tuple, number: Int[Array, ""]) -> tuple[tuple, tuple]:
        state, memory, learner = carry
        change, probes, draws = jax.random.split(jax.random.fold_in(later, number), 3)
        state = generator.next_task(state, change)
        samples = generator.draw(state, probe, probes)
        task = Task(samples, samples, learner.seen, number)
        keys = task_keys(of_learning, number)
        ready = memory, learner
        if strategy.begin_task is not None:
            ready = same_kind("begin_task", strategy.begin_task(*ready, task, keys.begin), ready)
        of_steps = epoch_keys(keys.epochs, 0).steps

        def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
            *learned, total = carry
            drawn = generator.draw(state, batch_size, jax.random.fold_in(draws, step))
            batch = Batch(
                drawn.index,
                drawn.labels,
                drawn.mask.astype(jnp.float32),
                jnp.zeros_like(drawn.mask),
            )
            own = jax.random.fold_in(step_key(of_steps, step), 0)
            *learned, loss = train_step(setup, strategy, *learned, batch, task, own)
            return *learned, total + loss.astype(jnp.float32)

        *learned, total = jax.lax.fori_loop(0, steps, one_step, (*ready, jnp.float32(0)))
        ready = tuple(learned)
        if strategy.end_task is not None:
            ready = same_kind("end_task", strategy.end_task(*ready, task, keys.end), ready)
        measured = () if setup.measure is None else measure(setup, ready[1], samples)
        return (state, *ready), (total / steps, measured)

    start = generator.begin(first), memory, learner
    (_, memory, learner), kept = jax.lax.scan(one_task, start, jnp.arange(tasks, dtype=jnp.int32))
    return GeneratedResult(*kept, memory, learner)
