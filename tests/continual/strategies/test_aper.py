"""APER against PILOT's two networks and prototypes in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.strategies.aper import aper
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, START

SETUP = net.small_setup()
STRATEGY = aper(SETUP)
FIRST, SECOND = [0, 1, 6, 2, 7, 8, 12], [3, 9, 5, 11, 15]
"""Samples of classes 0 to 2, and of 3 and 5."""
BATCHES = [net.batch_of([0, 1, 6, 2]), net.batch_of([7, 8, 12, 3], [1, 1, 1, 0])]
TASKS = [
    # A slot that is masked out has a sample of another class.
    (net.task_of(0, [0, 1, 2], net.samples_of([*FIRST, 4], [1] * 7 + [0])), BATCHES),
    (net.task_of(1, [3, 5], SECOND), [SECOND]),
]
TEST = np.arange(20, 40)
INPUTS = jnp.float32(DATA[TEST])


def features(params, index):
    """Join features of the first and of the adapted network in evaluation mode."""
    return np.concatenate([net.forward(START, index)[1], net.forward(params, index)[1]], axis=1)


@pytest.fixture(scope="module")
def after_each():
    return net.run_tasks(SETUP, STRATEGY, TASKS)


def test_two_tasks_are_the_official_procedure(after_each):
    adapted, _ = net.descend(START, BATCHES, np.isin(np.arange(CLASSES), [0, 1, 2]), net.no_penalty)
    assert max(np.abs(adapted[name] - START[name]).max() for name in START) > 1e-2
    prototypes = {}
    met = [(FIRST, [0, 1, 2]), (SECOND, [3, 5])]
    for (memory, learner), (index, classes) in zip(after_each, met, strict=True):
        net.assert_trees_close(learner.params, adapted)
        net.assert_trees_close(memory.start, START)
        for c in classes:
            selected = [number for number in index if LABELS[number] == c]
            prototypes[c] = features(adapted, selected).mean(axis=0)
        expected = net.unit(features(adapted, TEST)) @ net.unit(np.stack([*prototypes.values()])).T
        predicted = np.asarray(STRATEGY.predict(memory, learner, INPUTS))
        np.testing.assert_allclose(predicted[:, [*prototypes]], expected, atol=1e-5)
        others = [c for c in range(CLASSES) if c not in prototypes]
        assert np.all(predicted[:, others] == -np.inf)


def test_later_tasks_train_nothing_whatever_the_optimizer():
    decaying = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9))
    setup = SETUP._replace(optimizer=decaying)
    (_, first), (_, second) = net.run_tasks(setup, aper(setup), TASKS)
    jax.tree.map(np.testing.assert_array_equal, first.params, second.params)
    jax.tree.map(np.testing.assert_array_equal, first.batch_stats, second.batch_stats)
    assert first.batch_stats["passes"] == len(BATCHES)


def test_while_the_first_task_is_learned_its_head_predicts():
    memory, learner = net.untrained(SETUP, STRATEGY)
    memory, learner = net.begin(SETUP, STRATEGY, memory, learner, TASKS[0][0])
    predicted = STRATEGY.predict(memory, learner, INPUTS)
    np.testing.assert_allclose(predicted, net.forward(START, TEST)[2], rtol=1e-5, atol=1e-5)
