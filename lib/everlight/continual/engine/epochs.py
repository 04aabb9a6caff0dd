"""Epochs: the order of samples, the batches and their steps, validation and the best epoch."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Memory, Plateau, Samples, Setup, Strategy, Task
from everlight.continual.engine.evaluation import gather_inputs, validate
from everlight.continual.engine.keys import epoch_keys, step_key, update_keys
from everlight.continual.engine.placeholders import all_finite, nan_where
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Best, SequenceState, StepEvaluations, with_learned
from everlight.continual.engine.updates import train_step
from everlight.continual.objectives.multilabel import multi_hot


class StepScores(NamedTuple):
    """Scores of one batch, or their sums over batches."""

    loss: Float[Array, ""]
    """Mean loss of the batch's updates."""
    prequential: Float[Array, "2"] | None
    """Sum of the objective's metric over the batch before its first update, and the number of
    samples. None unless `Protocol.prequential`."""


class EpochProgress(NamedTuple):
    """Memory and learner after some steps of an epoch, and the sums of the steps' scores."""

    memory: Memory
    learner: Learner
    sums: StepScores


class ShuffledEpoch(NamedTuple):
    """Samples of an epoch with a random order."""

    samples: Samples
    memory_mask: Bool[Array, "n"]
    slots: Int[Array, "n"]
    """Positions of the samples in their order; those of padding come last."""
    count: Int[Array, ""]
    """Number of samples."""


def shuffle(epoch: Epoch, key: PRNGKeyArray) -> ShuffledEpoch:
    """Return the epoch in a random order; the positions of padding have no effect on it.

    A slot's random number depends on its position among the samples alone, so a repeated sample has
    two numbers.
    """
    mask = epoch.samples.mask
    place = jnp.maximum(jnp.cumsum(mask) - 1, 0)
    drawn = jax.random.bits(key, mask.shape, jnp.uint32)[place]
    slots, count = jnp.lexsort((drawn, ~mask)), jnp.sum(mask, dtype=jnp.int32)
    return ShuffledEpoch(epoch.samples, epoch.memory_mask, slots, count)


def take_batch(
    epoch: ShuffledEpoch, step: Int[Array, ""], size: int, rounds: bool = False
) -> Batch:
    """Return the step's batch; samples after the first pass have weight 0, unless `rounds`."""
    position = step * size + jnp.arange(size)
    slot = epoch.slots[position % epoch.count]
    return Batch(
        epoch.samples.index[slot],
        epoch.samples.labels[slot],
        ((position < epoch.count) | rounds).astype(jnp.float32),
        epoch.memory_mask[slot],
    )


