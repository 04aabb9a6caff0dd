"""FDR against its two steps in float64 NumPy, and the division of its memory."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.strategies.fdr import FunctionDraw, fdr, function_distance
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

MOMENTUM, REGULARIZATION = 0.5, 0.7
# Momentum carries a part of each of the two steps into the other.
SETUP = net.small_setup()._replace(optimizer=optax.sgd(RATE, MOMENTUM))
TRAIN = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
"""Stored samples of three tasks of two classes each."""
STREAMS = [[part[:2], part[2:], part[1:3]] for part in TRAIN]
SLOTS = 4
ALL = np.ones(CLASSES, bool)


def distance_gradient(params, index, stored):
    """Return the gradient of λ · mean ‖p − p'‖, by the softmax's derivative."""
    probability = net.softmax(net.forward(params, index, train=True)[2], ALL)
    away = probability - stored
    slope = REGULARIZATION * away / np.linalg.norm(away, axis=1, keepdims=True)
    of_logits = probability * (slope - np.sum(slope * probability, axis=1, keepdims=True))
    contribution = net.backward(params, index, of_logits, train=True)
    return {name: leaf.mean(axis=0) for name, leaf in contribution.items()}


def train_by_hand(params, held, stored, task, active):
    """Return parameters after a task with a given memory."""
    trace = {name: np.zeros_like(leaf) for name, leaf in params.items()}

    def moved(params, gradient):
        for name in params:
            trace[name] = MOMENTUM * trace[name] + gradient[name]
        return {name: params[name] - RATE * trace[name] for name in params}

    for batch in STREAMS[task]:
        params = moved(params, net.batch_gradient(params, batch, active))
        if len(held):
            params = moved(params, distance_gradient(params, held, stored))
    return params


@pytest.mark.parametrize(("inputs", "loss_over"), [({}, "all"), ({"loss_over": "seen"}, "seen")])
def test_three_tasks_are_two_steps_per_batch_in_float64(inputs, loss_over):
    strategy = fdr(SETUP, SLOTS, REGULARIZATION, SLOTS + 2, **inputs)
    classes = [[0, 1], [2, 3], [4, 5]]
    tasks = [net.task_of(t, classes[t], TRAIN[t]) for t in range(3)]
    after = net.run_tasks(SETUP, strategy, list(zip(tasks, STREAMS, strict=True)))

    params, held, stored = START, [], np.zeros((0, CLASSES))
    for task, (memory, learner) in enumerate(after):
        active = ALL if loss_over == "all" else np.arange(CLASSES) < 2 * (task + 1)
        params = train_by_hand(params, held, stored, task, active)
        net.assert_trees_close(learner.params, params, rtol=3e-4, atol=3e-5)
        # The choice of samples is random; their number and the order of parts are fixed.
        size, size_before = SLOTS // (task + 1), SLOTS // max(task, 1)
        index = np.asarray(memory.samples.index)
        earlier = [size_before * k + r for k in range(task) for r in range(size)]
        new = index[size * task : size * (task + 1)].tolist()
        assert set(new) <= set(TRAIN[task])
        assert len(set(new)) == size
        fresh = net.softmax(net.forward(params, new)[2], ALL)
        held = [held[slot] for slot in earlier] + new
        stored = np.concatenate([stored[np.array(earlier, int)], fresh])
        filled = np.arange(SLOTS) < size * (task + 1)
        np.testing.assert_array_equal(memory.samples.mask, filled)
        np.testing.assert_array_equal(index[filled], held)
        np.testing.assert_array_equal(memory.samples.labels[filled, 0], net.LABELS[held])
        np.testing.assert_allclose(memory.probabilities[filled], stored, rtol=1e-3, atol=1e-5)
    # Every batch of the last two tasks has two passes, those of the first one.
    assert after[-1][1].batch_stats["passes"] == 3 + 6 + 6


def test_a_small_task_fills_a_part_of_its_slots_and_later_ones_keep_their_place():
    strategy = net.compiled(fdr(SETUP, 7, 1.0))
    memory, learner = net.untrained(SETUP, strategy)
    for number, train in enumerate([[0, 6], [1, 7, 13, 19], [2, 8, 14]]):
        task = net.task_of(number, [number], train)
        memory, learner = strategy.end_task(memory, learner, task, jax.random.key(number))
    assert memory.samples.mask.tolist() == [True] * 6 + [False]
    assert np.unique(memory.samples.labels[:6, 0], return_counts=True)[1].tolist() == [2, 2, 2]
    task = net.task_of(3, [3], [3])
    memory, _ = strategy.end_task(memory, learner, task, jax.random.key(3))
    assert memory.samples.labels[:4, 0].tolist() == [0, 1, 2, 3]
    assert int(strategy.stored_samples(memory, task)) == 4


def test_tasks_beyond_the_number_of_slots_store_nothing():
    strategy = net.compiled(fdr(SETUP, 2, 1.0))
    memory, learner = net.untrained(SETUP, strategy)
    for number in range(4):
        task = net.task_of(number, [number], [number, number + 6])
        memory, learner = strategy.end_task(memory, learner, task, jax.random.key(number))
    assert memory.samples.labels[:, 0].tolist() == [0, 1]
    assert memory.samples.mask.all()


def test_equal_functions_have_no_gradient():
    """The length has no derivative at 0, where PyTorch's is 0 as well."""
    learner = net.small_learner(SETUP, [0, 1])
    batch = net.filled(SETUP, net.batch_of([0, 1]))
    key = jax.random.key(0)
    outputs, _ = SETUP.apply(learner.params, learner.batch_stats, batch.inputs, True, key)
    drawn = FunctionDraw(batch, jax.nn.softmax(outputs.logits))

    def distance(params):
        return function_distance(SETUP, params, learner, drawn, key)[0]

    value, gradient = jax.value_and_grad(distance)(learner.params)
    assert value == 0
    assert all(bool(jnp.all(leaf == 0)) for leaf in jax.tree.leaves(gradient))
