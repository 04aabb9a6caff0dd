"""Nearest-mean prediction and review of any strategy, in float64 NumPy."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.ema import with_ema
from everlight.continual.engine import Protocol
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.replay_tricks import (
    held_samples,
    predict_by_nearest_mean,
    review_memory,
)
from tests.continual import small_net as net
from tests.continual.engine.short_runs import trained
from tests.continual.small_net import CLASSES, LABELS, RATE, START

SETUP = net.small_setup()
REPLAY = experience_replay(SETUP, 8)
STREAM = [[0, 6, 1], [12, 7, 18]]
TASK = net.task_of(0, [0, 1, 2], np.concatenate(STREAM))
SEEN = np.arange(CLASSES) < 3


def test_the_nearest_mean_predicts_and_training_stays_the_same():
    batches = [net.batch_of(batch) for batch in STREAM]
    ((plain, learner),) = net.run_tasks(SETUP, REPLAY, [(TASK, batches)])
    strategy = predict_by_nearest_mean(SETUP, REPLAY)
    ((memory, same),) = net.run_tasks(SETUP, strategy, [(TASK, batches)])
    jax.tree.map(np.testing.assert_array_equal, (memory.inner, same), (plain, learner))

    params = {name: np.asarray(leaf, float) for name, leaf in learner.params.items()}
    held = np.concatenate(STREAM)
    features = net.unit(net.forward(params, held)[1])
    means = np.stack([net.unit(features[LABELS[held] == label].mean(axis=0)) for label in (0, 1)])
    index = np.arange(40)
    away = np.sum((net.unit(net.forward(params, index)[1])[:, None] - means) ** 2, axis=-1)
    ready = jax.jit(strategy.before_evaluation)(memory, same, jax.random.key(0))
    scores = strategy.predict(*ready, SETUP.gather(jnp.asarray(index), None))
    np.testing.assert_allclose(scores[:, :2], -away, rtol=1e-4, atol=1e-5)
    # Classes without a stored sample have the least score, that of the opposite direction.
    np.testing.assert_array_equal(scores[:, 2:], -4)


@pytest.mark.parametrize("factor", [0.1, 0.5])
def test_a_review_is_an_epoch_on_the_memory_at_a_smaller_rate(factor):
    """Five samples in batches of two give the float64 result of one of their thirty orders."""
    held = [0, 6, 1, 7, 8]
    memory = Reservoir(net.samples_of([*held, 39, 39], [1, 1, 1, 1, 1, 0, 0]), jnp.int32(5))
    strategy = review_memory(SETUP, REPLAY, 2, factor)
    before = net.small_learner(SETUP, [0, 1, 2])
    after, learner = jax.jit(strategy.before_evaluation)(memory, before, jax.random.key(4))
    jax.tree.map(np.testing.assert_array_equal, after, memory)
    assert learner.batch_stats["passes"] == 3
    assert learner.step == before.step
    assert learner.schedule.factor == before.schedule.factor

    matches = 0
    for order in itertools.permutations(held):
        if order[0] > order[1] or order[2] > order[3]:
            continue
        params = START
        for batch in (order[:2], order[2:4], order[4:]):
            gradient = net.batch_gradient(params, batch, SEEN)
            params = {name: params[name] - factor * RATE * gradient[name] for name in params}
        matches += all(
            np.allclose(learner.params[name], leaf, rtol=0, atol=2e-6)
            for name, leaf in params.items()
        )
    assert matches == 1


def test_a_review_of_an_empty_memory_changes_nothing():
    strategy = review_memory(SETUP._replace(optimizer=optax.sgd(RATE)), REPLAY)
    memory, learner = net.untrained(SETUP, strategy)
    _, after = jax.jit(strategy.before_evaluation)(memory, learner, jax.random.key(0))
    net.assert_trees_close(after.params, learner.params, rtol=0, atol=0)
    assert after.batch_stats["passes"] == 0


def test_parts_of_a_memory_are_joined_and_a_memory_without_samples_is_refused():
    first, second = net.samples_of([3, 4], [1, 0]), net.samples_of([3, 5, 7])
    held = held_samples({"buffer": first, "held out": second, "other": jnp.zeros(3)})
    assert sorted(np.asarray(held.index)[np.asarray(held.mask)].tolist()) == [3, 5, 7]
    strategy = predict_by_nearest_mean(SETUP, naive(SETUP))
    with pytest.raises(ValueError, match="a tuple has no stored samples"):
        net.untrained(SETUP, strategy)


def test_training_continues_from_the_reviewed_network_where_a_task_is_evaluated():
    """The review trains the moving average, if there is one, and no step of the network changes."""
    protocol = Protocol(epochs=1, batch_size=2, select="last", evaluation_batch=32)

    def losses(wrap, interval=1):
        result = trained(
            lambda setup: wrap(setup, experience_replay(setup, 8)),
            replace(protocol, evaluate_every=interval),
        )
        return np.asarray(result.losses[:, 0])

    plain, reviewed = losses(lambda setup, strategy: strategy), losses(review_memory)
    np.testing.assert_array_equal(reviewed == plain, [True, False, False])
    np.testing.assert_array_equal(losses(review_memory, 2)[:2], plain[:2])
    np.testing.assert_array_equal(losses(review_memory, 3), plain)
    averaged = losses(lambda setup, strategy: with_ema(review_memory(setup, strategy), 0.5))
    np.testing.assert_array_equal(averaged, plain)
