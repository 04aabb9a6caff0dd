"""CLS-ER against a loop in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import StepInfo
from everlight.continual.strategies.cls_er import cls_er, surer_logits
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, RATE, START

SETUP = net.small_setup()
LAMBDA, PLASTIC, STABLE = 0.8, 0.6, 0.7
STREAM = [[0, 6], [12, 18], [1, 7], [13, 19], [25, 31]]
"""Batches of a task with two of six classes, one after the other: the first one is forgotten."""
ALL = np.ones(CLASSES, bool)


def train_by_hand(active):
    """Return parameters, plastic and stable averages after steps that replay the whole memory."""
    params = plastic = stable = START
    held, chosen = [], set()
    for number, batch in enumerate(STREAM, start=1):
        gradient = net.batch_gradient(params, [*batch, *held], active)
        if held:
            of_stable, of_plastic, now = (
                net.forward(item, held, train=True)[2] for item in (stable, plastic, params)
            )
            rows = np.arange(len(held)), LABELS[held]
            surer = net.softmax(of_stable, ALL)[rows] > net.softmax(of_plastic, ALL)[rows]
            chosen |= set(surer.tolist())
            away = now - np.where(surer[:, None], of_stable, of_plastic)
            contribution = net.backward(params, held, 2 * LAMBDA * away / CLASSES, train=True)
            gradient = {name: gradient[name] + contribution[name].mean(axis=0) for name in gradient}
        params = {name: params[name] - RATE * gradient[name] for name in params}
        plastic, stable = (
            {name: decay * old[name] + (1 - decay) * params[name] for name in params}
            for old, decay in (
                (plastic, min(1 - 1 / (number + 1), PLASTIC)),
                (stable, min(1 - 1 / (number + 1), STABLE)),
            )
        )
        held += batch
    assert active.all() or chosen == {True, False}, "both averages must teach"
    return params, plastic, stable


@pytest.mark.parametrize(("loss_over", "active"), [("seen", np.arange(CLASSES) < 2), ("all", ALL)])
def test_five_steps_are_the_loop_in_float64(loss_over, active):
    strategy = cls_er(SETUP, 20, LAMBDA, PLASTIC, 1.0, STABLE, 1.0, 1, 20, loss_over)
    task = net.task_of(0, [0, 1], np.concatenate(STREAM))
    ((memory, learner),) = net.run_tasks(SETUP, strategy, [(task, STREAM)])
    params, plastic, stable = train_by_hand(active)
    net.assert_trees_close(learner.params, params, rtol=2e-4, atol=2e-5)
    net.assert_trees_close(memory.plastic.params, plastic, rtol=2e-4, atol=2e-5)
    net.assert_trees_close(memory.stable.params, stable, rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(memory.held.samples.index[:10], np.concatenate(STREAM))
    # Replay begins with the second step; the network passes twice from then on.
    assert memory.stable.batch_stats["passes"] == 4
    assert learner.batch_stats["passes"] == 9


def moves(strategy, keys, steps=1):
    """Return the moves of both averages after some steps of a network that is 1 from the start."""
    start = net.small_learner(SETUP, [0, 1])
    moved = net.small_learner(SETUP, [0, 1], {name: leaf + 1 for name, leaf in START.items()})
    info = StepInfo((), (), 0.0, (start.batch_stats, start.batch_stats), net.batch_of([0, 1]))

    def move(key):
        memory = strategy.init(jax.random.key(0), start)
        for part in jax.random.split(key, steps):
            memory, _ = strategy.after_step(memory, moved, info, part)
        return [item.params["head_bias"][0] for item in (memory.plastic, memory.stable)]

    result = np.array(jax.vmap(move)(jax.random.split(jax.random.key(1), keys)))
    return result - np.float32(START["head_bias"][0])


def test_an_average_moves_with_its_probability():
    """The shares of 2,000 keys are within four standard deviations of 0.0089 and 0.0102."""
    result = moves(cls_er(SETUP, 4, plastic_probability=0.8, stable_probability=0.3), 2000)
    went = result != 0
    # After the first step an average is the mean of both networks, for any decay above one half.
    np.testing.assert_allclose(result[went], 0.5, rtol=1e-5)
    np.testing.assert_allclose(went.mean(axis=1), [0.8, 0.3], atol=0.041)
    # The averages move independently.
    assert abs((went[0] & went[1]).mean() - 0.24) < 0.04


def test_the_decay_depends_on_the_steps_and_not_on_the_moves():
    """Two steps towards one network go 1/2 of the way, then 1/3 of the rest."""
    result = moves(
        cls_er(SETUP, 4, plastic_probability=0.5, stable_probability=0.5), 200, steps=2
    ).ravel()
    expected = np.array([0, 1 / 3, 1 / 2, 2 / 3])
    nearest = np.abs(result[:, None] - expected).argmin(axis=1)
    np.testing.assert_allclose(result, expected[nearest], atol=1e-5)
    assert {*nearest.tolist()} == {0, 1, 2, 3}


def tracked(params, batch_stats, inputs, train, key):
    """Apply the small net with a running mean of its logits as statistics, like batch norm's."""
    outputs, _ = SETUP.apply(params, {"passes": 0}, inputs, train, key)
    mean = batch_stats["mean"]
    if train:
        return outputs, {"mean": (mean + outputs.logits.mean()) / 2}
    return outputs._replace(logits=outputs.logits + mean), batch_stats


def test_every_network_has_the_statistics_of_its_own_passes():
    """The network passes the replayed samples first, then both batches; an average only those."""
    setup = SETUP._replace(
        init=lambda key: (net.as_float32(START), {"mean": jnp.zeros(())}), apply=tracked
    )
    strategy = cls_er(setup, 2, 0.0, 0.2, 1.0, 0.3, 1.0)
    first, second = STREAM[:2]
    task = net.task_of(0, [0, 1], first + second)
    ((memory, learner),) = net.run_tasks(
        setup, strategy, [(task, [net.batch_of(first), net.batch_of(second)])]
    )
    gradient = net.batch_gradient(START, first, np.arange(CLASSES) < 2)
    after = {name: START[name] - RATE * gradient[name] for name in START}
    plastic, stable = (
        {name: decay * START[name] + (1 - decay) * after[name] for name in START}
        for decay in (0.2, 0.3)
    )

    def mean(params, index):
        return net.forward(params, index, train=True)[2].mean()

    current = mean(START, first) / 2
    for index in (first, second + first):
        current = (current + mean(after, index)) / 2
    expected = current, mean(plastic, first) / 2, mean(stable, first) / 2
    result = [item.batch_stats["mean"] for item in (learner, memory.plastic, memory.stable)]
    np.testing.assert_allclose(result, expected, rtol=1e-4)
    scores = strategy.predict(memory, learner, setup.gather(jnp.arange(6), None))
    last = net.forward(jax.tree.map(np.asarray, memory.stable.params), range(6))[2]
    np.testing.assert_allclose(scores, last + expected[2], rtol=1e-4, atol=1e-5)


def test_the_surer_average_teaches_and_ties_take_the_plastic_one():
    stable, plastic = jnp.array([[2.0, 0], [2, 0], [1, 1]]), jnp.array([[1.0, 0], [1, 0], [0, 0]])
    result = surer_logits(stable, plastic, jnp.array([0, 1, 0]))
    np.testing.assert_array_equal(result, [[2, 0], [1, 0], [0, 0]])
