"""Task arithmetic and TIES-merging against task vectors in float64 NumPy, and by hand."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.task_arithmetic import task_arithmetic
from everlight.continual.strategies.ties import (
    disjoint_mean,
    no_vectors,
    ties,
    trim_vector,
    with_vector,
)
from tests.continual import small_net as net
from tests.continual.small_net import DATA, START
from tests.continual.strategies.references.recurring_tasks import SEQUENCE, solution

SCALE, DENSITY = 1.3, 0.3


def flat(tree):
    return np.concatenate([tree[name].ravel() for name in START])


def by_the_paper(vectors):
    """Compute algorithm 1 on a matrix with one task vector per row."""
    trim = np.zeros_like(vectors)
    keep = int(DENSITY * vectors.shape[1])
    for row, vector in zip(trim, vectors, strict=True):
        greatest = np.argsort(-np.abs(vector))[:keep]
        row[greatest] = vector[greatest]
    elected = np.sign(trim.sum(axis=0))
    agrees = (np.sign(trim) == elected) & (elected != 0)
    contested = (np.sign(trim) == -elected) & (elected != 0)
    merged = (trim * agrees).sum(axis=0) / np.maximum(agrees.sum(axis=0), 1)
    return merged, contested.any()


def test_three_tasks_are_the_paper_s_algorithm_in_float64():
    setup = net.small_setup()
    after = net.run_tasks(setup, ties(setup, SCALE, DENSITY), SEQUENCE)
    vectors = np.stack([flat(solution(task)) - flat(START) for task in range(3)])
    contested = []
    for task, (_, learner) in enumerate(after):
        merged, dissent = by_the_paper(vectors[: task + 1])
        contested.append(dissent)
        result = flat({name: np.asarray(leaf) for name, leaf in learner.params.items()})
        np.testing.assert_allclose(result, flat(START) + SCALE * merged, rtol=1e-4, atol=1e-5)
    assert contested == [False, True, True], "some entries must be outvoted"


def test_all_entries_of_one_task_are_its_network():
    setup = net.small_setup()
    ((_, learner),) = net.run_tasks(setup, ties(setup, 1.0, density=1.0), SEQUENCE[:1])
    net.assert_trees_close(learner.params, solution(0))


@pytest.mark.parametrize(
    ("density", "expected"),
    [
        (0.4, ([5, -4, 0], [[0], [0]])),
        (0.59, ([5, -4, 0], [[0], [0]])),
        (0.6, ([5, -4, 0], [[-3], [0]])),
        (0.1, ([0, 0, 0], [[0], [0]])),
        (1.0, ([5, -4, 1], [[-3], [2]])),
    ],
)
def test_trimming_ranks_all_leaves_together(density, expected):
    result = trim_vector({"a": jnp.array([5.0, -4, 1]), "b": jnp.array([[-3.0], [2]])}, density)
    for name, leaf in zip("ab", expected, strict=True):
        np.testing.assert_array_equal(result[name], leaf)


def test_signs_are_elected_by_hand():
    """Columns agree, have one outvoted by two or by one that is greater, tie, or are empty."""
    vectors = np.array([[3, 2, -5, 1, 0], [1, 2, 2, -1, 0], [2, -3, 2, 0, 0]], np.float32)
    sums = functools.reduce(with_vector, jnp.asarray(vectors), no_vectors(jnp.zeros(5)))
    np.testing.assert_array_equal(disjoint_mean(sums), [2, 2, -5, 0, 0])


def test_three_tasks_are_a_scaled_sum_from_the_start_in_float64():
    setup = net.small_setup()
    strategy = task_arithmetic(setup, 0.6)
    after = net.run_tasks(setup, strategy, SEQUENCE)
    current = [solution(task) for task in range(3)]
    for task, (_, learner) in enumerate(after):
        expected = {
            name: start + 0.6 * sum(params[name] - start for params in current[: task + 1])
            for name, start in START.items()
        }
        net.assert_trees_close(learner.params, expected, atol=1e-5)
        # Three passes train and one computes statistics, from the statistics of the start.
        assert learner.batch_stats["passes"] == 4
        # The column of a class that has been in no task stays as it was.
        np.testing.assert_array_equal(learner.params["head"][:, 4], np.float32(START["head"][:, 4]))
    net.assert_trees_close(after[-1][0].params, START)
    predicted = strategy.predict(*after[-1], jnp.float32(DATA))
    np.testing.assert_allclose(predicted, net.forward(expected, np.arange(len(DATA)))[2], atol=1e-4)
