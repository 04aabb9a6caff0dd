"""Several updates per batch, prequential accuracy, runs without validation, fixed samples."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Epoch, Plateau
from everlight.continual.engine import Protocol, online_protocol, validate
from everlight.continual.engine.epochs import train_on
from everlight.continual.strategies import experience_replay, naive, streaming_lda
from everlight.scenarios.class_incremental import class_incremental
from tests.continual import small_net as net
from tests.continual.engine.short_runs import KEY, SEQUENCE, SIZES, TASKS, run_of, trained
from tests.continual.small_net import CLASSES, LABELS
from tests.single_run import drive_run


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
    """One batch per task and three updates equal three epochs of a full batch, up to rounding."""
    batch = {"batch_size": int(SIZES.max()), "select": "last"}
    together = trained(naive, Protocol(epochs=1, updates_per_batch=3, **batch))
    apart = trained(naive, Protocol(epochs=3, **batch))
    net.assert_trees_close(together.learner.params, apart.learner.params, rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(together.losses[:, 0], apart.losses.mean(axis=1), rtol=1e-4)


@pytest.mark.parametrize("strategy", [naive, streaming_lda])
def test_prequential_accuracy_is_of_batches_before_they_are_learned(strategy):
    """The reference is the driver's state after every batch of a stream of such pieces."""
    protocol = Protocol(epochs=1, batch_size=11, select="last", prequential=True)
    states = list(drive_run(run_of(strategy, protocol)))
    compiled = trained(strategy, protocol)
    np.testing.assert_array_equal(states[-1].result.prequential, compiled.prequential)
    assert compiled.prequential.shape == (3, 1)
    assert np.all((compiled.prequential >= 0) & (compiled.prequential <= 1))
    without = trained(strategy, Protocol(epochs=1, batch_size=11, select="last"))
    assert without.prequential is None
    params = without.learner.params, compiled.learner.params
    jax.tree.map(np.testing.assert_array_equal, *params)


def test_a_batch_of_all_samples_is_scored_by_the_net_before_the_task():
    """One batch per task gives the accuracy on the task's training samples before the task."""
    protocol = Protocol(epochs=1, batch_size=int(SIZES.max()), select="last", prequential=True)
    states, setup = list(drive_run(run_of(naive, protocol))), net.small_setup()
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


def test_without_any_validation_slot_nothing_is_gathered():
    """Streams hold no slot at all, which ended in a gather's error."""
    none = jax.tree.map(lambda leaf: leaf[:, :0], SEQUENCE.tasks.valid)
    sequence = SEQUENCE._replace(tasks=SEQUENCE.tasks._replace(valid=none))
    result = trained(naive, Protocol(epochs=1, batch_size=11, select="last"), sequence)
    assert np.isnan(result.validation).all()
    assert np.isfinite(result.losses).all()


def test_vmapped_runs_without_validation_make_nothing_ready():
    """Under vmap a `cond` is a `select`, so that training for validation (GDumb) would run."""
    setup, calls = net.small_setup(), []

    def counted(memory, learner, key):
        jax.debug.callback(lambda: calls.append(1))
        return memory, learner

    strategy = naive(setup)._replace(before_evaluation=counted)
    learner = net.small_learner(setup, range(CLASSES))
    held = net.samples_of([0, 1, 2])

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


SETUP = net.small_setup()
SAMPLES = net.samples_of(np.arange(9), np.arange(9) < 7)
EPOCH = Epoch(SAMPLES, jnp.zeros(9, bool))
SCHEDULE = Plateau(jnp.float32(0.5), jnp.float32(0.25), jnp.int32(1))


def trained_on_samples(factor=None, epochs=2):
    learner = net.small_learner(SETUP, [0, 1])._replace(schedule=SCHEDULE)
    task, key = net.task_of(0, [0, 1], SAMPLES), jax.random.key(0)
    inputs = (SETUP, naive(SETUP), (), learner, task, EPOCH)
    settings = {"epochs": epochs, "batch_size": 3, "key": key, "learning_rate_factor": factor}
    return learner, train_on(*inputs, **settings)


def moved(before, after):
    return np.abs(after.params["head"] - before.params["head"]).max()


def test_every_epoch_takes_all_samples_once():
    """Each of two epochs takes seven samples in steps of three."""
    before, after = trained_on_samples()
    assert after.step - before.step == 6
    assert moved(before, after) > 0


def test_the_factor_of_an_epoch_scales_its_rate_and_the_schedule_stays():
    one = trained_on_samples(epochs=1)
    same = trained_on_samples(lambda epoch: jnp.where(epoch == 0, jnp.float32(0.5), 0.0))
    np.testing.assert_array_equal(same[1].params["head"], one[1].params["head"])
    assert moved(*trained_on_samples(lambda epoch: jnp.float32(0))) == 0
    assert same[1].schedule == SCHEDULE
