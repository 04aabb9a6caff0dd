"""Learning from tasks that are drawn inside the program, so that thousands of them are one scan.

Neither the time of compilation nor the memory depends on the number of tasks or of steps; a task
leaves its mean loss and what is measured after it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Memory, Samples, Setup, Strategy, Task, TaskGenerator
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.evaluation import PROBE, gather_inputs, measure
from everlight.continual.engine.keys import epoch_keys, sequence_keys, step_key, task_keys
from everlight.continual.engine.tasks import init_learner, refuse_other_count
from everlight.continual.engine.updates import call_hook, train_step
from everlight.errors import Argument, ArgumentError

UNUSED = ("before_evaluation", "memory_training", "single_pass", "uses_past")
"""Fields of a strategy that tasks without epochs and stored samples do not use."""


class GeneratedResult(NamedTuple):
    """Result of learning from generated tasks."""

    losses: Float[Array, "t"]
    """Mean loss of each task's batches, each before it was learned: the online error."""
    prequential: Float[Array, "t"] | None
    """Mean of the objective's metric over each task's batches, each before it was learned: for
    classes the online accuracy. None unless it was requested."""
    tested: Float[Array, "t"] | None
    """Mean of the objective's metric over each task's test samples, after the task. None without
    test samples."""
    measured: PyTree
    """Results of `Setup.measure` after each task, with a leading axis over tasks; else empty."""
    memory: Memory
    learner: Learner


class TaskProgress(NamedTuple):
    """Memory and learner after some steps of a task, and sums over its batches."""

    memory: Memory
    learner: Learner
    loss: Float[Array, ""]
    metric: Float[Array, ""]


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
    prequential: bool = False,
) -> GeneratedResult:
    """Learn from tasks that a generator draws, as one pure function for `jit` and `vmap`.

    Tasks have boundaries for the strategy. The optimizer is never reset, and every class counts as
    seen. There is no validation, and steps learn from the drawn batches and `Strategy.draw` alone.

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
      prequential: true computes the objective's metric of each batch before it is learned.

    Raises:
      ValueError: there are more tasks than the generator has, or another number than the strategy
        was made for; or the strategy needs epochs, past samples or `before_evaluation`.
    """
    if generator.most_tasks is not None and tasks > generator.most_tasks:
        raise ArgumentError(
            Argument("tasks", tasks), remedy=(f"give {generator.most_tasks} or less",)
        )
    refuse_other_count(strategy, tasks)
    unused = [name for name in UNUSED if getattr(strategy, name)]
    if unused:
        raise ArgumentError(
            f"the strategy has {', '.join(unused)}, which generated tasks do not use; give one "
            "that learns from batches alone, or stored tasks to run_sequence"
        )
    key_learning, key_tasks = jax.random.split(key)
    first, later = jax.random.split(key_tasks)
    roles = sequence_keys(key_learning)
    learner = init_learner(setup, logit_count(setup), roles.learner)
    learner = learner._replace(seen=jnp.ones_like(learner.seen))
    memory = strategy.init(roles.memory, learner)
    _refuse_merged_epochs(strategy, generator, probe, memory, learner)

    def learn_task(carry: tuple, number: Int[Array, ""]) -> tuple[tuple, tuple]:
        state, memory, learner = carry
        change, probes, draws = jax.random.split(jax.random.fold_in(later, number), 3)
        state = generator.next_task(state, change)
        samples = generator.draw(state, probe, probes)
        task = Task(samples, samples, learner.seen, number)
        keys = task_keys(key_learning, number)
        if generator.renew is not None:
            learner = learner._replace(params=generator.renew(learner.params))
        learned = call_hook(strategy, "begin_task", (memory, learner), task, keys.begin)
        key_steps = epoch_keys(keys.epochs, 0).steps

        def learn_step(step: Int[Array, ""], progress: TaskProgress) -> TaskProgress:
            drawn = generator.draw(state, batch_size, jax.random.fold_in(draws, step))
            key_update = jax.random.fold_in(step_key(key_steps, step), 0)
            return learn_samples(setup, strategy, progress, task, drawn, key_update, prequential)

        start = TaskProgress(*learned, loss=jnp.float32(0), metric=jnp.float32(0))
        after = jax.lax.fori_loop(0, steps, learn_step, start)
        learned = call_hook(strategy, "end_task", (after.memory, after.learner), task, keys.end)
        tested = None
        if generator.test is not None:
            tested = mean_metric(setup, strategy, *learned, generator.test(state))
        measured = () if setup.measure is None else measure(setup, learned[1], samples)
        online = after.metric / steps if prequential else None
        return (state, *learned), (after.loss / steps, online, tested, measured)

    start = generator.begin(first), memory, learner
    (_, memory, learner), rows = jax.lax.scan(learn_task, start, jnp.arange(tasks, dtype=jnp.int32))
    return GeneratedResult(*rows, memory, learner)


def _refuse_merged_epochs(
    strategy: Strategy, generator: TaskGenerator, probe: int, memory: Memory, learner: Learner
) -> None:
    """Refuse a strategy whose epochs hold other samples besides the task's, of which none is drawn.

    Raises:
      ValueError: its epoch has more slots than the task.
    """

    def masks(key: PRNGKeyArray) -> tuple[Bool[Array, "_"], Bool[Array, "_"]]:
        samples = generator.draw(generator.next_task(generator.begin(key), key), probe, key)
        task = Task(samples, samples, learner.seen, jnp.int32(0))
        return strategy.epoch_data(memory, task).samples.mask, samples.mask

    epoch, drawn = jax.eval_shape(masks, jax.random.key(0))
    more = epoch.shape[0] - drawn.shape[0]
    if more > 0:
        raise ArgumentError(
            f"epoch_data of the strategy adds {more} samples to a task's, and generated tasks have "
            "no epochs; give a strategy that draws stored samples for every step, such as "
            "experience_replay, or stored tasks to run_sequence"
        )


def logit_count(setup: Setup) -> int:
    """Return the number of the network's logits, which are its classes."""

    def logits() -> Float[Array, "1 c"]:
        params, batch_stats = setup.init(jax.random.key(0))
        inputs = setup.gather(jnp.zeros(1, jnp.int32), None)
        return setup.apply(params, batch_stats, inputs, False, None)[0].logits

    return jax.eval_shape(logits).shape[1]


def learn_samples(
    setup: Setup,
    strategy: Strategy,
    progress: TaskProgress,
    task: Task,
    samples: Samples,
    key: PRNGKeyArray,
    prequential: bool,
) -> TaskProgress:
    """Return the progress after a step on samples, on which the metric may be measured before."""
    metric = progress.metric
    if prequential:
        metric += mean_metric(setup, strategy, progress.memory, progress.learner, samples)
    weight = samples.mask.astype(jnp.float32)
    batch = Batch(samples.index, samples.labels, weight, jnp.zeros_like(samples.mask))
    memory, learner, loss = train_step(
        setup, strategy, progress.memory, progress.learner, batch, task, key
    )
    return TaskProgress(memory, learner, progress.loss + loss.astype(jnp.float32), metric)


def mean_metric(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, samples: Samples
) -> Float[Array, ""]:
    """Return the mean of the objective's metric over samples."""
    scores = strategy.predict(memory, learner, gather_inputs(setup, samples.index, None))
    metric = setup.objective.metric(scores, samples.labels, learner.seen).astype(jnp.float32)
    return jnp.sum(jnp.where(samples.mask, metric, 0)) / jnp.maximum(jnp.sum(samples.mask), 1)
