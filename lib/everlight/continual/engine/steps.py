"""The parts of a task sequence that both drivers share; `train_step` is the only training step."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_fields,
    checked,
)
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
from everlight.continual.engine.keys import (
    TaskKeys,
    batch_keys,
    sequence_keys,
    step_key,
    update_keys,
)
from everlight.continual.objectives.many_labels import multi_hot


@dataclass(frozen=True)
class Protocol:
    """How every task is trained, whatever the strategy.

    Raises:
      ValueError: a count below 1, a rate's factor that is not positive, a selection that there is
        not, or of the best epoch of tasks
        without boundaries.
    """

    epochs: PositiveInt = 10
    """Epochs a task."""
    first_epochs: PositiveInt | None = None
    """Of the first task; None is as many as of any other."""
    batch_size: PositiveInt = 32
    """Samples a step."""
    epoch_steps: PositiveInt | None = None
    """Steps of an epoch, which then takes its samples round after round in one order; None is one
    round. With it tasks of any size take equally many steps."""
    select: Literal["best", "last"] = "best"
    """Keep the epoch with the best in-task validation (early stopping), of equals the last; or the
    last of all."""
    plateau_factor: PositiveFloat = 1.0
    """The rate is multiplied by this when validation stands still; 1 leaves it."""
    plateau_patience: NonNegativeInt = 10
    """Epochs without improvement before that."""
    plateau_threshold: NonNegativeFloat = 1e-3
    """What counts as improvement."""
    evaluation_batch: PositiveInt = 256
    """Samples a forward pass in validation and evaluation."""
    evaluate_every: PositiveInt = 1
    """Tasks between two evaluations on the test union; there is always one after the last."""
    new_optimizer: bool = True
    """Whether optimizer and schedule begin anew at every task."""
    updates_per_batch: PositiveInt = 1
    """Optimizer steps on every batch of the epoch, each with a new augmentation and a new draw from
    memory; the batch enters a memory after the last one (Aljundi et al. 2019, NeurIPS, take 5)."""
    prequential: bool = False
    """Whether every batch is predicted before it is learned (Gama et al. 2013); a strategy that
    solves or trains something before predictions does so before every batch."""
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
def online_protocol(batch_size: PositiveInt = 10) -> Protocol:
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


class StepScores(NamedTuple):
    """Scores of one batch, or their sums over batches."""

    loss: Float[Array, ""]
    """Mean loss of the batch's updates."""
    prequential: Float[Array, "2"] | None
    """Sum of the objective's metric over the batch before its first update, and the number of
    samples; None unless `Protocol.prequential`."""


class EpochScores(NamedTuple):
    """Scores of an epoch."""

    loss: Float[Array, ""]
    """Mean over its steps; NaN where it diverged."""
    validation: Float[Array, ""]
    """Mean metric after it; -inf without validation samples."""
    prequential: Float[Array, ""] | None
    """Mean metric of its batches before they were learned; None unless asked for."""


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
    arrives: Bool[Array, ""] | bool = True,
) -> tuple[Memory, Learner, Float[Array, ""]]:
    """Take the only training step there is; returns the batch's loss too.

    Args:
      setup, strategy, memory, learner, batch, task: as the strategy's functions take them.
      key: consumed; its roles are `keys.StepKeys`.
      arrives: whether the batch enters memory after this step: the last of several on one batch.
    """
    keys = update_keys(key)
    batch = complete_batch(setup, strategy, memory, batch, task, keys.batch)
    returned = strategy.grads(memory, learner, batch, task, keys.gradient)
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
        info = info._replace(batch=batch, update=update, arrives=jnp.asarray(arrives))
        after = strategy.after_step(memory, learner, info, keys.after)
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
    keys = batch_keys(key)
    batch = with_inputs(setup, batch, keys.inputs)
    if strategy.draw is None:
        return batch
    drawn = strategy.draw(memory, batch, task, keys.draw)
    leaves, tree = jax.tree.flatten(drawn, is_leaf=_is_batch)
    if not any(map(_is_batch, leaves)):
        raise TypeError("draw gave no Batch, so there is nothing to fill in (memory.draw_batch)")
    for place, leaf in enumerate(leaves):
        if _is_batch(leaf):
            leaves[place] = with_inputs(setup, leaf, jax.random.fold_in(keys.replay, place))
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
    """Return a random order; padding never changes it, wherever it stands.

    A slot's random number depends on its place among the samples alone, so that one that is there
    twice has two.
    """
    mask = epoch.samples.mask
    place = jnp.maximum(jnp.cumsum(mask) - 1, 0)
    drawn = jax.random.bits(key, mask.shape, jnp.uint32)[place]
    return Order(jnp.lexsort((drawn, ~mask)), jnp.sum(mask, dtype=jnp.int32))


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
    task = jax.tree.map(lambda leaf: _narrow(leaf[number]), sequence.tasks)
    if not protocol.boundaries:
        return task._replace(classes=jnp.zeros_like(task.classes), id=jnp.zeros_like(task.id))
    return with_past(sequence, task) if strategy.uses_past else task


def _narrow(leaf: Array) -> Array:
    """The leaf with integers of 32 bits, as memories hold them, whatever JAX's default is."""
    return leaf.astype(jnp.int32) if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf


