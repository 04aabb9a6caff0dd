"""The parts of a task sequence that both drivers share; `train_step` is the only training step."""

from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
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


@dataclass(frozen=True)
class Protocol:
    """How every task is trained, whatever the strategy.

    Raises:
      ValueError: a count below 1, or a selection that there is not.
    """

    epochs: int = 10
    """Epochs a task."""
    first_epochs: int | None = None
    """Of the first task; None is as many as of any other."""
    batch_size: int = 32
    """Samples a step."""
    epoch_steps: int | None = None
    """Steps of an epoch, which then takes its samples round after round in one order; None is one
    round. With it tasks of any size take equally many steps."""
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

    def __post_init__(self):
        counts = ("epochs", "batch_size", "evaluation_batch", "first_epochs", "epoch_steps")
        for name in counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}; give 1 or more")
        if self.select not in ("best", "last"):
            raise ValueError(f"select={self.select!r}; choose 'best' or 'last'")

    @property
    def most_epochs(self) -> int:
        """Of any task."""
        return max(self.epochs, self.epochs_of(0))

    def epochs_of(self, task: int) -> int:
        """Of a task, counted from 0."""
        return self.epochs if task or self.first_epochs is None else self.first_epochs


class Usage(NamedTuple):
    """What learning took, as memory and computation are judged by (`metrics.cl_score`)."""

    steps: Int[Array, "t"]
    """Optimizer steps from the beginning of the sequence to the task's end."""
    stored_samples: Int[Array, "t"]
    """Samples of earlier tasks that were held while the task was learnt."""


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
        # All labels: an image may be there twice, once with fewer.
        return jax.random.bits(reduce(jax.random.fold_in, (index, *labels), key))

    drawn = jax.vmap(draw)(epoch.samples.index, epoch.samples.labels)
    mask = epoch.samples.mask
    return Order(jnp.lexsort((drawn, ~mask)), jnp.sum(mask))


def take_batch(
    epoch: Epoch, order: Order, step: Int[Array, ""], size: int, rounds: bool = False
) -> Batch:
    """The step's samples; those after the first round have weight 0, unless there are `rounds`."""
    position = step * size + jnp.arange(size)
    slot = order.slots[position % order.count]
    return Batch(
        epoch.samples.index[slot],
        epoch.samples.labels[slot],
        ((position < order.count) | rounds).astype(jnp.float32),
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
    rate = jnp.float32(1) if setup.task_rate is None else setup.task_rate(task.id)
    learner = learner._replace(seen=learner.seen | task.classes)
    memory, learner = strategy.begin_task(memory, learner, task, key)
    return memory, learner._replace(
        opt_state=setup.optimizer.init(learner.params),
        schedule=Plateau(rate, jnp.float32(-jnp.inf), jnp.int32(0)),
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
    """Steps of an epoch; none where it has no samples."""
    if protocol.epoch_steps is None:
        return -(-order.count // protocol.batch_size)
    return jnp.where(order.count > 0, protocol.epoch_steps, 0)


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
    rounds = protocol.epoch_steps is not None
    batch = take_batch(*opened, step, protocol.batch_size, rounds)
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
