"""Evaluation in blocks of samples, of which only the per-sample metrics are kept."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Memory, Predictions, Samples, Setup, Strategy, TaskSequence
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.run import Build, Run
from everlight.meshes import shard_batch

PROBE = 256
"""Most test samples from whose outputs `Setup.measure` is computed."""


class Measured(NamedTuple):
    """Evaluation where the setup has a `measure`."""

    evaluation: PyTree
    """Result of the objective's `evaluate`."""
    measured: PyTree
    """Result of the setup's `measure`."""


@checked
def evaluate(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    sequence: TaskSequence,
    size: PositiveInt,
) -> PyTree:
    """Evaluate the learner on all test samples; return the result of the objective's `evaluate`.

    A strategy with `predict_task` receives the task of each test sample, if every task has one test
    set. Samples of several test sets are predicted without a task.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that predicts.
      memory: memory of the strategy.
      learner: learner whose seen classes count.
      sequence: sequence whose test samples are predicted. Samples without a seen class are left out
        unless the objective's `evaluates_unseen_classes` is True.
      size: samples per forward pass.
    """
    test = sequence.test
    sample_task = jnp.argmax(sequence.test_member, axis=0)
    evaluated = test.mask
    if not setup.objective.evaluates_unseen_classes:
        evaluated &= jnp.any(learner.seen[test.labels] & (test.labels >= 0), axis=1)

    def block_metrics(task: Int[Array, ""] | None, slots: Int[Array, "s"]) -> PyTree:
        inputs = gather_inputs(setup, test.index[slots], None)
        task_scores = scores = strategy.predict(memory, learner, inputs)
        if task is not None:
            task_scores = strategy.predict_task(memory, learner, inputs, task)
        test_task, masks = sample_task[slots], sequence.test_classes
        predictions = Predictions(
            scores,
            task_scores,
            test.labels[slots],
            test_task,
            sequence.class_task,
            None if masks is None else masks[test_task],
        )
        return setup.objective.per_sample_metrics(predictions, learner.seen)

    rows = zero_rows(partial(block_metrics, None), evaluated)
    sets, tasks = sequence.test_member.shape[0], sequence.tasks.id.shape[0]
    if strategy.predict_task is None or sets != tasks:
        rows = update_rows(partial(block_metrics, None), evaluated, size, rows)
    else:

        def evaluate_task(task: Int[Array, ""], rows: PyTree) -> PyTree:
            return update_rows(
                partial(block_metrics, task), unshared & (sample_task == task), size, rows
            )

        shared = jnp.sum(sequence.test_member, axis=0) > 1
        unshared = evaluated & ~shared
        rows = update_rows(partial(block_metrics, None), evaluated & shared, size, rows)
        rows = jax.lax.fori_loop(0, sets, evaluate_task, rows)
    return setup.objective.evaluate(sequence, rows, learner.seen)


