"""Replay without a limit: all samples so far with their own labels, from the last network."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Task, TaskSequence
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.tasks import take_task
from everlight.continual.strategies.cumulative import cumulative, joint
from everlight.continual.strategies.task_arithmetic import task_arithmetic
from everlight.continual.strategies.ties import ties
from everlight.continual.strategies.unlimited_replay import unlimited_replay
from tests.continual import many_labels as many
from tests.continual import small_net as net
from tests.continual.many_labels import PAIRS
from tests.continual.small_net import RATE, START

SETUP = many.binary_setup()
STRATEGY = unlimited_replay(SETUP)
# Images 0 and 6 belong to class 0 in the first task and to class 2 in the second one.
PARTS = [
    many.labelled([0, 6, 12, 39], [0, 0, 1, 5], mask=[1, 1, 1, 0]),
    many.labelled([0, 6, 3, 9], [2, 2, 3, 3]),
    many.labelled([4, 39, 39, 10], [4, 5, 5, 4], mask=[1, 0, 0, 1]),
]
ROWS = [(0, 0), (6, 0), (12, 1), (0, 2), (6, 2), (3, 3), (9, 3), (4, 4), (10, 4)]


def tasks():
    train = jax.tree.map(lambda *parts: jnp.stack(parts), *PARTS)
    classes = jnp.stack([net.classes_mask(c) for c in ([0, 1], [2, 3], [4])])
    stream = Task(train, train, classes, jnp.arange(3))
    sequence = TaskSequence(stream, PARTS[0], jnp.ones((3, 4), bool), jnp.array([0, 0, 1, 1, 2, 2]))
    return [take_task(STRATEGY, Protocol(), sequence, jnp.array(number)) for number in range(3)]


def test_an_epoch_is_every_sample_so_far_with_the_label_of_its_task():
    for task, count, earlier in zip(tasks(), (3, 7, 9), (0, 3, 7), strict=True):
        epoch = STRATEGY.epoch_data((), task)
        mask = np.asarray(epoch.samples.mask)
        labels = np.asarray(epoch.samples.labels)[mask]
        result = zip(
            np.asarray(epoch.samples.index)[mask].tolist(), labels[:, 0].tolist(), strict=True
        )
        assert list(result) == ROWS[:count]
        np.testing.assert_array_equal(labels[:, 1], -1)
        assert STRATEGY.stored_samples((), task) == earlier


def test_cumulative_and_joint_choose_their_epoch_on_the_validation_of_all_tasks_so_far():
    """Here the validation samples are the training samples; replay has those of its task alone."""
    for number, task in enumerate(tasks()):
        for strategy in (cumulative(SETUP), joint(SETUP, 3)):
            samples = strategy.valid_data((), task)
            mask = np.asarray(samples.mask)
            assert mask.sum() == (3, 7, 9)[number]
            assert set(np.asarray(samples.index)[mask]) == {row[0] for row in ROWS[: mask.sum()]}
        assert np.sum(STRATEGY.valid_data((), task).mask) == (3, 4, 2)[number]


def test_a_task_goes_on_from_the_last_network_over_all_seen_classes():
    index = [0, 6, 3]
    batch = many.labelled_batch(index)
    first, second, _ = tasks()
    after = net.run_tasks(SETUP, STRATEGY, [(first, [batch]), (second, [batch])])
    params = START
    for seen, (_, learner) in zip(([0, 1], [0, 1, 2, 3]), after, strict=True):
        slope = many.binary_gradient(
            params, index, many.targets_of(PAIRS[index]), net.classes_mask(seen)
        )
        params = {name: leaf - RATE * slope[name] for name, leaf in params.items()}
        net.assert_trees_close(learner.params, params, atol=1e-5)


@pytest.mark.parametrize("make", [cumulative, task_arithmetic, ties])
def test_a_task_from_other_parameters_has_no_momentum_of_the_last_ones(make):
    """A protocol may keep the optimizer's state from task to task."""
    setup = SETUP._replace(optimizer=optax.sgd(RATE, momentum=0.9))
    strategy, learner = make(setup), net.small_learner(setup, [0, 1])
    memory = strategy.init(jax.random.key(0), learner)
    moving = learner._replace(opt_state=jax.tree.map(jnp.ones_like, learner.opt_state))
    _, started = strategy.begin_task(memory, moving, tasks()[1], jax.random.key(0))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(started.opt_state))
