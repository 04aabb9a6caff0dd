"""Common parts of compiled and driven sequences; `train_step` is the only training step."""

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
    """Training protocol of every task, for all strategies.

    Raises:
      ValueError: a count is below 1; a factor of the learning rate is not positive; `select` is
        unknown; or `select` is "best" without boundaries.
    """

    epochs: PositiveInt = 10
    """Epochs per task."""
    first_epochs: PositiveInt | None = None
    """Epochs of the first task; None is `epochs`."""
    batch_size: PositiveInt = 32
    """Samples per step."""
    epoch_steps: PositiveInt | None = None
    """Steps per epoch, which cycles through its samples in one order; None is one pass. With a
    fixed number, tasks of all sizes take equally many steps."""
    select: Literal["best", "last"] = "best"
    """Kept epoch of a task: "best" validation on the task (early stopping; ties go to the last), or
    "last"."""
    plateau_factor: PositiveFloat = 1.0
    """Factor on the learning rate when validation stops improving; 1 keeps the rate."""
    plateau_patience: NonNegativeInt = 10
    """Epochs without improvement before the learning rate changes."""
    plateau_threshold: NonNegativeFloat = 1e-3
    """Least increase of the validation metric that counts as improvement."""
    evaluation_batch: PositiveInt = 256
    """Samples per forward pass in validation and evaluation."""
    evaluate_every: PositiveInt = 1
    """Tasks between two evaluations on the test union; the last task is always evaluated."""
    new_optimizer: bool = True
    """Reset optimizer and schedule at every task."""
    updates_per_batch: PositiveInt = 1
    """Optimizer steps on every batch of the epoch, each with a new augmentation and a new draw from
    memory. The batch enters a memory after the last one. Aljundi et al. 2019 (NeurIPS) take 5."""
    prequential: bool = False
    """Predict every batch before it is learned (Gama et al. 2013). A strategy with
    `before_evaluation` calls it before every batch."""
    boundaries: bool = True
    """Inform the strategy of task boundaries. Without them, tasks are pieces of a stream between
    which it is evaluated. Strategies are then called at steps alone, a class is seen once a sample
    of it has arrived, and the optimizer is never reset."""

    def __post_init__(self):
        check_fields(self)
        if self.select == "best" and not self.boundaries:
            raise ValueError("select='best' needs boundaries; choose 'last' for a stream without")

    @property
    def most_epochs(self) -> int:
        """Maximal number of epochs of a task."""
        return max(self.epochs, self.epochs_of(0))

    def epochs_of(self, task: int) -> int:
        """Return the number of epochs of a task, counted from 0."""
        return self.epochs if task or self.first_epochs is None else self.first_epochs


@checked
def online_protocol(batch_size: PositiveInt = 10) -> Protocol:
    """Return the online protocol: one pass over a stream without task boundaries.

    It is that of Aljundi et al. 2019 and Buzzega et al. 2020.

    Args:
      batch_size: samples per step; 10 in the literature.
    """
    return Protocol(epochs=1, batch_size=batch_size, select="last", boundaries=False)


class Usage(NamedTuple):
    """Costs of learning, from which `metrics.cl_score` computes memory and computation criteria."""

    steps: Int[Array, "t"]
    """Optimizer steps from the start of the sequence to the end of each task."""
    stored_samples: Int[Array, "t"]
    """Samples of earlier tasks that were stored when each task began."""


class StepScores(NamedTuple):
    """Scores of one batch, or their sums over batches."""

    loss: Float[Array, ""]
    """Mean loss of the batch's updates."""
    prequential: Float[Array, "2"] | None
    """Sum of the objective's metric over the batch before its first update, and the number of
    samples. None unless `Protocol.prequential`."""


class EpochScores(NamedTuple):
    """Scores of an epoch."""

    loss: Float[Array, ""]
    """Mean loss over the epoch's steps; NaN if it diverged."""
    validation: Float[Array, ""]
    """Mean validation metric after the epoch; -inf without validation samples."""
    prequential: Float[Array, ""] | None
    """Mean metric of the batches before they were learned; None unless `Protocol.prequential`."""


class Best(NamedTuple):
    """Parameters and memory of the current task's best epoch by its validation score."""

    score: Float[Array, ""]
    memory: Memory
    """Memory after the epoch if steps change it, otherwise empty."""
    params: PyTree
    batch_stats: PyTree


