"""Evaluation: passes over samples in blocks, of which only what is judged of each is kept."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.continual.base import (
    Learner,
    Memory,
    Predictions,
    Samples,
    Setup,
    Strategy,
    TaskSequence,
)
from everlight.meshes import shard_batch


@checked
def evaluate(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    sequence: TaskSequence,
    size: PositiveInt,
) -> PyTree:
    """What the objective keeps of the test union as the learner is now.

    Args:
      setup: whose objective judges.
      strategy: that predicts; where it has a `predict_task` and every task has a test set, task by
        task. A test set that serves several tasks tells none, nor does a sample of several sets.
      memory: the strategy's.
      learner: whose seen classes count.
      sequence: whose test union is predicted, but for samples without a seen class where the
        objective does not need them.
      size: samples a forward pass.
    """
    test = sequence.test
    sample_task = jnp.argmax(sequence.test_member, axis=0)
    judged = test.mask
    if not setup.objective.evaluates_unseen_classes:
        judged &= jnp.any(learner.seen[test.labels] & (test.labels >= 0), axis=1)

    def of_block(task: Int[Array, ""] | None, slots: Int[Array, "s"]) -> PyTree:
        inputs = gathered(setup, test.index[slots], None)
        scores = strategy.predict(memory, learner, inputs)
        told = scores if task is None else strategy.predict_task(memory, learner, inputs, task)
        own, masks = sample_task[slots], sequence.test_classes
        predictions = Predictions(
            scores,
            told,
            test.labels[slots],
            own,
            sequence.class_task,
            None if masks is None else masks[own],
        )
        return setup.objective.per_sample_metrics(predictions, learner.seen)

    kept = nothing_over(partial(of_block, None), judged)
    sets, tasks = sequence.test_member.shape[0], sequence.tasks.id.shape[0]
    if strategy.predict_task is None or sets != tasks:
        kept = over_blocks(partial(of_block, None), judged, size, kept)
    else:

        def judge_task(task: Int[Array, ""], kept: PyTree) -> PyTree:
            return over_blocks(partial(of_block, task), alone & (sample_task == task), size, kept)

        shared = jnp.sum(sequence.test_member, axis=0) > 1
        alone = judged & ~shared
        kept = over_blocks(partial(of_block, None), judged & shared, size, kept)
        kept = jax.lax.fori_loop(0, sets, judge_task, kept)
    return setup.objective.evaluate(sequence, kept, learner.seen)


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
    """Mean metric over samples, `size` of them scored at once; NaN without any."""

    # A program may hold no slots at all, of which nothing can be gathered.
    if not samples.mask.shape[0]:
        return jnp.float32(jnp.nan)

    def mean(_: Int[Array, ""], nothing: Float[Array, ""]) -> Float[Array, ""]:
        ready = (memory, learner)
        if strategy.before_evaluation is not None:
            ready = strategy.before_evaluation(*ready, key)

        def metric(slots: Int[Array, "s"]) -> Float[Array, "s"]:
            scores = strategy.predict(*ready, gathered(setup, samples.index[slots], None))
            return setup.objective.metric(scores, samples.labels[slots], learner.seen)

        nothing = nothing_over(metric, samples.mask)
        good = over_blocks(metric, samples.mask, size, nothing)
        return (jnp.sum(good) / jnp.sum(samples.mask)).astype(jnp.float32)

    # No `cond`, of which runs that are vmapped would pay for both branches.
    there = jnp.any(samples.mask).astype(jnp.int32)
    return jax.lax.fori_loop(0, there, mean, jnp.float32(jnp.nan))


@checked
def predict_samples(
    setup: Setup,
    strategy: Strategy,
    memory: Memory,
    learner: Learner,
    samples: Samples,
    size: PositiveInt,
) -> Float[Array, "n c"]:
    """Scores of all classes for every sample, `size` samples a forward pass; 0 for padding."""
    return over_samples(setup, partial(strategy.predict, memory, learner), samples, size)


@checked
def sample_features(
    setup: Setup, learner: Learner, samples: Samples, size: PositiveInt = 256
) -> Float[Array, "n f"]:
    """Features of every sample in evaluation mode, `size` a forward pass; 0 for padding."""

    def features(inputs: Float[Array, "s *shape"]) -> Float[Array, "s f"]:
        return setup.apply(learner.params, learner.batch_stats, inputs, False, None)[0].features

    return over_samples(setup, features, samples, size)


def gathered(
    setup: Setup, index: Int[Array, "b"], key: PRNGKeyArray | None
) -> Float[Array, "b *shape"]:
    """The network's inputs of stored samples, dealt to the devices that share a run."""
    return shard_batch(setup.gather(index, key))


def over_samples(
    setup: Setup,
    forward: Callable[[Float[Array, "s *shape"]], Float[Array, "s w"]],
    samples: Samples,
    size: int,
) -> Float[Array, "n w"]:
    """What `forward` gives for every sample's inputs, `size` at once; 0 for padding."""

    def of_slots(slots: Int[Array, "s"]) -> Float[Array, "s w"]:
        return forward(gathered(setup, samples.index[slots], None))

    return over_blocks(of_slots, samples.mask, size, nothing_over(of_slots, samples.mask))


def over_blocks(
    of_slots: Callable[[Int[Array, "s"]], PyTree], wanted: Bool[Array, "n"], size: int, rows: PyTree
) -> PyTree:
    """The rows with those of the wanted slots replaced by what a function gives for them.

    As many passes as the wanted slots fill, wherever they stand.

    Args:
      of_slots: from slots to a tree with their rows, `[s, ...]`.
      wanted: slots, `[n]`.
      size: slots at once, at most; no more than there are.
      rows: a tree as `of_slots` gives, for all slots, `[n, ...]`.
    """
    slots = wanted.shape[0]
    size = min(size, max(slots, 1))
    order = jnp.pad(jnp.argsort(~wanted, stable=True), (0, -slots % size))
    count = jnp.sum(wanted)

    def put(block: Int[Array, ""], rows: PyTree) -> PyTree:
        place = block * size + jnp.arange(size)
        # The first wanted slot stands in where none is left; past the end its row is dropped.
        chosen = jnp.where(place < count, order[place], order[0])
        target = jnp.where(place < count, chosen, slots)
        return jax.tree.map(
            lambda every, new: every.at[target].set(new, mode="drop"), rows, of_slots(chosen)
        )

    return jax.lax.fori_loop(0, -(-count // size), put, rows)


def nothing_over(of_slots: Callable[[Int[Array, "s"]], PyTree], wanted: Bool[Array, "n"]) -> PyTree:
    """Rows of 0 for all slots, of the kind that a function gives."""
    one = jax.eval_shape(of_slots, jnp.zeros(1, int))
    return jax.tree.map(lambda leaf: jnp.zeros((wanted.shape[0], *leaf.shape[1:]), leaf.dtype), one)
