"""The parts of a task sequence that both drivers share; `train_step` is the only training step."""

from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Count, NotNegative, Place, Positive, check_fields, checked
from everlight.continual.base import (
    Batch,
    Epoch,
    Learner,
    Memory,
    Plateau,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
    TaskSequence,
)
from everlight.continual.engine.evaluation import evaluate, gathered, validate
from everlight.continual.objectives.many_labels import multi_hot


@dataclass(frozen=True)
class Protocol:
    """How every task is trained, whatever the strategy.

    Raises:
      ValueError: a count below 1, a rate's factor that is not positive, a selection that there is
        not, or of the best epoch of tasks
        without boundaries.
    """

    epochs: Count = 10
    """Epochs a task."""
    first_epochs: Count | None = None
    """Of the first task; None is as many as of any other."""
    batch_size: Count = 32
    """Samples a step."""
    epoch_steps: Count | None = None
    """Steps of an epoch, which then takes its samples round after round in one order; None is one
    round. With it tasks of any size take equally many steps."""
    select: Literal["best", "last"] = "best"
    """Keep the epoch with the best in-task validation (early stopping), of equals the last; or the
    last of all."""
    plateau_factor: Positive = 1.0
    """The rate is multiplied by this when validation stands still; 1 leaves it."""
    plateau_patience: Place = 10
    """Epochs without improvement before that."""
    plateau_threshold: NotNegative = 1e-3
    """What counts as improvement."""
    evaluation_batch: Count = 256
    """Samples a forward pass in validation and evaluation."""
    evaluate_every: Count = 1
    """Tasks between two evaluations on the test union; there is always one after the last."""
    new_optimizer: bool = True
    """Whether optimizer and schedule begin anew at every task."""
    boundaries: bool = True
    """Whether anything tells where a task ends. Without, tasks are but the pieces of a stream
    between which it is evaluated: strategies are called at every step alone, a class is seen once
    a sample of it has arrived, and the optimizer goes on."""

    def __post_init__(self):
        check_fields(self)
        if self.select == "best" and not self.boundaries:
            raise ValueError("select='best' needs boundaries; choose 'last' for a stream without")

    @property
    def most_epochs(self) -> int:
        """Of any task."""
        return max(self.epochs, self.epochs_of(0))

    def epochs_of(self, task: int) -> int:
        """Of a task, counted from 0."""
        return self.epochs if task or self.first_epochs is None else self.first_epochs


@checked
def online_protocol(batch_size: Count = 10) -> Protocol:
    """One pass over a stream without boundaries (Aljundi et al. 2019, Buzzega et al. 2020).

    Args:
      batch_size: samples a step; 10 in the literature.
    """
    return Protocol(epochs=1, batch_size=batch_size, select="last", boundaries=False)


class Usage(NamedTuple):
    """What learning took, as memory and computation are judged by (`metrics.cl_score`)."""

    steps: Int[Array, "t"]
    """Optimizer steps from the beginning of the sequence to the task's end."""
    stored_samples: Int[Array, "t"]
    """Samples of earlier tasks that were held when the task began."""


class Best(NamedTuple):
    """The best epoch of the present task by its validation score, and all that belongs to it."""

    score: Float[Array, ""]
    memory: Memory
    """Where steps change it; else nothing."""
    params: PyTree
    batch_stats: PyTree


class Progress(NamedTuple):
    """What goes from step to step."""

    memory: Memory
    learner: Learner
    best: Best | None
    """None where the protocol keeps the last epoch, so that nothing is held twice."""