class Progress(NamedTuple):
    """State that is passed from step to step."""

    memory: Memory
    learner: Learner
    best: Best | None
    """Best epoch; None if the protocol keeps the last epoch, which saves memory."""


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
    """Take a training step; returns memory, learner and the batch's loss.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that computes the gradient.
      memory: memory of the strategy.
      learner: learner before the step.
      batch: samples of the step, without inputs.
      task: current task.
      key: random key of the step, split into `keys.StepKeys`.
      arrives: True if the batch enters memory after this step, the last of several on one batch.

    Raises:
      TypeError: a function of the strategy returned a wrong structure.
    """
    keys = update_keys(key)
    batch = complete_batch(setup, strategy, memory, batch, task, keys.batch)
    returned = strategy.grads(memory, learner, batch, task, keys.gradient)
    if not (isinstance(returned, tuple) and isinstance(returned[-1], StepInfo)):
        raise TypeError(
            f"grads returned {type(returned).__name__}; it must return (gradient, StepInfo)"
        )
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
    """Return the batch with its inputs, and with the strategy's draw from memory."""
    keys = batch_keys(key)
    batch = with_inputs(setup, batch, keys.inputs)
    if strategy.draw is None:
        return batch
    drawn = strategy.draw(memory, batch, task, keys.draw)
    leaves, tree = jax.tree.flatten(drawn, is_leaf=_is_batch)
    if not any(map(_is_batch, leaves)):
        raise TypeError("draw returned no Batch; return one or more (memory.draw_batch)")
    for place, leaf in enumerate(leaves):
        if _is_batch(leaf):
            leaves[place] = with_inputs(setup, leaf, jax.random.fold_in(keys.replay, place))
    return batch._replace(replay=jax.tree.unflatten(tree, leaves))


def with_inputs(setup: Setup, batch: Batch, key: PRNGKeyArray) -> Batch:
    """Return the batch, or a stack of batches, with the inputs of its samples, augmented."""
    inputs = gathered(setup, batch.index.reshape(-1), key)
    return batch._replace(inputs=inputs.reshape(*batch.index.shape, *inputs.shape[1:]))


def same_kind(name: str, returned: Any, given: tuple[Memory, Learner]) -> tuple[Memory, Learner]:
    """Return a strategy function's result after checking its structure, shapes and dtypes.

    Args:
      name: name of the function, for the message.
      returned: result of the function.
      given: memory and learner before the call.

    Raises:
      TypeError: the result is not a memory and a learner like those before the call.
    """
    wanted = f"{name} must return (memory, learner) with the structure of its arguments"
    if jax.tree.structure(returned) != jax.tree.structure(given):
        raise TypeError(f"{wanted}; it returned {jax.tree.structure(returned)}")
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
    """Return the update, 0 for parameters that the setup freezes."""
    if setup.trainable is None:
        return update
    keep = setup.trainable(params)
    return jax.tree.map(lambda leaf, kept: jnp.where(kept, leaf, 0), update, keep)


def _is_batch(leaf: PyTree) -> bool:
    return isinstance(leaf, Batch)


class Order(NamedTuple):
    """Slots of an epoch in shuffled order, those with samples first, and the number of samples."""

    slots: Int[Array, "n"]
    count: Int[Array, ""]


def shuffle(epoch: Epoch, key: PRNGKeyArray) -> Order:
    """Return a random order of the samples; the positions of padding have no effect on it.

    A slot's random number depends on its position among the samples alone, so a repeated sample has
    two numbers.
    """
    mask = epoch.samples.mask
    place = jnp.maximum(jnp.cumsum(mask) - 1, 0)
    drawn = jax.random.bits(key, mask.shape, jnp.uint32)[place]
    return Order(jnp.lexsort((drawn, ~mask)), jnp.sum(mask, dtype=jnp.int32))


def take_batch(
    epoch: Epoch, order: Order, step: Int[Array, ""], size: int, rounds: bool = False
) -> Batch:
    """Return the step's batch; samples after the first pass have weight 0, unless `rounds`."""
    position = step * size + jnp.arange(size)
    slot = order.slots[position % order.count]
    return Batch(
        epoch.samples.index[slot],
        epoch.samples.labels[slot],
        ((position < order.count) | rounds).astype(jnp.float32),
        epoch.from_memory[slot],
    )


