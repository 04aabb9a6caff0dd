"""PackNet: two tasks done again in float64, and old tasks that lose nothing, bit for bit."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.packnet import FREE, PRUNED, packnet, prune_smallest
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, RATE, SHIFT, START
from tests.continual.strategies.references.separable_tasks import (
    assert_nothing_is_lost,
    decaying,
    learn,
)

PRUNE, RETRAIN = 0.6, 3
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [[net.batch_of(t[:3]), net.batch_of(t[[5, 1, 3]]), net.batch_of(t[3:5])] for t in TRAIN]
SEQUENCE = [(net.task_of(t, [2 * t, 2 * t + 1], TRAIN[t]), BATCHES[t]) for t in range(3)]


def without_statistics(setup):
    """Return the small net without batch statistics, which trains in training mode throughout."""

    def apply(params, batch_stats, inputs, train, key):
        return setup.apply(params, {"passes": 0}, inputs, train, key)[0], {}

    return setup._replace(init=lambda key: (setup.init(key)[0], {}), apply=apply)


def packnet_of(setup):
    # A batch holds a whole task, so that retraining has no order.
    return net.compiled(packnet(setup, PRUNE, retrain_epochs=RETRAIN, batch_size=len(TRAIN[0])))


@functools.cache
def after_tasks():
    """Return the setup, the strategy, and memory and learner after each of the three tasks."""
    setup = without_statistics(net.small_setup())
    strategy = packnet_of(setup)
    return setup, strategy, net.run_tasks(setup, strategy, SEQUENCE)


def tasks_by_hand():
    """Return parameters and the hidden weights' owners after each task."""
    params = {name: leaf.copy() for name, leaf in START.items()}
    owner, after = np.full(START["hidden"].shape, -1), []

    def step(task, index, trained):
        selected = np.arange(CLASSES) // 2 == task
        gradient = net.batch_gradient(params, index, selected)
        for name in ("hidden_bias", "head_bias"):
            gradient[name] *= task == 0
        gradient["hidden"] *= trained
        for name, leaf in gradient.items():
            params[name] = params[name] - RATE * leaf

    for task, batches in enumerate(BATCHES):
        for batch in batches:
            step(task, np.asarray(batch.index), owner == -1)
        free = np.flatnonzero(owner == -1)
        smallest = np.argsort(np.abs(params["hidden"].flat[free]))
        pruned = free[smallest[: round(PRUNE * len(free))]]
        params["hidden"].flat[pruned] = 0
        stored = owner == -1
        stored.flat[pruned] = False
        for _ in range(RETRAIN):
            step(task, TRAIN[task], stored)
        owner[stored] = task
        after.append(({n: leaf.copy() for n, leaf in params.items()}, owner.copy()))
    return after


