"""All scores of a sequence of facts, against its parts and counting."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics.fact_scores import fact_scores, group_facts
from everlight.metrics.ranking import Ranks, top_k

# Two tasks have three facts and six test samples; ranks follow both tasks.
LABELS = np.array([0, 1, 2, 3, 4, 5])
MEMBER = jnp.asarray([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], bool)
STANDARD = jnp.asarray([[1, 2, 3, 1, 9, 9], [1, 9, 3, 1, 1, 2]])
GENERALISED = jnp.asarray([[1, 6, 3, 9, 9, 9], [1, 9, 6, 1, 2, 5]])
RANKS = Ranks(STANDARD, GENERALISED)
PIECES = np.array([[0, -1, -1], [1, 2, -1], [1, 2, 3], [1, 2, 4], [1, 5, 3], [6, 2, 3]])
COUNTS = np.array([40, 20, 3, 2, 30, 7])
GROUPS = group_facts(PIECES, COUNTS, LABELS, (15, 50))
EDGES = jnp.asarray([0, 5, 10, 100])


def test_groups_are_those_of_the_samples_facts():
    # The third and fourth triple have at most five examples.
    np.testing.assert_array_equal(GROUPS.few, [0, 0, 1, 1, 0, 0])
    np.testing.assert_array_equal(GROUPS.counts, COUNTS)
    # <1, 2, *> has 25 examples, <*, *, 3> has 40 and <*, *, 4> two.
    np.testing.assert_array_equal(GROUPS.spo[0, 0], [0, 0, 1, 0, 0, 0])
    assert not GROUPS.spo[1].any()


def test_scores_are_read_after_the_last_task():
    result = fact_scores(RANKS, MEMBER, GROUPS, EDGES, 5)
    expected = top_k(RANKS, MEMBER, 5)
    for name in ("standard", "generalised", "drop"):
        for actual, part in zip(getattr(result.top_k, name), getattr(expected, name), strict=True):
            np.testing.assert_array_equal(actual, part)
    np.testing.assert_array_equal(result.hits, [1, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(result.few_shot.by_task, [0, 1])
    # The groups have 0 to 4, 5 to 9 and 10 or more training examples.
    np.testing.assert_allclose(result.generalised_by_count, [1 / 2, 1, 2 / 3], rtol=1e-6)
    np.testing.assert_allclose(result.standard_by_count, [1, 1, 2 / 3], rtol=1e-6)
    assert result.spo.shape == (2, 7)
    assert result.spo[0, 0] == 0
    assert np.isnan(result.spo[1]).all()
    assert np.isnan([result.backward, result.forward]).all()


def test_transfer_needs_the_ranks_before_the_first_task():
    start = Ranks(*[jnp.asarray([9, 9, 9, 9, 1, 9])] * 2)
    result = fact_scores(RANKS, MEMBER, GROUPS, EDGES, 5, start)
    # Generalised: the first task falls from 2/3 to 1/3; the second had 1/3, and 0 after the first.
    assert result.backward == pytest.approx(-1 / 3)
    assert result.forward == pytest.approx(-1 / 3)