def init_learner(setup: Setup, classes: int, key: PRNGKeyArray) -> Learner:
    """Return a new learner, which has seen no class."""
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
    """Mark the task's classes as seen; reset schedule, best epoch and, if set, the optimizer."""
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
    """Keep the best epoch (ties go to the last), and update the learning-rate schedule."""
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
    """Restore the best epoch if the protocol keeps it, then call the strategy's `end_task`.

    The strategy's memory of that epoch is restored too. Without validation samples the last epoch
    is kept.
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
    """Return the current epoch; its memory is left out if steps do not change it."""
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
    """Return one task, with the samples of all tasks up to it for strategies that use them.

    Without boundaries, its classes and number are set to 0.

    Raises:
      ValueError: the strategy was made for another number of tasks.
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
    """Return the leaf with integers of 32 bits, which memories hold for every default of JAX."""
    return leaf.astype(jnp.int32) if jnp.issubdtype(leaf.dtype, jnp.integer) else leaf


def with_past(sequence: TaskSequence, task: Task) -> Task:
    """Return the task with the training and validation samples of all tasks up to it."""
    every = sequence.tasks

    def up_to_it(samples: Samples) -> Samples:
        so_far = samples.mask & (every.id <= task.id)[:, None]
        return jax.tree.map(
            lambda leaf: _narrow(leaf.reshape(-1, *leaf.shape[2:])), samples._replace(mask=so_far)
        )

    return task._replace(past=up_to_it(every.train), past_valid=up_to_it(every.valid))


def stored_before(strategy: Strategy, memory: Memory, task: Task) -> Int[Array, ""]:
    """Return the number of samples of earlier tasks in memory when a task starts."""
    if strategy.stored_samples is None:
        return jnp.int32(0)
    return strategy.stored_samples(memory, task).astype(jnp.int32)


def begin_sequence(
    setup: Setup, strategy: Strategy, protocol: Protocol, classes: int, key: PRNGKeyArray
) -> Progress:
    """Return the progress before the first task.

    Raises:
      ValueError: the strategy needs task boundaries and the protocol has none.
    """
    if strategy.needs_boundaries and not protocol.boundaries:
        raise ValueError(
            "the strategy acts at the start or end of a task, and the protocol has no boundaries; "
            "give Protocol(boundaries=True), or a strategy that learns without boundaries"
        )
    keys = sequence_keys(key)
    learner = init_learner(setup, classes, keys.learner)
    memory = strategy.init(keys.memory, learner)
    return Progress(memory, learner, _no_best(strategy, protocol, memory, learner))


def open_epoch(
    strategy: Strategy, memory: Memory, task: Task, key: PRNGKeyArray
) -> tuple[Epoch, Order]:
    """Return an epoch's samples and their order."""
    epoch = strategy.epoch_data(memory, task)
    return epoch, shuffle(epoch, key)


def count_steps(order: Order, protocol: Protocol) -> Int[Array, ""]:
    """Return the number of steps of an epoch; 0 if it has no samples."""
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
        scored = _metric_before(setup, strategy, memory, learner, batch, key_score)
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


def _metric_before(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    batch: Batch,
    key: PRNGKeyArray,
) -> Float[Array, "2"]:
    """Return the sum of the metric over a batch before it is learned, and its sample count."""
    if strategy.before_evaluation is not None:
        memory, learner = strategy.before_evaluation(memory, learner, key)
    scores = strategy.predict(memory, learner, gathered(setup, batch.index, None))
    values = setup.objective.metric(scores, batch.labels, learner.seen)
    here = batch.weight > 0
    return jnp.stack([jnp.sum(values, where=here), jnp.sum(here)]).astype(jnp.float32)


def no_scores(protocol: Protocol) -> StepScores:
    """Return scores of 0, the sums over no batch."""
    return StepScores(jnp.float32(0), jnp.zeros(2, jnp.float32) if protocol.prequential else None)


def close_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    progress: Progress,
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Progress, Float[Array, ""]]:
    """Validate, keep the best epoch and update the schedule; returns the validation score too.

    The score is -inf without validation samples; `key` is the `validation` of the epoch's keys.
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
    """End the task and, if an evaluation is due, evaluate on the test union.

    The evaluation's floats are NaN if the run diverged during the task or at its end.
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
    """Return the placeholder of unmeasured values, 0; the public results have NaN instead."""
    return jnp.zeros(shape, dtype)


def nan_where(condition: Bool[Array, ""], tree: PyTree) -> PyTree:
    """Return the tree with NaN in its floating-point leaves if the condition holds."""
    return jax.tree.map(
        lambda leaf: jnp.where(condition, jnp.nan, leaf) if _is_float(leaf) else leaf, tree
    )


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return True if every number of every floating-point leaf is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _is_float(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