def test_three_tasks_done_again_in_float64():
    *_, after = after_tasks()
    for (memory, learner), (params, owner) in zip(after, tasks_by_hand(), strict=True):
        net.assert_trees_close(learner.params, params, atol=1e-5)
        np.testing.assert_array_equal(memory.owner["hidden"], owner)
    # Tasks own 6 of 15 weights, then 4 of 9, then 2 of 5; the other 3 are 0.
    np.testing.assert_array_equal(np.bincount(owner.ravel() + 1), [3, 6, 4, 2])
    assert np.all(np.asarray(learner.params["hidden"])[owner == -1] == 0)
    head = np.asarray(memory.owner["head"])
    np.testing.assert_array_equal(head, np.broadcast_to(np.arange(CLASSES) // 2, head.shape))


def test_steps_of_retraining_are_counted():
    _, learner = after_tasks()[2][0]
    assert learner.step == len(BATCHES[0]) + RETRAIN


def test_with_the_task_identity_the_weights_up_to_it_predict():
    _, strategy, after = after_tasks()
    memory, learner = after[-1]
    params = {name: np.asarray(leaf, float) for name, leaf in learner.params.items()}
    for task in range(3):
        stored = np.isin(memory.owner["hidden"], range(task + 1))
        bent = np.tanh(DATA @ (params["hidden"] * stored) + params["hidden_bias"])
        expected = bent @ params["head"] + params["head_bias"]
        inputs = jnp.float32(DATA)
        result = strategy.predict_task(memory, learner, inputs, jnp.array(task))
        np.testing.assert_allclose(result, expected, atol=1e-5)
    # The last task's weights are all that there are.
    np.testing.assert_allclose(strategy.predict(memory, learner, inputs), expected, atol=1e-5)


def test_while_a_task_is_learned_only_its_classes_are_predicted():
    setup, strategy, _ = after_tasks()
    learner = net.small_learner(setup, range(4))
    memory = strategy.init(jax.random.key(0), learner)
    memory, _ = strategy.begin_task(memory, learner, SEQUENCE[1][0], jax.random.key(0))
    predicted = strategy.predict(memory, learner, jnp.float32(DATA))
    np.testing.assert_array_equal(
        np.isfinite(predicted), [[False, False, True, True, False, False]] * 40
    )


def test_batch_statistics_stay_after_the_first_task():
    """Later tasks learn by them, in evaluation mode."""
    setup = net.small_setup()
    strategy, first = packnet_of(setup), SEQUENCE[0]
    _, learner = net.run_tasks(setup, strategy, [first])[-1]
    passes = len(BATCHES[0]) + RETRAIN
    assert learner.batch_stats["passes"] == passes
    second = (SEQUENCE[1][0], BATCHES[1][:1])
    (_, start), (_, after) = net.run_tasks(setup, packnet(setup, 0.0, 0), [first, second])
    assert after.batch_stats["passes"] == len(BATCHES[0])
    # Without pruning no weight below the head is free; the head's move by the features as they are.
    params = {name: np.asarray(leaf, float) for name, leaf in start.params.items()}
    index = np.asarray(BATCHES[1][0].index)
    bent = np.tanh((DATA[index] + SHIFT) @ params["hidden"] + params["hidden_bias"])
    logits = bent @ params["head"] + params["head_bias"]
    slope = net.softmax(logits, np.arange(CLASSES) // 2 == 1) - np.eye(CLASSES)[LABELS[index]]
    params["head"] -= RATE * bent.T @ slope / len(index)
    net.assert_trees_close(after.params, params, atol=1e-6)


def test_the_smallest_free_weights_are_pruned_by_hand():
    owner = jnp.array([[FREE, 0, FREE], [FREE, FREE, 1]])
    weights = jnp.array([[0.3, 0.01, -0.2], [-0.5, 0.1, 0.02]])
    result = prune_smallest(owner, weights, 0.5)
    np.testing.assert_array_equal(result, [[FREE, 0, PRUNED], [FREE, PRUNED, 1]])
    # Ties are broken by place, so that the share is what it is.
    result = prune_smallest(jnp.full((2, 2), FREE), jnp.ones((2, 2)), 0.75)
    np.testing.assert_array_equal(result, [[PRUNED, PRUNED], [PRUNED, FREE]])
    bias = jnp.full(3, FREE)
    np.testing.assert_array_equal(prune_smallest(bias, jnp.arange(3.0), 0.9), bias)


@functools.cache
def separable():
    return learn(lambda setup: packnet(setup, 0.6, retrain_epochs=5, batch_size=8), decaying())


def test_weights_of_earlier_tasks_stay_bit_for_bit():
    """They stay under momentum and weight decay."""
    after = separable()
    for task, early in enumerate(after):
        for late in after[task + 1 :]:

            def of_task(state, owners, task=task):
                owned = jax.tree.map(lambda o: (o >= 0) & (o <= task), owners)
                return jax.tree.map(
                    lambda o, leaf: jnp.where(o, leaf, 0), owned, state.learner.params
                )

            owners = early.memory.owner
            chex.assert_trees_all_equal(of_task(late, owners), of_task(early, owners))
            assert np.any(
                late.learner.params["first"]["kernel"] != early.learner.params["first"]["kernel"]
            )


def test_with_the_task_identity_earlier_tasks_lose_nothing():
    assert_nothing_is_lost(separable())