def count_steps(epoch: ShuffledEpoch, protocol: Protocol) -> Int[Array, ""]:
    """Return the number of steps of an epoch; 0 if it has no samples."""
    if protocol.epoch_steps is None:
        return -(-epoch.count // protocol.batch_size)
    return jnp.where(epoch.count > 0, protocol.epoch_steps, 0)


def count_pass_steps(
    epoch: ShuffledEpoch, protocol: Protocol, task: Int[Array, ""]
) -> Int[Array, ""]:
    """Return the number of steps of a single pass, at most those of the task's whole training."""
    steps = -(-epoch.count // protocol.batch_size)
    if protocol.epoch_steps is None:
        return steps
    epochs = jnp.where(task == 0, protocol.epochs_of(0), protocol.epochs)
    return jnp.minimum(steps, epochs * protocol.epoch_steps)


def strategy_protocol(strategy: Strategy, protocol: Protocol) -> Protocol:
    """Return the protocol of a strategy's steps; in a single pass no sample comes again."""
    return replace(protocol, epoch_steps=None) if strategy.single_pass else protocol


def most_evaluations(samples: int, protocol: Protocol) -> int:
    """Return the most evaluations within an epoch of at most a number of samples."""
    steps = protocol.epoch_steps or -(-samples // protocol.batch_size)
    return -(-steps // (protocol.evaluate_steps or steps or 1))


def learn_epoch(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    state: SequenceState,
    task: Task,
    key: PRNGKeyArray,
    evaluate: Callable[[Memory, Learner, PRNGKeyArray], PyTree],
) -> SequenceState:
    """Return the state after one more epoch of its task; its loss is NaN if it diverged.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that learns.
      protocol: training protocol.
      state: state before the epoch.
      task: the state's task.
      key: the `epochs` of the task's keys.
      evaluate: function to the result on all test samples, for `Protocol.evaluate_steps`.
    """
    keys, result = epoch_keys(key, state.epoch), state.result
    epoch = open_epoch(strategy, result.memory, task, keys.order, state.epoch)
    if strategy.single_pass:
        steps = count_pass_steps(epoch, protocol, state.task)
    else:
        steps = count_steps(epoch, protocol)
    protocol = strategy_protocol(strategy, protocol)

    def take_step(step: Int[Array, ""], progress: EpochProgress) -> EpochProgress:
        learned = progress.memory, progress.learner
        memory, learner, scores = epoch_step(
            setup, strategy, protocol, *learned, epoch, task, step, keys.steps
        )
        return EpochProgress(memory, learner, jax.tree.map(jnp.add, progress.sums, scores))

    start = EpochProgress(result.memory, result.learner, no_scores(protocol))
    if protocol.evaluate_steps is None:
        memory, learner, sums = jax.lax.fori_loop(0, steps, take_step, start)
    else:

        def evaluate_step(progress: EpochProgress, number: Int[Array, ""]) -> PyTree:
            return evaluate(
                progress.memory, progress.learner, jax.random.fold_in(keys.evaluations, number)
            )

        (memory, learner, sums), state = _run_evaluated_steps(
            take_step,
            evaluate_step,
            start,
            state,
            steps=steps,
            interval=protocol.evaluate_steps,
            updates=protocol.updates_per_batch,
        )
    samples = strategy.valid_data(memory, task)
    size = protocol.evaluation_batch
    score = validate(setup, strategy, memory, learner, samples, size, keys.validation)
    score = jnp.where(jnp.isnan(score), -jnp.inf, score)
    # The loss of the last step belongs to the parameters before that step.
    well = all_finite(learner.params) & (jnp.isfinite(score) | ~jnp.any(samples.mask))
    loss = jnp.where(well, sums.loss / jnp.maximum(steps, 1), jnp.nan)
    state = end_epoch(strategy, protocol, with_learned(state, memory, learner), score)
    return _record_epoch(state, loss, score, sums.prequential)


def _run_evaluated_steps(
    take_step: Callable[[Int[Array, ""], EpochProgress], EpochProgress],
    evaluate_step: Callable[[EpochProgress, Int[Array, ""]], PyTree],
    start: EpochProgress,
    state: SequenceState,
    *,
    steps: Int[Array, ""],
    interval: int,
    updates: int,
) -> tuple[EpochProgress, SequenceState]:
    """Return the progress after an epoch's steps, and the state with evaluations in between."""
    at, result = (state.task, state.epoch), state.result
    # A strategy that trains nothing in steps takes them back from the learner's count.
    recorded = jnp.max(result.within_tasks.steps, initial=0)
    before = jnp.maximum(recorded, start.learner.step)

    def run_part(number: Int[Array, ""], carry: tuple) -> tuple:
        progress, within = carry
        first = number * interval
        last = jnp.minimum(first + interval, steps)
        progress = jax.lax.fori_loop(first, last, take_step, progress)
        row = evaluate_step(progress, number)
        well = all_finite((progress.learner.params, progress.sums.loss, result.losses))
        row = StepEvaluations(nan_where(~well, row), before + last * updates)
        within = jax.tree.map(lambda rows, new: rows.at[*at, number].set(new), within, row)
        return progress, within

    parts = -(-steps // interval)
    progress, within = jax.lax.fori_loop(0, parts, run_part, (start, result.within_tasks))
    return progress, state._replace(result=result._replace(within_tasks=within))


def open_epoch(
    strategy: Strategy, memory: Memory, task: Task, key: PRNGKeyArray, number: Int[Array, ""]
) -> ShuffledEpoch:
    """Return the samples of an epoch, counted from 0, in their order.

    After the single pass of a strategy that takes no more, the number of samples is 0.
    """
    epoch = shuffle(strategy.epoch_data(memory, task), key)
    if strategy.single_pass:
        return epoch._replace(count=jnp.where(number == 0, epoch.count, 0))
    return epoch


def epoch_step(
    setup: Setup,
    strategy: Strategy,
    protocol: Protocol,
    memory: Memory,
    learner: Learner,
    epoch: ShuffledEpoch,
    task: Task,
    step: Int[Array, ""] | int,
    key: PRNGKeyArray,
) -> tuple[Memory, Learner, StepScores]:
    """Train on a step's batch of its epoch; `key` is the `steps` of the epoch's keys."""
    rounds = protocol.epoch_steps is not None
    batch = take_batch(epoch, step, protocol.batch_size, rounds)
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
    return memory, learner, StepScores(total / protocol.updates_per_batch, scored)


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
    scores = strategy.predict(memory, learner, gather_inputs(setup, batch.index, None))
    values = setup.objective.metric(scores, batch.labels, learner.seen)
    mask = batch.weight > 0
    total = jnp.sum(values.astype(jnp.float32), where=mask)
    return jnp.stack([total, jnp.sum(mask, dtype=jnp.float32)])


def no_scores(protocol: Protocol) -> StepScores:
    """Return scores of 0, the sums over no batch."""
    return StepScores(jnp.float32(0), jnp.zeros(2, jnp.float32) if protocol.prequential else None)


def end_epoch(
    strategy: Strategy, protocol: Protocol, state: SequenceState, score: Float[Array, ""]
) -> SequenceState:
    """Keep the best epoch (ties go to the last), and update the learning rate's factor."""
    memory, learner, best = state.result.memory, state.result.learner, state.best
    if best is not None:
        better = score >= best.score
        best = jax.tree.map(
            lambda new, old: jnp.where(better, new, old),
            best_candidate(strategy, score, memory, learner),
            best,
        )
    schedule = learner.schedule
    improved = score > schedule.best + protocol.plateau_threshold
    # An epoch without validation is neither an improvement nor the lack of one.
    stale = jnp.where(improved, 0, schedule.stale_epochs + (score > -jnp.inf))
    drop = stale > protocol.plateau_patience
    factor = jnp.where(drop, schedule.factor * protocol.plateau_factor, schedule.factor)
    if protocol.milestones:
        reached = jnp.isin(state.epoch + 1, jnp.asarray(protocol.milestones))
        factor = jnp.where(reached, factor * protocol.milestone_factor, factor)
    schedule = Plateau(
        factor,
        jnp.where(improved, score, schedule.best),
        jnp.where(drop, 0, stale),
    )
    return with_learned(state, memory, learner._replace(schedule=schedule))._replace(best=best)


def best_candidate(
    strategy: Strategy, score: Float[Array, ""], memory: Memory, learner: Learner
) -> Best:
    """Return the current epoch; its memory is left out if steps do not change it."""
    changed = () if strategy.after_step is None else memory
    return Best(score, changed, learner.params, learner.batch_stats)


def _record_epoch(
    state: SequenceState,
    loss: Float[Array, ""],
    validation: Float[Array, ""],
    prequential: Float[Array, "2"] | None,
) -> SequenceState:
    """Return the state with an epoch's scores in its curves, at the next epoch."""
    at, result = (state.task, state.epoch), state.result
    if prequential is not None:
        total, count = prequential
        mean = jnp.where(count > 0, total / jnp.maximum(count, 1), -jnp.inf)
        result = result._replace(prequential=result.prequential.at[at].set(mean))
    result = result._replace(
        losses=result.losses.at[at].set(loss), validation=result.validation.at[at].set(validation)
    )
    return state._replace(result=result, epoch=state.epoch + 1)


def train_on(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    task: Task,
    samples: Epoch,
    *,
    epochs: Int[Array, ""] | int,
    batch_size: int,
    key: PRNGKeyArray,
    learning_rate_factor: Callable[[Int[Array, ""]], Float[Array, ""]] | None = None,
) -> Learner:
    """Train on fixed samples with a new optimizer, as strategies do at or between tasks.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that computes the gradient.
      memory: memory of the strategy, which these steps do not change.
      learner: learner before the first epoch; its schedule is unchanged after the last.
      task: task of the samples.
      samples: samples of every epoch, shuffled again in each.
      epochs: number of epochs.
      batch_size: samples per step.
      key: random key, folded with the number of an epoch by `keys.epoch_keys`.
      learning_rate_factor: function from an epoch, counted from 0, to the factor on the optimizer's
        learning rate; None is the learner's own factor.
    """
    schedule = learner.schedule

    def one_epoch(number: Int[Array, ""], learner: Learner) -> Learner:
        keys = epoch_keys(key, number)
        epoch = shuffle(samples, keys.order)
        if learning_rate_factor is not None:
            factor = learning_rate_factor(number)
            learner = learner._replace(schedule=schedule._replace(factor=factor))

        def take_step(step: Int[Array, ""], learner: Learner) -> Learner:
            batch = take_batch(epoch, step, batch_size)
            key_step = step_key(keys.steps, step)
            return train_step(setup, strategy, memory, learner, batch, task, key_step)[1]

        return jax.lax.fori_loop(0, -(-epoch.count // batch_size), take_step, learner)

    learner = learner._replace(opt_state=setup.optimizer.init(learner.params))
    return jax.lax.fori_loop(0, epochs, one_epoch, learner)._replace(schedule=schedule)