@checked
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
    key_batch, key_grads, key_after = jax.random.split(key, 3)
    batch = complete_batch(setup, strategy, memory, batch, task, key_batch)
    returned = strategy.grads(memory, learner, batch, task, key_grads)
    if not (isinstance(returned, tuple) and isinstance(returned[-1], StepInfo)):
        raise TypeError(f"grads gave {type(returned).__name__}; it must give (gradient, StepInfo)")
    gradient, info = returned
    update, opt_state = setup.optimizer.update(gradient, learner.opt_state, learner.params)
    update = jax.tree.map(lambda leaf: leaf * learner.schedule.factor, update)
    update = trainable_part(setup, learner.params, update)
    learner = learner._replace(
        params=optax.apply_updates(learner.params, update),
        batch_stats=info.batch_stats,
        opt_state=opt_state,
        step=learner.step + 1,
    )
    if strategy.after_step is not None:
        info = info._replace(batch=batch, update=update)
        after = strategy.after_step(memory, learner, info, key_after)
        memory, learner = same_kind("after_step", after, (memory, learner))
    return memory, learner, info.loss


def complete_batch(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    batch: Batch,
    task: Task,
    key: PRNGKeyArray,
) -> Batch:
    """The batch with its inputs, and with what the strategy draws from memory for the step."""
    key_own, key_draw, key_replay = jax.random.split(key, 3)
    batch = with_inputs(setup, batch, key_own)
    if strategy.draw is None:
        return batch
    leaves, tree = jax.tree.flatten(strategy.draw(memory, batch, task, key_draw), is_leaf=_is_batch)
    if not any(map(_is_batch, leaves)):
        raise TypeError("draw gave no Batch, so there is nothing to fill in (memory.draw_batch)")
    for place, leaf in enumerate(leaves):
        if _is_batch(leaf):
            leaves[place] = with_inputs(setup, leaf, jax.random.fold_in(key_replay, place))
    return batch._replace(replay=jax.tree.unflatten(tree, leaves))


def with_inputs(setup: Setup, batch: Batch, key: PRNGKeyArray) -> Batch:
    """The batch, or a stack of them, with the inputs of its samples, augmented by the key."""
    inputs = gathered(setup, batch.index.reshape(-1), key)
    return batch._replace(inputs=inputs.reshape(*batch.index.shape, *inputs.shape[1:]))


def same_kind(name: str, returned: Any, given: tuple[Memory, Learner]) -> tuple[Memory, Learner]:
    """What a strategy's function returned, if it is a memory and a learner as they were given.

    Raises:
      TypeError: which function, and what differs.
    """
    wanted = f"{name} must give (memory, learner) as they were given"
    if jax.tree.structure(returned) != jax.tree.structure(given):
        raise TypeError(f"{wanted}; it gave {jax.tree.structure(returned)}")
    after, before = (jax.tree_util.tree_leaves_with_path(tree) for tree in (returned, given))
    for (path, new), (_, old) in zip(after, before, strict=True):
        if (jnp.shape(new), jnp.result_type(new)) != (jnp.shape(old), jnp.result_type(old)):
            part = ("memory", "learner")[path[0].idx] + jax.tree_util.keystr(path[1:])
            raise TypeError(
                f"{wanted}: {part} was {jnp.result_type(old)}{list(jnp.shape(old))}, is "
                f"{jnp.result_type(new)}{list(jnp.shape(new))}"
            )
    return returned


def trainable_part(setup: Setup, params: PyTree, update: PyTree) -> PyTree:
    """The update, 0 where the setup freezes the parameter."""
    if setup.trainable is None:
        return update
    keep = setup.trainable(params)
    return jax.tree.map(lambda leaf, kept: jnp.where(kept, leaf, 0), update, keep)


def _is_batch(leaf: PyTree) -> bool:
    return isinstance(leaf, Batch)


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
    )


def begin_task(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    key: PRNGKeyArray,
) -> Progress:
    """Makes the task's classes seen; schedule, best epoch and perhaps optimizer start anew."""
    if not protocol.boundaries:
        return progress
    memory, learner, _ = progress
    learner = learner._replace(seen=learner.seen | task.classes)
    if strategy.begin_task is not None:
        begun = strategy.begin_task(memory, learner, task, key)
        memory, learner = same_kind("begin_task", begun, (memory, learner))
    if protocol.new_optimizer:
        rate = jnp.float32(1) if setup.task_rate is None else setup.task_rate(task.id)
        learner = learner._replace(
            opt_state=setup.optimizer.init(learner.params),
            schedule=Plateau(rate, jnp.float32(-jnp.inf), jnp.int32(0)),
        )
    return Progress(memory, learner, _no_best(strategy, protocol, memory, learner))


