"""Riemannian walk: training, Fisher information, scores and penalty done again in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.rwalk import rwalk, scaled
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

REGULARIZATION, DECAY, DAMPING = 0.8, 0.7, 0.05
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [
    [
        net.batch_of(t[:3]),
        net.batch_of(np.array([t[3], t[4], 20]), [1, 1, 0]),
        net.batch_of(t[[5, 0, 2]]),
        net.batch_of(t[[1, 3, 2]]),
        net.batch_of(t[3:]),
    ]
    for t in TRAIN
]
SEQUENCE = [(net.task_of(t, [2 * t, 2 * t + 1], TRAIN[t]), BATCHES[t]) for t in range(3)]


def min_max(params):
    values = net.joined(params)
    return {n: (v - values.min()) / (values.max() - values.min()) for n, v in params.items()}


def train_by_hand(interval, implicit):
    """Return parameters, Fisher information, score and importance after every task."""
    params, fisher, score = START, net.no_penalty(START), None
    importance, anchor, after = net.no_penalty(START), START, []
    for task, batches in enumerate(BATCHES):
        seen = np.arange(CLASSES) < 2 * (task + 1)
        task_score = net.no_penalty(START)
        for first in range(0, len(batches), interval):
            piece = batches[first : first + interval]
            start, squares, path = params, net.no_penalty(START), net.no_penalty(START)
            for batch in piece:
                gradient = net.batch_gradient(params, batch.index, seen, batch.weight)
                moved = {}
                for name, theta in params.items():
                    squares[name] = squares[name] + gradient[name] ** 2
                    stiff = 2 * REGULARIZATION * importance[name]
                    if implicit:
                        free = theta - RATE * gradient[name]
                        moved[name] = (free + RATE * stiff * anchor[name]) / (1 + RATE * stiff)
                    else:
                        slope = gradient[name] + stiff * (theta - anchor[name])
                        moved[name] = theta - RATE * slope
                    path[name] = path[name] - gradient[name] * (moved[name] - theta)
                params = moved
            for name in params:
                length = fisher[name] * (params[name] - start[name]) ** 2
                gain = np.maximum(path[name], 0) / (length + DAMPING)
                task_score[name] = task_score[name] + gain
                mean = squares[name] / len(piece)
                fisher = {**fisher, name: (1 - DECAY) * fisher[name] + DECAY * mean}
        if score is None:
            score = task_score
        else:
            score = {name: (score[name] + task_score[name]) / 2 for name in score}
        one, two = min_max(fisher), min_max(score)
        importance, anchor = {name: one[name] + two[name] for name in params}, params
        after.append((params, fisher, score, importance))
    return after


@pytest.mark.parametrize(
    ("interval", "implicit"), [(2, False), (2, True), (5, False)], ids=["2", "2 implicit", "5"]
)
def test_three_tasks_done_again_in_float64(interval, implicit):
    """Pieces of 2 steps leave a last one of 1 step in each task of 5."""
    strategy = rwalk(
        net.small_setup(), REGULARIZATION, DECAY, interval, DAMPING, RATE if implicit else None
    )
    after = net.run_tasks(net.small_setup(), net.compiled(strategy), SEQUENCE)
    expected = train_by_hand(interval, implicit)
    for (memory, learner), (params, fisher, score, importance) in zip(after, expected, strict=True):
        net.assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        net.assert_trees_close(memory.fisher, fisher, rtol=1e-3, atol=1e-6)
        net.assert_trees_close(memory.score, score, rtol=1e-3, atol=1e-5)
        net.assert_trees_close(memory.sums.importance, importance, rtol=1e-3, atol=1e-5)
        weighted = {name: importance[name] * params[name] for name in params}
        net.assert_trees_close(memory.sums.weighted_anchor, weighted, rtol=1e-3, atol=1e-5)


def test_a_task_shorter_than_the_interval_has_importances():
    setup = net.small_setup()
    strategy = net.compiled(rwalk(setup, REGULARIZATION, interval=50))
    ((memory, _),) = net.run_tasks(setup, strategy, SEQUENCE[:1])
    largest = max(float(jnp.max(leaf)) for leaf in jax.tree.leaves(memory.sums.importance))
    # The largest Fisher information and the largest score are 1.
    assert 1 <= largest <= 2


def test_frozen_parameters_have_no_fisher_information():
    setup = net.small_setup()
    setup = setup._replace(
        trainable=lambda params: {name: name.startswith("head") for name in params}
    )
    ((memory, _),) = net.run_tasks(setup, rwalk(setup, REGULARIZATION, interval=2), SEQUENCE[:1])
    assert float(jnp.max(memory.fisher["hidden"])) == 0
    assert float(jnp.max(memory.fisher["head"])) > 0


def test_equal_values_are_scaled_to_0():
    tree = {"a": jnp.full((2, 3), 4.0), "b": jnp.full(2, 4.0)}
    assert all(bool(jnp.all(leaf == 0)) for leaf in jax.tree.leaves(scaled(tree)))
    other = scaled({**tree, "b": jnp.array([2.0, 6.0])})
    np.testing.assert_allclose(other["a"], 0.5)
    np.testing.assert_allclose(other["b"], [0, 1])
