"""SDC's penalty, drift and predictions, written again in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.drift_compensation import drift, drift_compensation
from tests.continual import small_net as net
from tests.continual.many_labels import OLD
from tests.continual.small_net import CLASSES, DATA, GAIN, LABELS, RATE, SHIFT, START

SETUP = net.layered_setup()
REGULARIZATION, BANDWIDTH = 0.6, 0.5
STRATEGY = drift_compensation(SETUP, REGULARIZATION, BANDWIDTH)
KEY = jax.random.key(0)
INDEX = [[0, 1, 6, 7, 12], [2, 3, 8, 9, 14], [4, 5, 10, 11, 16]]
BATCHES = [
    [net.batch_of(rows[:3]), net.batch_of([*rows[3:], 20], [1] * len(rows[3:]) + [0])]
    for rows in INDEX
]
TASKS = [
    # A slot that is masked out has a sample of the task.
    (net.task_of(t, [2 * t, 2 * t + 1], net.samples_of([*INDEX[t], 18], [1] * 5 + [0])), BATCHES[t])
    for t in range(3)
]


def features_of(params, index, train=False):
    inputs = DATA[np.asarray(index)] + (SHIFT if train else 0)
    bent = np.tanh(inputs @ params["hidden"] + params["hidden_bias"])
    return net.unit(bent * (GAIN if train else 1))


def shifted_old_features(old, index):
    """Return features of the old network, in evaluation mode, for a step's inputs."""
    inputs = DATA[np.asarray(index)] + SHIFT
    return net.unit(np.tanh(inputs @ old["hidden"] + old["hidden_bias"]))


def step_loss(params, old, index, seen, later):
    logits = net.forward(params, index, train=True)[2]
    probability = net.softmax(logits, seen)[np.arange(len(index)), LABELS[index]]
    change = features_of(params, index, True) - shifted_old_features(old, index)
    return -np.log(probability).mean() + later * REGULARIZATION / 2 * np.sum(change**2)


def official_displacement(old, new, prototypes):
    """Return the displacement of every prototype, by one weight after another."""
    moved = []
    for prototype in prototypes:
        weights = [np.exp(-np.sum((row - prototype) ** 2) / (2 * BANDWIDTH**2)) for row in old]
        moves = [w * (b - a) for w, a, b in zip(weights, old, new, strict=True)]
        moved.append(np.sum(moves, axis=0) / np.sum(weights))
    return np.array(moved)


def test_three_tasks_done_again_in_float64():
    params, prototypes = START, {}
    for task, (memory, learner) in enumerate(net.run_tasks(SETUP, STRATEGY, TASKS)):
        old, seen = params, np.arange(CLASSES) < 2 * (task + 1)
        for batch in BATCHES[task]:
            index = np.asarray(batch.index)[np.asarray(batch.weight) > 0]
            gradient = net.finite_differences(
                lambda p, i=index, o=old, s=seen, t=task: step_loss(p, o, i, s, t > 0), params
            )
            params = {name: leaf - RATE * gradient[name] for name, leaf in params.items()}
        net.assert_trees_close(net.flat(learner.params), params, rtol=1e-4, atol=1e-5)
        before, after = (features_of(p, INDEX[task]) for p in (old, params))
        if prototypes:
            moves = official_displacement(before, after, list(prototypes.values()))
            assert np.abs(moves).max() > 0.01
            prototypes = {
                c: value + move for (c, value), move in zip(prototypes.items(), moves, strict=True)
            }
        for c in (2 * task, 2 * task + 1):
            class_samples = [n for n in INDEX[task] if LABELS[n] == c]
            prototypes[c] = features_of(params, class_samples).mean(axis=0)
        expected = [prototypes[c] for c in range(2 * (task + 1))]
        np.testing.assert_allclose(memory.prototypes[: len(expected)], expected, atol=1e-5)
        np.testing.assert_array_equal(memory.known, seen)
        rows = features_of(params, np.arange(20, 40))
        distances = np.linalg.norm(rows[:, None] - np.array(expected), axis=2)
        scores = STRATEGY.predict(memory, learner, jnp.float32(DATA[20:40]))
        np.testing.assert_allclose(scores[:, : len(expected)], -(distances**2), atol=1e-4)
        assert np.all(np.isneginf(scores[:, len(expected) :]))


def test_while_a_task_is_learned_the_head_predicts():
    _, (memory, learner), _ = net.run_tasks(SETUP, STRATEGY, TASKS)
    memory, learner = net.begin(SETUP, STRATEGY, memory, learner, TASKS[2][0])
    expected, _ = SETUP.apply(learner.params, learner.batch_stats, jnp.float32(DATA), False, None)
    scores = STRATEGY.predict(memory, learner, jnp.float32(DATA))
    np.testing.assert_allclose(scores, expected.logits, rtol=1e-5, atol=1e-5)


def test_a_prototype_far_from_all_samples_moves_with_the_nearest():
    """In float64 the weights of both samples are 0."""
    old = np.array([[1.0, 0.0], [0.0, 1.0]])
    move = np.array([[0.1, 0.2], [-0.3, 0.4]])
    prototypes = np.array([[-1.0, 0.1]])
    arrays = map(jnp.float32, (prototypes, old, old + move))
    moved = drift(*arrays, jnp.ones(2, bool), 0.01)
    np.testing.assert_allclose(moved[0], move[1], atol=1e-6)


def test_without_change_of_the_network_prototypes_stay():
    learner = net.small_learner(SETUP, [0, 1], OLD)
    learner = learner._replace(params=net.layered(learner.params))
    memory, _ = STRATEGY.begin_task(STRATEGY.init(KEY, learner), learner, TASKS[0][0], KEY)
    memory, _ = STRATEGY.end_task(memory, learner, TASKS[0][0], KEY)
    later, _ = STRATEGY.begin_task(memory, learner, TASKS[1][0], KEY)
    later, _ = STRATEGY.end_task(later, learner, TASKS[1][0], KEY)
    np.testing.assert_array_equal(later.prototypes[:2], memory.prototypes[:2])
