"""Separate networks against gradient descent in float64 NumPy, task by task."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual.strategies.separate_networks import separate_networks
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA

TASKS = [[0, 1], [2, 3], [4, 5]]
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [[net.batch_of(t[:3]), net.batch_of(t[3:])] for t in TRAIN]
SEQUENCE = [(net.task_of(t, part, TRAIN[t]), BATCHES[t]) for t, part in enumerate(TASKS)]
SETUP = net.small_setup()
INPUTS = jnp.float32(DATA)
STRATEGY = separate_networks(SETUP, 3)


@functools.cache
def after_tasks():
    return net.run_tasks(SETUP, STRATEGY, SEQUENCE)


def trained_by_hand(task):
    """Train a new network on the task's own classes."""
    active = np.isin(np.arange(CLASSES), TASKS[task])
    return net.descend(net.START, BATCHES[task], active, net.no_penalty)[0]


def logits_by_hand(task):
    return net.forward(trained_by_hand(task), np.arange(len(DATA)))[2]


def test_each_task_trains_a_new_network_on_its_own_classes():
    memory, _ = after_tasks()[-1]
    for task in range(3):
        stored = {name: leaf[task] for name, leaf in memory.params.items()}
        net.assert_trees_close(stored, trained_by_hand(task))


def test_later_tasks_change_no_bit_of_a_network():
    (first, _), _, (last, _) = after_tasks()
    for name, leaf in last.params.items():
        np.testing.assert_array_equal(leaf[0], first.params[name][0])


def test_given_the_task_its_network_predicts():
    memory, learner = after_tasks()[-1]
    predict = jax.jit(STRATEGY.predict_task)
    for task in range(3):
        scores = predict(memory, learner, INPUTS, jnp.int32(task))
        np.testing.assert_allclose(scores, logits_by_hand(task), rtol=1e-4, atol=1e-5)


def test_without_the_task_each_class_has_the_score_of_its_network():
    memory, learner = after_tasks()[-1]
    scores = jax.jit(STRATEGY.predict)(memory, learner, INPUTS)
    expected = np.concatenate([logits_by_hand(task)[:, TASKS[task]] for task in range(3)], axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_during_a_task_its_network_and_classes_predict():
    memory, learner = after_tasks()[0]
    memory, learner = net.begin(SETUP, STRATEGY, memory, learner, SEQUENCE[1][0])
    moved = learner._replace(params=jax.tree.map(lambda leaf: 0.5 * leaf, learner.params))
    expected = net.forward(jax.tree.map(lambda leaf: 0.5 * leaf, net.START), range(len(DATA)))[2]
    scores = np.asarray(STRATEGY.predict(memory, moved, INPUTS))
    np.testing.assert_allclose(scores[:, 2:4], expected[:, 2:4], rtol=1e-4, atol=1e-5)
    assert np.all(scores[:, [0, 1, 4, 5]] == -np.inf)
    scores = STRATEGY.predict_task(memory, moved, INPUTS, jnp.int32(1))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_the_optimizer_starts_from_zeros_and_frozen_parameters_stay():
    setup = SETUP._replace(
        init=lambda key: (jax.tree.map(jnp.ones_like, SETUP.init(key)[0]), SETUP.init(key)[1]),
        optimizer=optax.adam(0.1),
        trainable=lambda params: {name: name.startswith("head") for name in params},
    )
    strategy = separate_networks(setup, 3)
    learner = net.small_learner(setup, TASKS[0])
    state = jax.tree.map(lambda leaf: leaf + 1, learner.opt_state)
    memory = strategy.init(jax.random.key(0), learner)
    _, begun = strategy.begin_task(
        memory, learner._replace(opt_state=state), SEQUENCE[0][0], jax.random.key(1)
    )
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(begun.opt_state))
    for name, leaf in begun.params.items():
        expected = np.ones_like(leaf) if name.startswith("head") else learner.params[name]
        np.testing.assert_array_equal(leaf, expected)