def end_epoch(
    strategy: Strategy, protocol: Protocol, progress: Progress, score: Float[Array, ""]
) -> Progress:
    """Keeps the best epoch, of equals the last, and moves the learning rate."""
    memory, learner, best = progress
    if best is not None:
        better = score >= best.score
        best = jax.tree.map(
            lambda new, old: jnp.where(better, new, old),
            _as_best(strategy, score, memory, learner),
            best,
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
    return Progress(memory, learner._replace(schedule=schedule), best)


def end_task(
    strategy: Strategy, protocol: Protocol, progress: Progress, task: Task, key: PRNGKeyArray
) -> Progress:
    """Goes back to the best epoch where the protocol says so, then lets the strategy finish.

    What the strategy accumulated since then goes back too. Without validation samples no epoch is
    better than another, and the last one stays.
    """
    memory, learner, best = progress
    if best is not None:
        validated = best.score > -jnp.inf
        kept = jax.tree.map(
            lambda best, last: jnp.where(validated, best, last),
            best,
            _as_best(strategy, best.score, memory, learner),
        )
        learner = learner._replace(params=kept.params, batch_stats=kept.batch_stats)
        if strategy.after_step is not None:
            memory = kept.memory
    if protocol.boundaries and strategy.end_task is not None:
        ended = strategy.end_task(memory, learner, task, key)
        memory, learner = same_kind("end_task", ended, (memory, learner))
    return Progress(memory, learner, best)


def _as_best(strategy: Strategy, score: Float[Array, ""], memory: Memory, learner: Learner) -> Best:
    """The present epoch; of strategies whose steps change no memory without that."""
    changed = () if strategy.after_step is None else memory
    return Best(score, changed, learner.params, learner.batch_stats)


def _no_best(
    strategy: Strategy, protocol: Protocol, memory: Memory, learner: Learner
) -> Best | None:
    if protocol.select == "last":
        return None
    return _as_best(strategy, jnp.float32(-jnp.inf), memory, learner)


def take_task(
    strategy: Strategy, protocol: Protocol, sequence: TaskSequence, number: Int[Array, ""]
) -> Task:
    """One task; for a strategy that uses them with the samples of all tasks up to it.

    Without boundaries nothing in it tells which it is.

    Raises:
      ValueError: a strategy made for another number of tasks.
    """
    tasks = sequence.tasks.id.shape[0]
    if strategy.tasks not in (None, tasks):
        raise ValueError(
            f"the strategy was made with tasks={strategy.tasks}, the sequence has {tasks}; give "
            f"tasks={tasks}"
        )
    task = jax.tree.map(lambda leaf: leaf[number], sequence.tasks)
    if not protocol.boundaries:
        return task._replace(classes=jnp.zeros_like(task.classes), id=jnp.zeros_like(task.id))
    return with_past(sequence, task) if strategy.uses_past else task


def with_past(sequence: TaskSequence, task: Task) -> Task:
    """The task with the training and validation samples of all tasks up to it."""
    every = sequence.tasks

    def up_to_it(samples: Samples) -> Samples:
        so_far = samples.mask & (every.id <= task.id)[:, None]
        return jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples._replace(mask=so_far)
        )

    return task._replace(past=up_to_it(every.train), past_valid=up_to_it(every.valid))


def stored_before(strategy: Strategy, memory: Memory, task: Task) -> Int[Array, ""]:
    """Samples of earlier tasks in the memory before the task is begun."""
    if strategy.stored_samples is None:
        return jnp.int32(0)
    return strategy.stored_samples(memory, task)


