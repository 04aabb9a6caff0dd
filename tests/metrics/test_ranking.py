"""Ranks by hand, and against a full float64 matrix in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics import ranking
from everlight.metrics.accuracy_matrix import gem_backward_transfer
from tests.refusals import refused

compiled_ranks = jax.jit(ranking.rank_facts, static_argnums=(4, 5))
compiled_top = jax.jit(ranking.top_k, static_argnums=2)

# Words are on a line: person 0, dog 1, riding 2, horse 4.
WORDS = jnp.array([[0.0], [1.0], [2.0], [4.0]])
PERSON, DOG, RIDING, HORSE = range(4)
FACTS = ranking.Facts(
    jnp.array([[PERSON, -1, -1], [PERSON, RIDING, -1], [PERSON, RIDING, HORSE], [DOG, -1, -1]]),
    WORDS,
)


def image(*pieces):
    return jnp.array(pieces, jnp.float32).reshape(1, 3, 1)


def distances_by_hand(embeddings, pieces, vectors):
    """Return distances from loops over images, facts and pieces in float64."""
    result = np.zeros((len(embeddings), len(pieces)))
    for row, embedded in enumerate(np.float64(embeddings)):
        for column, fact in enumerate(pieces):
            parts = [
                np.sum((embedded[c] - np.float64(vectors[word])) ** 2)
                for c, word in enumerate(fact)
                if word >= 0
            ]
            result[row, column] = np.mean(parts)
    return result


def random_case(seed, images=37, facts=53, words=19, size=4, tasks=3):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(words, size)).astype(np.float32)
    pieces = rng.integers(0, words, (facts, 3))
    kind = rng.integers(0, 3, facts)
    pieces[kind < 2, 2] = -1
    pieces[kind < 1, 1] = -1
    embeddings = rng.normal(size=(images, 3, size)).astype(np.float32)
    labels = rng.integers(0, facts, images)
    return embeddings, labels, pieces, vectors, rng.integers(0, tasks, facts)


def rank(embeddings, labels, pieces, vectors, task, *sizes):
    facts = ranking.Facts(jnp.asarray(pieces), jnp.asarray(vectors))
    return compiled_ranks(
        jnp.asarray(embeddings), jnp.asarray(labels), facts, jnp.asarray(task), *sizes
    )


def test_embeddings_have_zeros_where_undefined():
    expected = [[0, 0, 0], [0, 2, 0], [0, 2, 4], [1, 0, 0]]
    np.testing.assert_array_equal(ranking.embed_facts(FACTS)[..., 0], expected)


def test_distance_is_the_mean_over_the_pieces_that_the_label_defines():
    # The image says person (0.5 off), riding (1 off), horse (2 off).
    result = ranking.distances_to_facts(image(0.5, 3, 6), FACTS)[:, 0]
    np.testing.assert_allclose(result, [0.25, 1.25 / 2, 5.25 / 3, 0.25], rtol=1e-6)


def test_a_fact_of_one_piece_does_not_win_by_having_only_one():
    """The squared distance of person alone is 0.81, that of the triple (0.81 + 0 + 0) / 3."""
    ranks = compiled_ranks(image(0.9, 2, 4), jnp.array([2]), FACTS, jnp.zeros(4, int))
    # Only ⟨dog, *, *⟩, 0.01 away, is closer.
    assert ranks.generalised.tolist() == [2]


def test_ranks_count_strictly_closer_labels_in_the_task_and_everywhere():
    # Distances of the facts: 0.25, 0.625, 1.75, 0.25.
    embeddings = jnp.repeat(image(0.5, 3, 6), 4, axis=0)
    ranks = compiled_ranks(embeddings, jnp.arange(4), FACTS, jnp.array([0, 1, 1, 1]))
    # ⟨person⟩ and ⟨dog⟩ tie, and both are first.
    assert ranks.generalised.tolist() == [1, 3, 4, 1]
    assert ranks.standard.tolist() == [1, 2, 3, 1]


@pytest.mark.parametrize("distractors", [0, 3, 7])
def test_distractors_of_another_task_lower_the_generalised_rank_by_their_number(distractors):
    """Each is closer than the label; as many farther ones change nothing."""
    closer, farther = np.linspace(0.0, 0.4, distractors), np.linspace(5.0, 9.0, distractors)
    vectors = np.concatenate([[0.5], closer, farther])[:, None]
    pieces = np.full((len(vectors), 3), -1)
    pieces[:, 0] = np.arange(len(vectors))
    task = np.minimum(np.arange(len(vectors)), 1)
    ranks = rank(image(0.0, 0, 0), [0], pieces, np.float32(vectors), task)
    assert ranks.standard.tolist() == [1]
    assert ranks.generalised.tolist() == [1 + distractors]


@pytest.mark.parametrize("sizes", [(128, 4096), (8, 10), (37, 1)])
def test_blocks_of_any_size_give_the_ranks_of_the_full_matrix(sizes):
    embeddings, labels, pieces, vectors, task = case = random_case(1)
    full = distances_by_hand(embeddings, pieces, vectors)
    closer = full < full[np.arange(37), labels][:, None]
    ranks = rank(*case, *sizes)
    np.testing.assert_array_equal(ranks.generalised, 1 + closer.sum(axis=1))
    closer &= task == task[labels][:, None]
    np.testing.assert_array_equal(ranks.standard, 1 + closer.sum(axis=1))
    facts = ranking.Facts(jnp.asarray(pieces), jnp.asarray(vectors))
    distances = ranking.distances_to_facts(jnp.asarray(embeddings), facts)
    np.testing.assert_allclose(distances.T, full, rtol=1e-4)


def test_facts_whose_words_have_equal_vectors_tie_exactly():
    """Two words have one vector, which is far enough from 0 that products round."""
    embeddings, labels, pieces, vectors, task = random_case(2, words=30, size=300)
    twin = np.concatenate([pieces, np.where(pieces >= 0, pieces + 30, -1)])
    doubled = np.concatenate([vectors, vectors])
    single = rank(embeddings, labels, pieces, vectors, task)
    both = rank(embeddings, labels, twin, doubled, np.tile(task, 2), 8, 16)
    for one, two in zip(single, both, strict=True):
        np.testing.assert_array_equal(two - 1, 2 * (one - 1))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_embeddings_that_diverged_rank_behind_everything(wrong):
    embeddings = jnp.full((1, 3, 1), wrong)
    ranks = compiled_ranks(embeddings, jnp.array([2]), FACTS, jnp.array([0, 1, 1, 1]))
    assert ranks.generalised.tolist() == [5]
    assert ranks.standard.tolist() == [4]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            ranking.distances_to_facts,
            r"^vectors is float32\[4, 1\] .*, embeddings is .*\[1, 3, 2\]",
        ),
        (lambda wide, facts: ranking.nearest_facts(wide, facts, 1), r"^vectors is float32\[4, 1\]"),
        (
            lambda wide, facts: ranking.nearest_facts(wide[..., :1], facts, 5),
            "^count=5; give 1 to 4$",
        ),
    ],
)
def test_embeddings_of_another_dimension_and_more_facts_than_there_are_are_refused(use, message):
    refused(message, lambda: use(jnp.zeros((1, 3, 2)), FACTS))


RANKS = ranking.Ranks(jnp.array([1, 5, 6, 1, 2, 9]), jnp.array([1, 6, 8, 5, 2, 9]))
MEMBER = jnp.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0] * 6], bool)


def test_top_k_by_hand():
    """The last two samples belong to no task, the third task has no samples."""
    result = compiled_top(RANKS, MEMBER, 5)
    np.testing.assert_allclose(result.standard.by_task, [2 / 3, 1, np.nan])
    np.testing.assert_allclose(result.generalised.by_task, [1 / 3, 1, np.nan])
    np.testing.assert_allclose(result.standard.task_mean, 5 / 6, rtol=1e-6)
    np.testing.assert_allclose(result.standard.example_mean, 3 / 4)
    np.testing.assert_allclose(result.generalised.example_mean, 2 / 4)
    np.testing.assert_allclose(result.drop.task_mean, 1 / 6, rtol=1e-6)
    np.testing.assert_allclose(result.drop.example_mean, 1 / 4)
    np.testing.assert_allclose(compiled_top(RANKS, MEMBER, 1).standard.by_task[:2], [1 / 3, 1])


def test_a_sample_of_two_tasks_counts_once_over_examples():
    member = jnp.array([[1, 1], [0, 1]], bool)
    result = ranking.mean_hits(jnp.array([True, False]), member)
    np.testing.assert_allclose(result.by_task, [0.5, 0])
    np.testing.assert_allclose(result.example_mean, 0.5)


def test_over_time_accuracies_are_the_matrix_that_transfer_reads():
    """After task 0 the first two samples are found, after task 1 the last."""
    ranks = ranking.Ranks(jnp.ones((2, 3), int), jnp.array([[1, 2, 9], [9, 9, 1]]))
    result = compiled_top(ranks, jnp.array([[1, 1, 0], [0, 0, 1]], bool), 5)
    np.testing.assert_allclose(result.generalised.by_task, [[1, 0], [0, 1]])
    np.testing.assert_allclose(result.generalised.example_mean, [2 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(gem_backward_transfer(result.generalised.by_task), -1)


def test_chance_is_count_over_facts_and_a_task_without_facts_has_none():
    """Tasks of 2, 0, 4 and 1 facts; the last has no example."""
    fact_task = np.array([0, 0, 2, 2, 2, 2, 3])
    standard, generalised = ranking.chance_hits(fact_task, np.array([0, 2, 3, 5]), 1)
    means = (0.5 + 0.25 + 1) / 3, (0.5 + 3 * 0.25) / 4
    np.testing.assert_allclose(standard, [0.5, np.nan, 0.25, 1, *means])
    np.testing.assert_allclose(generalised, np.full(6, 1 / 7))
