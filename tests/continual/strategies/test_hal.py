"""Hindsight anchor learning against a loop in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.engine.updates import complete_batch
from everlight.continual.strategies.hal import hal
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, FEATURES, GAIN, LABELS, RATE, START

SETUP = net.small_setup()
LAMBDA, DECAY, GAMMA, STEPS, ANCHOR_RATE, PART = 0.6, 0.4, 0.3, 7, 0.05, 6
FINETUNING = 2
NOISE = np.random.default_rng(5).uniform(size=(CLASSES, FEATURES))
STREAM = [([0, 1], [[0, 1, 6], [7, 12]]), ([2, 3], [[2, 3, 8], [9, 14], [15, 20]])]
"""Classes and batches of each task: fewer samples than its part of the ring, and more."""


def of_inputs(params, inputs):
    """Return hidden features and logits of inputs in evaluation mode."""
    hidden = np.tanh(inputs @ params["hidden"] + params["hidden_bias"])
    return hidden, hidden @ params["head"] + params["head_bias"]


def input_gradient(params, inputs, at_logits, at_features):
    """Return the gradient with respect to inputs, from those of logits and features."""
    hidden, _ = of_inputs(params, inputs)
    below = (at_logits @ params["head"].T + at_features) * (1 - hidden**2)
    return below @ params["hidden"].T


def anchor_gradient(params, lookahead, anchors):
    """Return the gradient of λ times the mean squared change of the anchors' outputs."""
    hidden, now = of_inputs(params, anchors)
    slope = LAMBDA * 2 * (now - of_inputs(lookahead, anchors)[1]) / now.size
    below = (slope @ params["head"].T) * (1 - hidden**2)
    return {
        "hidden": anchors.T @ below,
        "hidden_bias": below.sum(axis=0),
        "head": hidden.T @ slope,
        "head_bias": slope.sum(axis=0),
    }


def stepped(params, gradient):
    return {name: params[name] - RATE * gradient[name] for name in params}


def train_by_hand():
    """Yield parameters, memory and anchors after each task; steps replay the whole memory."""
    params, ring, anchors = START, {}, {}
    for number, (classes, batches) in enumerate(STREAM):
        seen = np.arange(CLASSES) <= classes[-1]
        mean, count = np.zeros(START["hidden"].shape[1]), 0
        for batch in batches:
            gradient = net.batch_gradient(params, batch + list(ring.values()), seen)
            if anchors:
                held = np.stack(list(anchors.values()))
                more = anchor_gradient(params, stepped(params, gradient), held)
                gradient = {name: gradient[name] + more[name] for name in gradient}
            params = stepped(params, gradient)
            features = GAIN * net.forward(params, batch, train=True)[1]
            mean = DECAY * mean + (1 - DECAY) * features.mean(axis=0)
            for index in batch:
                ring[number * PART + count % PART] = index
                count += 1
        finetuned = params
        for _ in range(FINETUNING):
            gradient = net.batch_gradient(finetuned, list(ring.values()), seen)
            finetuned = stepped(finetuned, gradient)
        for label in classes:
            anchor, target = NOISE[label : label + 1], np.eye(CLASSES)[label]
            for _ in range(STEPS):
                old = net.softmax(of_inputs(finetuned, anchor)[1], seen) - target
                features, logits = of_inputs(params, anchor)
                new = net.softmax(logits, seen) - target
                slope = input_gradient(finetuned, anchor, -old, 0)
                slope += input_gradient(params, anchor, new, 2 * GAMMA * (features - mean))
                anchor = anchor - ANCHOR_RATE * slope
            anchors[label] = anchor[0]
        yield params, dict(ring), dict(anchors), mean


