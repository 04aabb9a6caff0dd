"""Several updates per batch, prequential accuracy, places of samples that are there twice."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Epoch, Samples
from everlight.continual import Protocol, run_sequence
from everlight.continual.engine import Run, online_protocol, validate
from everlight.continual.engine.epochs import shuffle
from everlight.continual.strategies import experience_replay, naive, streaming_lda
from everlight.scenarios.class_incremental import class_incremental
from tests.continual.small_net import CLASSES, LABELS, samples_of, small_learner, small_setup
from tests.driving import drive_run

TASKS = [[4, 1], [0, 5], [2, 3]]
SEQUENCE = class_incremental(LABELS, LABELS[:33], TASKS, CLASSES, 0.0, test_offset=0)
KEY = jax.random.key(2)


def build_with(strategy):
    def build(data):
        setup = small_setup()
        return setup, strategy(setup)

    return build


def trained(strategy, protocol, sequence=SEQUENCE):
    build = build_with(strategy)
    return jax.jit(lambda key: run_sequence(Run(build, protocol, (), sequence, key)))(KEY)


def test_a_batch_of_three_updates_is_three_steps_and_one_arrival():
    once, thrice = (
        trained(
            lambda setup: experience_replay(setup, buffer_size=500),
            Protocol(epochs=1, batch_size=7, select="last", updates_per_batch=updates),
        )
        for updates in (1, 3)
    )
    np.testing.assert_array_equal(thrice.usage.steps, 3 * np.asarray(once.usage.steps))
    assert int(thrice.memory.arrived) == int(once.memory.arrived) == len(LABELS)
    assert sorted(thrice.memory.samples.index.tolist()) == sorted(
        once.memory.samples.index.tolist()
    )


def test_updates_on_one_batch_are_gradient_descent_on_it():
    """One batch per task, three updates: three epochs of a full batch, to rounding of its order."""
    size = int(SEQUENCE.tasks.train.mask.sum(axis=1).max())
    together = trained(
        naive, Protocol(epochs=1, batch_size=size, select="last", updates_per_batch=3)
    )
    apart = trained(naive, Protocol(epochs=3, batch_size=size, select="last"))
    for one, other in zip(
        jax.tree.leaves(together.learner.params), jax.tree.leaves(apart.learner.params), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(together.losses[:, 0], apart.losses.mean(axis=1), rtol=1e-4)


@pytest.mark.parametrize("strategy", [naive, streaming_lda])
def test_prequential_accuracy_is_of_batches_before_they_are_learned(strategy):
    """By hand: the driver's states after every batch of a stream whose pieces are its batches."""
    protocol = Protocol(epochs=1, batch_size=11, select="last", prequential=True)
    build = build_with(strategy)
    states = list(drive_run(Run(build, protocol, (), SEQUENCE, KEY)))
    compiled = trained(strategy, protocol)
    np.testing.assert_array_equal(states[-1].result.prequential, compiled.prequential)
    assert compiled.prequential.shape == (3, 1)
    assert np.all((compiled.prequential >= 0) & (compiled.prequential <= 1))
    without = trained(strategy, Protocol(epochs=1, batch_size=11, select="last"))
    assert without.prequential is None
    for one, other in zip(
        jax.tree.leaves(without.learner.params),
        jax.tree.leaves(compiled.learner.params),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_batch_of_all_is_scored_by_the_net_before_the_task():
    """One batch per task: the net's accuracy on the task's own training samples before it."""
    size = int(SEQUENCE.tasks.train.mask.sum(axis=1).max())
    protocol = Protocol(epochs=1, batch_size=size, select="last", prequential=True)
    build = build_with(naive)
    states = list(drive_run(Run(build, protocol, (), SEQUENCE, KEY)))
    setup, _ = build(())
    for task in (1, 2):
        learner = states[task - 1].result.learner
        mask = np.asarray(SEQUENCE.tasks.train.mask[task])
        index = np.asarray(SEQUENCE.tasks.train.index[task])[mask]
        inputs = setup.gather(index, None)
        logits = setup.apply(learner.params, learner.batch_stats, inputs, False, None)[0].logits
        seen = np.asarray(learner.seen) | np.isin(np.arange(CLASSES), TASKS[task])
        right = np.where(seen, logits, -np.inf).argmax(axis=1) == LABELS[index]
        np.testing.assert_allclose(states[-1].result.prequential[task, 0], right.mean(), rtol=1e-6)


def test_a_stream_is_scored_among_the_classes_that_arrived_before():
    """The first batch of a stream has no class that was seen: nothing is right."""
    first = replace(online_protocol(500), prequential=True)
    # Class 0 would be the greatest score of no class.
    for tasks in (TASKS, [[0, 1], [2, 3, 4], [5]]):
        sequence = class_incremental(LABELS, LABELS, tasks, CLASSES, 0.0, test_offset=0)
        assert trained(naive, first, sequence).prequential[0, 0] == 0


def test_duplicates_have_their_own_places_in_a_shuffle():
    """Ten copies of a sample among fifty are not together in all orders."""
    index = jnp.concatenate([jnp.zeros(10, int), jnp.arange(1, 41)])
    samples = Samples(index, index[:, None] % 3, jnp.ones(50, bool))
    keys = jax.random.split(jax.random.key(0), 400)
    slots = jax.vmap(lambda key: shuffle(Epoch(samples, samples.mask), key).slots)(keys)
    places = np.nonzero(np.asarray(slots) < 10)[1].reshape(400, 10)
    assert np.all(np.sort(places, axis=1) == places)
    spread = places[:, -1] - places[:, 0]
    # The range of ten places drawn of fifty has the mean 9/11 * 51 - 0 = 41.7; together it is 9.
    assert abs(spread.mean() - 9 / 11 * 51) < 1
    # Every slot is in every place equally often: chi-square on 49 degrees of freedom.
    counts = np.bincount(np.asarray(slots)[:, 0], minlength=50)
    assert ((counts - 8) ** 2 / 8).sum() < 49 + 4 * np.sqrt(98)


def test_padding_changes_no_order_wherever_it_stands():
    index = jnp.arange(20)
    plain = Samples(index, index[:, None] % 3, jnp.ones(20, bool))
    mask = np.ones(33, bool)
    mask[[0, 4, 5, 11, 12, 17, 20, 21, 22, 29, 30, 31, 32]] = False
    padded = Samples(
        jnp.zeros(33, int).at[np.flatnonzero(mask)].set(index),
        jnp.zeros((33, 1), int).at[np.flatnonzero(mask)].set(plain.labels),
        jnp.asarray(mask),
    )
    key = jax.random.key(3)
    orders = []
    for samples in (plain, padded):
        epoch = shuffle(Epoch(samples, samples.mask), key)
        assert int(epoch.count) == 20
        orders.append(samples.index[epoch.slots[:20]].tolist())
    assert orders[0] == orders[1]


def test_without_any_validation_slot_nothing_is_gathered():
    """Streams hold no slot at all, which ended in a gather's error."""
    sequence = SEQUENCE._replace(
        tasks=SEQUENCE.tasks._replace(
            valid=jax.tree.map(lambda leaf: leaf[:, :0], SEQUENCE.tasks.valid)
        )
    )
    protocol = Protocol(epochs=1, batch_size=11, select="last")
    result = jax.jit(lambda key: run_sequence(Run(build_with(naive), protocol, (), sequence, key)))(
        KEY
    )
    assert np.isnan(result.validation).all()
    assert np.isfinite(result.losses).all()


def test_vmapped_runs_without_validation_make_nothing_ready():
    """A `cond` would be a `select` under vmap, and what is trained for it (GDumb) be paid for."""
    setup, calls = small_setup(), []

    def counted(memory, learner, key):
        jax.debug.callback(lambda: calls.append(1))
        return memory, learner

    strategy = naive(setup)._replace(before_evaluation=counted)
    learner = small_learner(setup, range(CLASSES))
    held = samples_of([0, 1, 2])

    @jax.jit
    @jax.vmap
    def score(mask, key):
        return validate(setup, strategy, (), learner, held._replace(mask=mask), 2, key)

    keys = jax.random.split(KEY, 2)
    assert np.isnan(score(jnp.zeros((2, 3), bool), keys)).all()
    jax.effects_barrier()
    assert not calls
    assert np.isfinite(score(jnp.ones((2, 3), bool), keys)).all()
    jax.effects_barrier()
    assert calls
