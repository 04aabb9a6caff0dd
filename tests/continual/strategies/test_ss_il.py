"""SS-IL against the authors' loss in float64, over three tasks' classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from everlight.continual.strategies.ss_il import ss_il
from tests.continual import small_net as net
from tests.continual.many_labels import OLD, mean_gradient, teacher_logits
from tests.continual.small_net import CLASSES, LABELS, RATE, START

KEY, SETUP = jax.random.key(0), net.small_setup()
# Class 5 is still to come.
TASKS = [[0], [1, 4], [2, 3]]
KNOWN, NEW = [0, 1, 4], [2, 3]
NOTHING = net.batch_of([0], [0])
"""Replayed batch whose only slot is padding."""


def loss_by_hand(params, old, index, groups, earlier):
    """Return mean loss and gradient in float64.

    `old` are the parameters before the task, `groups` pairs of rows and the classes of their
    cross-entropy, `earlier` the classes of each earlier task.
    """
    logits, before = net.forward(params, index, train=True)[2], teacher_logits(old, index)
    slope, losses = np.zeros_like(logits), np.zeros(len(index))
    for rows, classes in groups:
        one_hot = np.eye(CLASSES)[LABELS[index[rows]]][:, classes]
        part = logits[np.ix_(rows, classes)]
        losses[rows] -= np.sum(one_hot * log_softmax(part, axis=1), axis=1)
        slope[np.ix_(rows, classes)] += softmax(part, axis=1) - one_hot
    for classes in earlier:
        soft, now = (item[:, classes] / 2 for item in (before, logits))
        away = log_softmax(soft, axis=1) - log_softmax(now, axis=1)
        losses += 4 * np.sum(softmax(soft, axis=1) * away, axis=1)
        slope[:, classes] += 4 * (softmax(now, axis=1) - softmax(soft, axis=1)) / 2
    return losses.mean(), mean_gradient(params, index, slope)


def test_a_step_is_the_official_loss():
    """Each sample has a cross-entropy over new or old classes; each earlier task a divergence."""
    strategy = net.compiled(ss_il(SETUP))
    learner = net.small_learner(SETUP, [], OLD)
    memory = strategy.init(KEY, learner)
    for number, classes in enumerate(TASKS):
        task = net.task_of(number, classes, [2, 8])
        learner = learner._replace(seen=learner.seen | task.classes)
        memory, _ = strategy.begin_task(memory, learner, task, KEY)
    learner = learner._replace(params=net.small_learner(SETUP, []).params)
    current, replayed = np.array([2, 8, 3, 9, 15]), np.array([0, 13, 4])
    # A padded slot of the replayed batch holds a sample of the step's own.
    drawn = net.filled(SETUP, net.batch_of([*replayed, 2], [1, 1, 1, 0]))
    drawn = drawn._replace(memory_mask=jnp.ones(4, bool))
    batch = net.filled(SETUP, net.batch_of([*current, 20], [1] * 5 + [0]))._replace(replay=drawn)
    gradient, info = strategy.grads(memory, learner, batch, task, KEY)

    index = np.concatenate([current, replayed])
    groups = [(np.arange(5), NEW), (np.arange(5, 8), KNOWN)]
    loss, expected = loss_by_hand(START, OLD, index, groups, TASKS[:2])
    np.testing.assert_allclose(info.loss, loss, rtol=1e-5)
    net.assert_trees_close(gradient, expected, atol=1e-6)


def test_the_rate_of_the_third_task_is_a_third_of_the_first_in_float64():
    """The official `main.py` has `lr / (t + 1)`; batches have no replayed sample."""
    strategy = ss_il(SETUP)._replace(draw=lambda memory, batch, task, key: NOTHING, end_task=None)
    index = [np.array([0, 6, 12]), np.array([1, 4, 7]), np.array([2, 8, 3, 9])]
    tasks = [
        (net.task_of(number, classes, index[number]), [index[number]] * 2)
        for number, classes in enumerate(TASKS)
    ]
    expected = START
    for number, (_, learner) in enumerate(net.run_tasks(SETUP, strategy, tasks)):
        old, rows = expected, index[number]
        for _ in range(2):
            groups = [(np.arange(len(rows)), TASKS[number])]
            _, slope = loss_by_hand(expected, old, rows, groups, TASKS[:number])
            rate = RATE / (number + 1)
            expected = {name: leaf - rate * slope[name] for name, leaf in expected.items()}
        net.assert_trees_close(learner.params, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("inputs", "size"), [(None, 2), (3, 3)])
def test_a_quarter_of_the_batch_is_replayed_by_default(inputs, size):
    strategy = ss_il(SETUP, exemplars_per_class=2, replay_batch_size=inputs)
    learner, task = net.small_learner(SETUP, [0, 1]), net.task_of(0, [0, 1], [0, 1, 6, 7])
    memory = strategy.init(KEY, learner)
    batch = net.batch_of(np.arange(8))
    assert not jnp.any(strategy.draw(memory, batch, task, KEY).weight)
    memory, _ = strategy.end_task(memory, learner, task, KEY)
    drawn = strategy.draw(memory, batch, task, KEY)
    assert drawn.weight.sum() == size
    assert set(np.asarray(drawn.index)) <= {0, 1, 6, 7}