def test_two_tasks_are_the_loop_in_float64(monkeypatch):
    """The ring holds each task's last samples; anchors start from given noise.

    The first task leaves empty slots before those of the second; none is ever drawn.
    """
    uniform = jax.random.uniform

    def noise(key, shape, *rest):
        return jnp.asarray(NOISE, *rest) if shape == NOISE.shape else uniform(key, shape, *rest)

    monkeypatch.setattr(jax.random, "uniform", noise)
    strategy = hal(SETUP, 2, 2 * PART, 40, LAMBDA, DECAY, GAMMA, STEPS, ANCHOR_RATE, FINETUNING, 40)
    tasks = [
        (net.task_of(number, classes, np.concatenate(batches)), batches)
        for number, (classes, batches) in enumerate(STREAM)
    ]
    result = net.run_tasks(SETUP, strategy, tasks)
    for (memory, learner), (params, ring, anchors, mean) in zip(
        result, train_by_hand(), strict=True
    ):
        for name, leaf in params.items():
            np.testing.assert_allclose(learner.params[name], leaf, rtol=2e-4, atol=2e-5)
        mask = np.asarray(memory.samples.mask)
        assert np.flatnonzero(mask).tolist() == sorted(ring)
        held = np.asarray(memory.samples.index)[mask]
        np.testing.assert_array_equal(held, [ring[slot] for slot in sorted(ring)])
        np.testing.assert_array_equal(memory.samples.labels[mask, 0], LABELS[held])
        np.testing.assert_allclose(memory.features, mean, rtol=1e-4, atol=1e-5)
        assert np.flatnonzero(memory.has_anchor).tolist() == list(anchors)
        for label, anchor in anchors.items():
            np.testing.assert_allclose(memory.anchors[label], anchor, rtol=1e-3, atol=1e-4)


def test_a_batch_longer_than_a_task_s_part_leaves_its_last_samples():
    strategy = hal(SETUP, 2, 4, anchor_steps=1)
    index = [0, 1, 6, 7, 12]
    task = net.task_of(1, [0, 1], index)
    ((memory, learner),) = net.run_tasks(
        SETUP, strategy, [(task, [net.batch_of(index, [1, 1, 1, 1, 0])])]
    )
    np.testing.assert_array_equal(memory.samples.mask, [False, False, True, True])
    np.testing.assert_array_equal(memory.samples.index[2:], [6, 7])
    params = {name: np.asarray(leaf, float) for name, leaf in learner.params.items()}
    features = GAIN * net.forward(params, index[:4], train=True)[1]
    np.testing.assert_allclose(memory.features, 0.5 * features.mean(axis=0), rtol=1e-4)


def test_the_step_ahead_is_the_optimizer_s_own():
    """The optimizer has momentum from earlier steps and a halved learning rate."""
    setup = SETUP._replace(optimizer=optax.sgd(RATE, momentum=0.9))
    strategy, index, seen = hal(setup, 2, 6, regularization=LAMBDA), [0, 1, 6], np.arange(6) < 2
    learner, key = net.small_learner(setup, [0, 1]), jax.random.key(0)
    memory = strategy.init(key, learner)
    memory = memory._replace(anchors=jnp.float32(NOISE), has_anchor=jnp.asarray(seen))
    task = net.task_of(0, [0, 1], index)
    _, state = setup.optimizer.update(net.as_float32(START), learner.opt_state)
    schedule = learner.schedule._replace(factor=jnp.float32(0.5))
    learner = learner._replace(opt_state=state, schedule=schedule)
    batch = complete_batch(setup, strategy, memory, net.batch_of(index), task, key)
    result, _ = strategy.grads(memory, learner, batch, task, key)
    gradient = net.batch_gradient(START, index, seen)
    momentum = {name: 0.9 * START[name] + gradient[name] for name in START}
    lookahead = {name: START[name] - 0.5 * RATE * momentum[name] for name in START}
    more = anchor_gradient(START, lookahead, NOISE[:2])
    net.assert_trees_close(result, {name: gradient[name] + more[name] for name in START})


def test_finetuning_on_the_memory_restarts_the_optimizer():
    setup = SETUP._replace(optimizer=optax.sgd(RATE, momentum=0.9))
    strategy, task = hal(setup, 2, 6, anchor_steps=2), net.task_of(0, [0, 1], [0, 1])
    learner, key = net.small_learner(setup, [0, 1]), jax.random.key(0)
    memory = strategy.init(key, learner)._replace(samples=net.samples_of(range(6)))
    _, state = setup.optimizer.update(net.as_float32(START), learner.opt_state)
    result, _ = strategy.end_task(memory, learner._replace(opt_state=state), task, key)
    expected, _ = strategy.end_task(memory, learner, task, key)
    np.testing.assert_array_equal(result.anchors, expected.anchors)
    assert np.all(np.any(result.anchors[:2] != 0, axis=1))


def test_a_memory_smaller_than_the_tasks_is_refused():
    with pytest.raises(ValueError, match="below the number of tasks 5; give 5 or more"):
        hal(SETUP, 5, 3)