def with_past(sequence: TaskSequence, task: Task) -> Task:
    """The task with the training and validation samples of all tasks up to it."""
    every = sequence.tasks

    def up_to_it(samples: Samples) -> Samples:
        so_far = samples.mask & (every.id <= task.id)[:, None]
        return jax.tree.map(
            lambda leaf: _narrow(leaf.reshape(-1, *leaf.shape[2:])), samples._replace(mask=so_far)
        )

    return task._replace(past=up_to_it(every.train), past_valid=up_to_it(every.valid))


def stored_before(strategy: Strategy, memory: Memory, task: Task) -> Int[Array, ""]:
    """Samples of earlier tasks in the memory before the task is begun."""
    if strategy.stored_samples is None:
        return jnp.int32(0)
    return strategy.stored_samples(memory, task).astype(jnp.int32)


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
    keys = sequence_keys(key)
    learner = init_learner(setup, classes, keys.learner)
    memory = strategy.init(keys.memory, learner)
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
) -> tuple[Progress, StepScores]:
    """Train on a step's batch of its epoch; `key` is the `steps` of the epoch's keys."""
    rounds = protocol.epoch_steps is not None
    batch = take_batch(*opened, step, protocol.batch_size, rounds)
    memory, learner, best = progress
    key = step_key(key, step)

    def update(number: Int[Array, ""] | int, carry: tuple) -> tuple:
        memory, learner, total = carry
        key_update = jax.random.fold_in(key, number)
        arrives = number == protocol.updates_per_batch - 1
        memory, learner, loss = train_step(
            setup, strategy, memory, learner, batch, task, key_update, arrives
        )
        return memory, learner, total + loss.astype(jnp.float32)

    scored = None
    if protocol.prequential:
        # No update has this number.
        key_score = update_keys(jax.random.fold_in(key, protocol.updates_per_batch)).score
        scored = _goodness_before(setup, strategy, memory, learner, batch, key_score)
    if not protocol.boundaries:
        arrived = multi_hot(batch.labels, learner.seen.shape[0]) & (batch.weight > 0)[:, None]
        learner = learner._replace(seen=learner.seen | jnp.any(arrived, axis=0))
    start = (memory, learner, jnp.float32(0))
    if protocol.updates_per_batch == 1:
        memory, learner, total = update(0, start)
    else:
        memory, learner, total = jax.lax.fori_loop(0, protocol.updates_per_batch, update, start)
    scores = StepScores(total / protocol.updates_per_batch, scored)
    return Progress(memory, learner, best), scores


def _goodness_before(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    batch: Batch,
    key: PRNGKeyArray,
) -> Float[Array, "2"]:
    """The sum of metric over a batch that is not learned yet, and the number of samples."""
    if strategy.before_evaluation is not None:
        memory, learner = strategy.before_evaluation(memory, learner, key)
    scores = strategy.predict(memory, learner, gathered(setup, batch.index, None))
    good = setup.objective.metric(scores, batch.labels, learner.seen)
    here = batch.weight > 0
    return jnp.stack([jnp.sum(good, where=here), jnp.sum(here)]).astype(jnp.float32)


def no_scores(protocol: Protocol) -> StepScores:
    """Return sums over no batch."""
    return StepScores(jnp.float32(0), jnp.zeros(2, jnp.float32) if protocol.prequential else None)


def close_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Progress, Float[Array, ""]]:
    """Validate, keep the best epoch and move the schedule; returns the validation too.

    It is -inf without validation samples; `key` is the `validation` of the epoch's keys.
    """
    memory, learner, _ = progress
    samples = strategy.valid_data(memory, task)
    size = protocol.evaluation_batch
    score = validate(setup, strategy, memory, learner, samples, size, key)
    score = jnp.where(jnp.isnan(score), -jnp.inf, score)
    return end_epoch(strategy, protocol, progress, score), score


def close_task(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    sequence: TaskSequence,
    number: Int[Array, ""],
    keys: TaskKeys,
    diverged: Bool[Array, ""],
) -> tuple[Progress, PyTree]:
    """End the task and, where it is time to, evaluate on the test union.

    Numbers of the evaluation are NaN where the run has diverged: before the task's end, or by it.
    """
    memory, learner, best = end_task(strategy, protocol, progress, task, keys.end)
    diverged |= ~all_finite((memory, learner.params))

    def evaluated() -> tuple[Memory, Learner, PyTree]:
        ready = (memory, learner)
        if strategy.before_evaluation is not None:
            made_ready = strategy.before_evaluation(*ready, keys.evaluation)
            ready = same_kind("before_evaluation", made_ready, ready)
        size = protocol.evaluation_batch
        kept = evaluate(setup, strategy, *ready, sequence, size)
        return *ready, nan_where(diverged, kept)

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
    """Return what stands where nothing was measured: 0, which drivers give out as NaN."""
    return jnp.zeros(shape, dtype)


def nan_where(condition: Bool[Array, ""], tree: PyTree) -> PyTree:
    """Return the tree with NaN in its floating-point leaves where the condition holds."""
    return jax.tree.map(
        lambda leaf: jnp.where(condition, jnp.nan, leaf) if _is_float(leaf) else leaf, tree
    )


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return whether every number of every floating-point leaf is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _is_float(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