class TaskKeys(NamedTuple):
    """The keys of one task's parts; an epoch's is folded from `epochs`, a step's from that."""

    begin: PRNGKeyArray
    epochs: PRNGKeyArray
    end: PRNGKeyArray


def task_keys(key: PRNGKeyArray, number: Int[Array, ""]) -> TaskKeys:
    """The keys of a task, from the sequence's."""
    return TaskKeys(*jax.random.split(jax.random.fold_in(key, number + 1), 3))


def begin_sequence(
    setup: Setup, strategy: Strategy, protocol: Protocol, classes: int, key: PRNGKeyArray
) -> Progress:
    """What there is before the first task.

    Raises:
      ValueError: a protocol without boundaries, for a strategy that needs them.
    """
    if strategy.needs_boundaries and not protocol.boundaries:
        raise ValueError(
            "the strategy does something where a task begins or ends, and the protocol has no "
            "boundaries; give Protocol(boundaries=True), or a strategy that learns without them"
        )
    key_learner, key_memory = jax.random.split(jax.random.fold_in(key, 0))
    learner = init_learner(setup, classes, key_learner)
    memory = strategy.init(key_memory, learner)
    return Progress(memory, learner, _no_best(strategy, protocol, memory, learner))


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
    progress: Progress,
    opened: tuple[Epoch, Order],
    task: Task,
    step: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Progress, Float[Array, ""]]:
    """Takes a step's batch from its epoch and trains on it; `key` is the epoch's."""
    rounds = protocol.epoch_steps is not None
    batch = take_batch(*opened, step, protocol.batch_size, rounds)
    memory, learner, best = progress
    if not protocol.boundaries:
        arrived = multi_hot(batch.labels, learner.seen.shape[0]) & (batch.weight > 0)[:, None]
        learner = learner._replace(seen=learner.seen | jnp.any(arrived, axis=0))
    key_step = jax.random.fold_in(key, step)
    memory, learner, loss = train_step(setup, strategy, memory, learner, batch, task, key_step)
    return Progress(memory, learner, best), loss


def close_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Progress, Float[Array, ""]]:
    """Validates, keeps the best epoch and moves the schedule; returns the validation too."""
    memory, learner, _ = progress
    samples = strategy.valid_data(memory, task)
    size = protocol.evaluation_batch
    score = validate(setup, strategy, memory, learner, samples, size, key)
    return end_epoch(strategy, protocol, progress, score), score


def close_task(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    sequence: TaskSequence,
    number: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Progress, PyTree]:
    """Ends the task and, where it is time to, evaluates on the test union."""
    key_end, key_ready = jax.random.split(key)
    memory, learner, best = end_task(strategy, protocol, progress, task, key_end)

    def evaluated() -> tuple[Memory, Learner, PyTree]:
        ready = (memory, learner)
        if strategy.before_evaluation is not None:
            made_ready = strategy.before_evaluation(*ready, key_ready)
            ready = same_kind("before_evaluation", made_ready, ready)
        size = protocol.evaluation_batch
        return *ready, evaluate(setup, strategy, *ready, sequence, size)

    def left_out() -> tuple[Memory, Learner, PyTree]:
        kept = jax.eval_shape(evaluated)[-1]
        return memory, learner, jax.tree.map(lambda leaf: not_reached(leaf.shape, leaf.dtype), kept)

    if protocol.evaluate_every == 1:
        memory, learner, kept = evaluated()
    else:
        last = number == sequence.tasks.id.shape[0] - 1
        due = (number + 1) % protocol.evaluate_every == 0
        memory, learner, kept = jax.lax.cond(due | last, evaluated, left_out)
    return Progress(memory, learner, best), kept


def not_reached(shape: tuple[int, ...], dtype: Any) -> Array:
    """What stands where nothing was measured: NaN, or 0 where the type has none."""
    return jnp.full(shape, jnp.nan if jnp.issubdtype(dtype, jnp.floating) else 0, dtype)
