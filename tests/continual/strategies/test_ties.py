"""TIES-merging against a stack of task vectors in float64 NumPy, and by hand."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.ties import (
    disjoint_mean,
    no_vectors,
    ties,
    trimmed,
    with_vector,
)
from tests.continual.small_net import START, assert_trees_close, run_tasks, small_setup
from tests.continual.strategies.recurring_tasks import SEQUENCE, solution

SCALE, KEPT = 1.3, 0.3


def flat(tree):
    return np.concatenate([tree[name].ravel() for name in START])


def by_the_paper(vectors):
    """Algorithm 1 on a matrix of task vectors, a row each."""
    trim = np.zeros_like(vectors)
    keep = int(KEPT * vectors.shape[1])
    for row, vector in zip(trim, vectors, strict=True):
        greatest = np.argsort(-np.abs(vector))[:keep]
        row[greatest] = vector[greatest]
    elected = np.sign(trim.sum(axis=0))
    agrees = (np.sign(trim) == elected) & (elected != 0)
    contested = (np.sign(trim) == -elected) & (elected != 0)
    merged = (trim * agrees).sum(axis=0) / np.maximum(agrees.sum(axis=0), 1)
    return merged, contested.any()


def test_three_tasks_are_the_paper_s_algorithm_in_float64():
    setup = small_setup()
    after = run_tasks(setup, ties(setup, SCALE, KEPT), SEQUENCE)
    vectors = np.stack([flat(solution(task)) - flat(START) for task in range(3)])
    contested = []
    for task, (_, learner) in enumerate(after):
        merged, dissent = by_the_paper(vectors[: task + 1])
        contested.append(dissent)
        found = flat({name: np.asarray(leaf) for name, leaf in learner.params.items()})
        np.testing.assert_allclose(found, flat(START) + SCALE * merged, rtol=1e-4, atol=1e-5)
    assert contested == [False, True, True], "some entries must be outvoted"


def test_all_entries_of_one_task_are_its_network():
    setup = small_setup()
    ((_, learner),) = run_tasks(setup, ties(setup, 1.0, density=1.0), SEQUENCE[:1])
    assert_trees_close(learner.params, solution(0))


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (0.4, ([5, -4, 0], [[0], [0]])),
        (0.59, ([5, -4, 0], [[0], [0]])),
        (0.6, ([5, -4, 0], [[-3], [0]])),
        (0.1, ([0, 0, 0], [[0], [0]])),
        (1.0, ([5, -4, 1], [[-3], [2]])),
    ],
)
def test_trimming_ranks_all_leaves_together(kept, expected):
    found = trimmed({"a": jnp.array([5.0, -4, 1]), "b": jnp.array([[-3.0], [2]])}, kept)
    for name, leaf in zip("ab", expected, strict=True):
        np.testing.assert_array_equal(found[name], leaf)


def test_signs_are_elected_by_hand():
    """Columns: all agree, one is outvoted by two, by one that is greater, a tie, none."""
    vectors = np.array([[3, 2, -5, 1, 0], [1, 2, 2, -1, 0], [2, -3, 2, 0, 0]], np.float32)
    sums = functools.reduce(with_vector, jnp.asarray(vectors), no_vectors(jnp.zeros(5)))
    np.testing.assert_array_equal(disjoint_mean(sums), [2, 2, -5, 0, 0])
