"""The engine: one training step, and two drivers that share it.

`run_sequence` compiles tasks, epochs and steps into one program, to be vmapped over seeds and
orders; `drive_sequence` is a Python loop over the same step that can be stopped and continued.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.continual.base import (
    Batch,
    Best,
    Epoch,
    Learner,
    Memory,
    Plateau,
    Samples,
    Setup,
    Strategy,
    Task,
)
from everlight.continual.objective import correct

Build = Callable[[Any], tuple[Setup, Strategy]]
"""From the data on the device to the setup and the strategy; called while tracing, so that the
data are an argument of the compiled program and not a constant inside it."""


class TaskSequence(NamedTuple):
    """Tasks with a leading axis, and the union of their test sets."""

    tasks: Task
    test: Samples
    test_task: Int[Array, "m"]
    """The task whose test set each test sample belongs to."""
    class_task: Int[Array, "c"]
    """The task that introduces each class."""


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


class Row(NamedTuple):
    """Accuracies on every task's test set, after some task: a row of the accuracy matrices."""

    class_incremental: Float[Array, "t"]
    """Among all classes seen so far."""
    task_aware: Float[Array, "t"]
    """Among the classes of the sample's own task, which is told."""


class SequenceResult(NamedTuple):
    """What a sequence leaves; `R[i, j]` is after task i, on task j."""

    accuracy: Row
    losses: Float[Array, "t e"]
    validation: Float[Array, "t e"]
    memory: Memory
    learner: Learner


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
        step=jnp.array(0),
        seen=jnp.zeros(classes, bool),
        schedule=Plateau(jnp.array(1.0), jnp.array(-jnp.inf), jnp.array(0)),
        best=Best(jnp.array(-jnp.inf), params, batch_stats),
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
        schedule=Plateau(jnp.array(1.0), jnp.array(-jnp.inf), jnp.array(0)),
        best=Best(jnp.array(-jnp.inf), learner.params, learner.batch_stats),
    )


def validate(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, samples: Samples, size: int
) -> Float[Array, ""]:
    """Mean goodness over samples; 0 without any."""
    count = samples.mask.shape[0]

    def add(step: Int[Array, ""], total: Float[Array, ""]) -> Float[Array, ""]:
        slot = step * size + jnp.arange(size)
        inside = slot < count
        slot = jnp.where(inside, slot, 0)
        kept = inside & samples.mask[slot]
        # Padding holds anything; the first sample of the data set stands in for it.
        index = jnp.where(kept, samples.index[slot], 0)
        scores = strategy.predict(memory, learner, setup.gather(index, None))
        labels = jnp.where(kept[:, None], samples.labels[slot], 0)
        good = setup.objective.goodness(scores, labels, learner.seen)
        return total + jnp.sum(jnp.where(kept, good, 0))

    # Samples come first in their array, so blocks of padding alone need no pass.
    last = jnp.max(jnp.where(samples.mask, jnp.arange(1, count + 1), 0), initial=0)
    total = jax.lax.fori_loop(0, -(-last // size), add, jnp.array(0.0))
    return total / jnp.maximum(jnp.sum(samples.mask), 1)


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
    """Goes back to the best epoch where the protocol says so, then lets the strategy finish."""
    if protocol.select == "best":
        learner = learner._replace(params=learner.best.params, batch_stats=learner.best.batch_stats)
    return strategy.end_task(memory, learner, task, key)


def accuracy_row(
    sequence: TaskSequence, scores: Float[Array, "m c"], seen: Bool[Array, "c"]
) -> Row:
    """Both accuracies on every task's test set from the scores of the whole test union."""
    label, mask = sequence.test.labels[:, 0], sequence.test.mask
    tasks = sequence.tasks.id.shape[0]
    member = (sequence.test_task == jnp.arange(tasks)[:, None]) & mask
    own = sequence.class_task == sequence.test_task[:, None]

    def per_task(among: Bool[Array, "*m c"]) -> Float[Array, "t"]:
        good = correct(scores, label, among)
        hits = jnp.sum(jnp.where(member, good, 0), axis=1)
        return hits / jnp.maximum(jnp.sum(member, axis=1), 1)

    return Row(per_task(seen), per_task(own))


def test_scores(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, test: Samples, size: int
) -> Float[Array, "m c"]:
    """Scores of the whole test union in one pass."""
    index = jnp.where(test.mask, test.index, 0)
    return jax.lax.map(
        lambda one: strategy.predict(memory, learner, setup.gather(one[None], None))[0],
        index,
        batch_size=size,
    )


def with_past(sequence: TaskSequence, task: Task) -> Task:
    """The task with the training samples of all tasks up to it."""
    every = sequence.tasks
    tasks, slots = every.train.mask.shape
    so_far = every.train.mask & (every.id <= task.id)[:, None]
    past = every.train._replace(mask=so_far)
    return task._replace(
        past=jax.tree.map(lambda leaf: leaf.reshape(tasks * slots, *leaf.shape[2:]), past)
    )


def run_sequence(
    build: Build, protocol: Protocol, data: Any, sequence: TaskSequence, key: PRNGKeyArray
) -> SequenceResult:
    """A whole sequence of tasks as one pure function; jit it, vmap it over keys or sequences.

    Args:
      build: from `data` to the setup and the strategy.
      protocol: epochs, batches, selection.
      data: what the setup gathers from.
      sequence: tasks and test union.
      key: of initial parameters, shuffles, augmentation and the strategy's own choices.
    """
    setup, strategy = build(data)
    key_init, key_memory, key_tasks = jax.random.split(key, 3)
    learner = init_learner(setup, sequence.class_task.shape[0], key_init)
    memory = strategy.init(key_memory, learner)

    def one_task(carry: tuple[Memory, Learner], task: Task) -> tuple:
        if strategy.uses_past:
            task = with_past(sequence, task)
        keys = jax.random.split(jax.random.fold_in(key_tasks, task.id), 3)
        carry = begin_task(setup, strategy, *carry, task, keys[0])

        def one_epoch(carry: tuple[Memory, Learner], number: Int[Array, ""]) -> tuple:
            memory, learner = carry
            key_epoch = jax.random.fold_in(keys[1], number)
            epoch = strategy.epoch_data(memory, task)
            order = shuffle(epoch, key_epoch)

            def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
                memory, learner, total = carry
                batch = take_batch(epoch, order, step, protocol.batch_size)
                key_step = jax.random.fold_in(key_epoch, step)
                memory, learner, loss = train_step(
                    setup, strategy, memory, learner, batch, task, key_step
                )
                return memory, learner, total + loss

            steps = -(-order.count // protocol.batch_size)
            memory, learner, total = jax.lax.fori_loop(
                0, steps, one_step, (memory, learner, jnp.array(0.0))
            )
            score = validate(
                setup, strategy, memory, learner, task.valid, protocol.evaluation_batch
            )
            learner = end_epoch(protocol, learner, score)
            return (memory, learner), (total / jnp.maximum(steps, 1), score)

        carry, (losses, scores) = jax.lax.scan(one_epoch, carry, jnp.arange(protocol.epochs))
        memory, learner = end_task(strategy, protocol, *carry, task, keys[2])
        tested = test_scores(
            setup, strategy, memory, learner, sequence.test, protocol.evaluation_batch
        )
        row = accuracy_row(sequence, tested, learner.seen)
        return (memory, learner), (row, losses, scores)

    (memory, learner), rows = jax.lax.scan(one_task, (memory, learner), sequence.tasks)
    return SequenceResult(*rows, memory, learner)