def measure(setup: Setup, learner: Learner, samples: Samples) -> PyTree:
    """Return the setup's `measure` for at most `PROBE` of the samples, evenly spaced."""
    size = min(PROBE, samples.mask.shape[0])
    order = jnp.argsort(~samples.mask, stable=True)
    chosen = order[jnp.arange(size) * jnp.sum(samples.mask) // size]
    inputs = gather_inputs(setup, samples.index[chosen], None)
    outputs, _ = setup.apply(learner.params, learner.batch_stats, inputs, False, None)
    return setup.measure(learner.params, outputs)


@checked
def validate(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    samples: Samples,
    size: PositiveInt,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Return the objective's mean metric over samples; NaN without any.

    Args:
      setup: network, objective, optimizer and data access.
      strategy: strategy that predicts.
      memory: memory of the strategy.
      learner: learner whose seen classes count.
      samples: samples to predict.
      size: samples per forward pass.
      key: random key of `Strategy.before_evaluation`.
    """

    # A program may hold no slots at all, of which nothing can be gathered.
    if not samples.mask.shape[0]:
        return jnp.float32(jnp.nan)

    def mean(_: Int[Array, ""], nothing: Float[Array, ""]) -> Float[Array, ""]:
        ready = (memory, learner)
        if strategy.before_evaluation is not None:
            ready = strategy.before_evaluation(*ready, key)

        def metric(slots: Int[Array, "s"]) -> Float[Array, "s"]:
            scores = strategy.predict(*ready, gather_inputs(setup, samples.index[slots], None))
            values = setup.objective.metric(scores, samples.labels[slots], learner.seen)
            # Sums in the scores' 16 bits would round or overflow.
            return values.astype(jnp.float32)

        nothing = zero_rows(metric, samples.mask)
        values = update_rows(metric, samples.mask, size, nothing)
        return jnp.sum(values) / jnp.sum(samples.mask)

    # No `cond`, of which runs that are vmapped would pay for both branches.
    passes = jnp.any(samples.mask).astype(jnp.int32)
    return jax.lax.fori_loop(0, passes, mean, jnp.float32(jnp.nan))


@checked
def predict_samples(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    samples: Samples,
    size: PositiveInt,
) -> Float[Array, "n c"]:
    """Return scores of all classes for every sample, `size` per forward pass; 0 for padding.

    Args:
      setup: network and readers of samples.
      strategy: strategy, whose `predict` gives the scores.
      memory: the strategy's memory.
      learner: parameters and state of the network.
      samples: `n` samples, some of which may be padding.
      size: samples per forward pass.
    """
    return map_samples(setup, partial(strategy.predict, memory, learner), samples, size)


def score_test_set(run: Run, memory: Memory, learner: Learner) -> Float[Array, "m c"]:
    """Return the scores of a run's test samples by one of its stored networks."""
    size = run.protocol.evaluation_batch
    return _scores(run.build, size, run.data, run.sequence.test, memory, learner)


@partial(jax.jit, static_argnums=(0, 1))
def _scores(
    build: Build, size: int, data: PyTree, test: Samples, memory: Memory, learner: Learner
) -> Float[Array, "m c"]:
    return predict_samples(*build(data), memory, learner, test, size)


@checked
def sample_features(
    setup: Setup, learner: Learner, samples: Samples, size: PositiveInt = 256
) -> Float[Array, "n f"]:
    """Return features of every sample in evaluation mode, `size` per pass; 0 for padding.

    Args:
      setup: network and readers of samples.
      learner: parameters and state of the network.
      samples: `n` samples, some of which may be padding.
      size: samples per forward pass.
    """

    def features(inputs: Float[Array, "s *shape"]) -> Float[Array, "s f"]:
        return setup.apply(learner.params, learner.batch_stats, inputs, False, None)[0].features

    return map_samples(setup, features, samples, size)


def gather_inputs(
    setup: Setup, index: Int[Array, "b"], key: PRNGKeyArray | None
) -> Float[Array, "b *shape"]:
    """Return the network's inputs of stored samples, distributed to the devices of a run."""
    return shard_batch(setup.gather(index, key))


def map_samples(
    setup: Setup,
    forward: Callable[[Float[Array, "s *shape"]], Float[Array, "s w"]],
    samples: Samples,
    size: int,
) -> Float[Array, "n w"]:
    """Return the result of `forward` for every sample's inputs, `size` per pass; 0 for padding."""

    def compute_rows(slots: Int[Array, "s"]) -> Float[Array, "s w"]:
        return forward(gather_inputs(setup, samples.index[slots], None))

    return update_rows(compute_rows, samples.mask, size, zero_rows(compute_rows, samples.mask))


def update_rows(
    compute_rows: Callable[[Int[Array, "s"]], PyTree],
    mask: Bool[Array, "n"],
    size: int,
    rows: PyTree,
) -> PyTree:
    """Return the rows after replacing those of the selected slots by a function's results.

    The number of passes depends on the number of selected slots alone, not on their positions.

    Args:
      compute_rows: function from slots to a tree with their rows, `[s, ...]`.
      mask: True for slots that are computed, `[n]`.
      size: maximal number of slots per pass.
      rows: tree like the results of `compute_rows`, for all slots, `[n, ...]`.
    """
    slots = mask.shape[0]
    size = min(size, max(slots, 1))
    order = jnp.pad(jnp.argsort(~mask, stable=True), (0, -slots % size))
    count = jnp.sum(mask)

    def put(block: Int[Array, ""], rows: PyTree) -> PyTree:
        position = block * size + jnp.arange(size)
        # The first selected slot pads the last block; its row past the end is dropped.
        chosen = jnp.where(position < count, order[position], order[0])
        target = jnp.where(position < count, chosen, slots)
        return jax.tree.map(
            lambda leaf, new: leaf.at[target].set(new, mode="drop"), rows, compute_rows(chosen)
        )

    return jax.lax.fori_loop(0, -(-count // size), put, rows)


def zero_rows(compute_rows: Callable[[Int[Array, "s"]], PyTree], mask: Bool[Array, "n"]) -> PyTree:
    """Return rows of 0 for all slots, with the shapes and dtypes of a function's results."""
    one = jax.eval_shape(compute_rows, jnp.zeros(1, int))
    return jax.tree.map(lambda leaf: jnp.zeros((mask.shape[0], *leaf.shape[1:]), leaf.dtype), one)
