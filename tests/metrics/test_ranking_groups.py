"""Groups of facts and similarity of tasks, on cases small enough to count."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics import ranking_groups
from everlight.metrics.ranking import Facts

PERSON, DOG, RIDING, EATING, HORSE, WAVE = range(6)
PIECES = np.array(
    [
        [PERSON, -1, -1],
        [PERSON, RIDING, -1],
        [PERSON, RIDING, HORSE],
        [PERSON, EATING, HORSE],
        [DOG, RIDING, HORSE],
        [DOG, RIDING, WAVE],
        [DOG, -1, -1],
    ]
)
COUNTS = np.array([40, 20, 5, 3, 6, 9, 2])


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("S", [68, 68, 68, 68, 17, 17, 17]),
        ("P", [0, 40, 40, 3, 40, 40, 0]),
        ("O", [0, 0, 14, 14, 14, 9, 0]),
        ("SP", [0, 25, 25, 3, 15, 15, 0]),
        ("PO", [0, 0, 11, 3, 11, 9, 0]),
        ("SO", [0, 0, 8, 8, 6, 9, 0]),
    ],
)
def test_examples_of_every_part(part, expected):
    np.testing.assert_array_equal(ranking_groups.part_counts(PIECES, COUNTS, part), expected)


def rare_facts(least):
    cases = ranking_groups.spo_generalization(PIECES, COUNTS, least)
    names = ["+".join(case) for case in ranking_groups.SPO_CASES]
    return {n: np.flatnonzero(case).tolist() for n, case in zip(names, cases, strict=True)}


def test_spo_cases_are_rare_triples_whose_parts_are_frequent():
    """Only facts 2 and 3 are triples of at most five examples."""
    names = ("SP+O", "P+SO", "PO+S", "SP+PO+SO", "SP+PO", "SP+SO", "PO+SO")
    assert rare_facts(8) == {name: [2] for name in names}
    assert rare_facts(3)["PO+SO"] == [2, 3]
    # ⟨riding, horse⟩ has 11 examples, ⟨person, *, horse⟩ 8.
    least = rare_facts(11)
    assert [name for name, actual in least.items() if actual] == ["SP+O", "PO+S", "SP+PO"]
    assert len(ranking_groups.SPO_CASES) == 7
    assert {
        part for case in ranking_groups.SPO_CASES for part in case
    } <= ranking_groups.PARTS.keys()


def test_head_to_tail_by_hand():
    hits = jnp.array([[1, 0, 1, 1, 1], [0, 0, 0, 0, 1]], bool)
    counts = jnp.array([1, 5, 6, 50, 100])
    result = ranking_groups.accuracy_by_count(hits, counts, jnp.array([1, 6, 7, 50, 100]))
    np.testing.assert_allclose(result.accuracy, [[0.5, 1, np.nan, 1], [0, 0, np.nan, 0]])
    np.testing.assert_array_equal(result.samples, [2, 1, 0, 1])


def test_few_shot_is_up_to_five():
    np.testing.assert_array_equal(
        ranking_groups.few_shot(jnp.array([0, 5, 6])), [True, True, False]
    )


def test_tasks_are_as_similar_as_their_mean_embeddings(rng):
    vectors = rng.normal(size=(6, 3))
    task = np.array([0, 0, 1, 1, 1, 2, 2])
    embedded = np.where(PIECES[..., None] >= 0, vectors[PIECES], 0).reshape(7, -1)
    means = np.stack([embedded[task == t].mean(axis=0) for t in range(3)])
    expected = [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in means] for a in means]
    facts = Facts(jnp.asarray(PIECES), jnp.asarray(vectors, jnp.float32))
    result = ranking_groups.embedding_similarity(facts, jnp.asarray(task), 4)
    np.testing.assert_allclose(result[:3, :3], expected, atol=1e-6)
    assert np.all(np.isnan(result[3]))


def test_spo_overlap_by_hand():
    """The last of the tasks {0, 1, 2}, {3, 4}, {6} has neither predicates nor objects."""
    result = ranking_groups.spo_overlap(PIECES[[0, 1, 2, 3, 4, 6]], np.array([0, 0, 0, 1, 1, 2]), 3)
    # S {person} and {person, dog}: 1/2; P {riding} and {eating, riding}: 1/2; O {horse} twice: 1.
    assert result[0, 1] == pytest.approx(0.25 ** (1 / 3))
    # S {dog} of {person, dog}: 1/2, but none of its two predicates.
    assert result[1, 2] == 0
    np.testing.assert_allclose(np.diag(result), 1)
    np.testing.assert_array_equal(result, result.T)


def test_tasks_without_facts_have_no_overlap():
    result = ranking_groups.spo_overlap(PIECES[:1], np.array([0]), 3)
    np.testing.assert_array_equal(result, [[1, 0, 0], [0, np.nan, np.nan], [0, np.nan, np.nan]])
