"""The distance of eq. 2 and the divisions, against loops, SciPy's own distances and by hand."""

import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

from everlight.scenarios import facts_splits as splits
from everlight.scenarios.facts_splits import TRIALS
from tests.refusals import refused


def random_facts(seed, count=40, words=12, size=5):
    rng = np.random.default_rng(seed)
    pieces = rng.integers(0, words, (count, 3))
    kind = rng.integers(0, 3, count)
    pieces[kind < 2, 2] = -1
    pieces[kind < 1, 1] = -1
    pieces = np.unique(pieces, axis=0)
    return rng.permutation(pieces), rng.normal(size=(words, size)) * rng.uniform(0.1, 9, (words, 1))


def embedded(pieces, vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(pieces[..., None] >= 0, unit[pieces], 0)


def test_an_undefined_piece_is_no_distance():
    """⟨person, *, *⟩ is at 0 of ⟨person, jumping, *⟩, wherever jumping is."""
    vectors = np.array([[3.0, 0, 0], [0, 2, 0], [0, 0, 1]])
    person, jumping, dog = range(3)
    pieces = np.array([[person, -1, -1], [person, jumping, -1], [dog, jumping, -1]])
    # Orthogonal subjects are at 2, halved where the predicate is shared.
    np.testing.assert_allclose(
        squareform(splits.distances_between_facts(pieces, vectors)),
        [[0, 0, 2], [0, 0, 1], [2, 1, 0]],
    )


def test_distance_of_eq_2_against_loops():
    pieces, vectors = random_facts(0)
    unit = embedded(pieces, vectors)
    expected = [
        np.mean([np.sum((unit[i, c] - unit[j, c]) ** 2) for c in range(3) if min(p[c], q[c]) >= 0])
        for i, p in enumerate(pieces)
        for j, q in enumerate(pieces)
        if i < j
    ]
    np.testing.assert_allclose(
        splits.distances_between_facts(pieces, vectors), expected, atol=1e-12
    )


def test_distances_of_embeddings_are_scipy_s():
    pieces, vectors = random_facts(1)
    expected = pdist(embedded(pieces, vectors).reshape(len(pieces), -1))
    np.testing.assert_allclose(splits.embedding_distances(pieces, vectors), expected, atol=1e-7)


def test_a_word_without_vector_is_at_zero_and_gives_no_nan():
    vectors = np.array([[0.0, 0], [1, 0]])
    result = splits.distances_between_facts(np.array([[0, -1, -1], [1, -1, -1]]), vectors)
    np.testing.assert_allclose(result, [1])


@pytest.mark.parametrize(
    "use",
    [
        splits.distances_between_facts,
        splits.embedding_distances,
        lambda pieces, vectors: splits.semantic_split(pieces, vectors, 2, "single"),
    ],
)
def test_a_fact_without_a_subject_has_no_distance(use):
    pieces = np.array([[0, -1, -1], [-1, 1, -1]])
    refused(r"fact 1, \[-1, 1, -1\], has no subject; leave it out", lambda: use(pieces, np.eye(2)))


def two_kinds(count=9):
    """Return subjects in two tight bundles of directions, of 5 and 4 words."""
    angle = np.where(np.arange(count) < 5, 0.0, 1.5) + 0.01 * np.arange(count)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


@pytest.mark.parametrize("linkage", ["ward", "single"])
def test_clusters_are_found_and_the_larger_comes_first(linkage):
    order = np.array([7, 0, 1, 5, 2, 3, 8, 4, 6])
    pieces = np.stack([order, np.full(9, -1), np.full(9, -1)], axis=1)
    split = splits.semantic_split(pieces, two_kinds(), 2, linkage)
    np.testing.assert_array_equal(split.fact_task, order >= 5)
    assert split.linkage.shape == (8, 4)
    assert hierarchy.is_valid_linkage(split.linkage)


@pytest.mark.parametrize("linkage", ["ward", "single"])
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_without_ties_the_cut_is_scipy_s(linkage, tasks):
    rng = np.random.default_rng(4)
    pieces, vectors = np.full((30, 3), -1), rng.normal(size=(30, 4))
    pieces[:, 0] = np.arange(30)
    result = splits.semantic_split(pieces, vectors, tasks, linkage)
    expected = hierarchy.fcluster(result.linkage, tasks, "maxclust")
    pairs = {tuple(pair) for pair in zip(result.fact_task, expected, strict=True)}
    assert len(pairs) == len(set(expected)) == tasks


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 8), st.sampled_from(["ward", "single"]))
def test_every_task_has_facts_and_the_listing_does_not_matter(seed, tasks, linkage):
    """Many ties are at height 0."""
    pieces, vectors = random_facts(seed, words=4)
    result = splits.semantic_split(pieces, vectors, tasks, linkage).fact_task
    sizes = np.bincount(result)
    assert len(sizes) == tasks
    assert np.all(np.diff(sizes) <= 0)
    assert sizes.min() > 0
    order = np.random.default_rng(seed).permutation(len(pieces))
    again = splits.semantic_split(pieces[order], vectors, tasks, linkage).fact_task
    np.testing.assert_array_equal(result[order], again)


def test_at_a_coarser_level_facts_of_one_subject_stay_together():
    pieces, vectors = random_facts(3, count=200)
    split = splits.semantic_split(pieces, vectors, 3, level=1)
    assert len(split.linkage) == len(np.unique(pieces[:, 0])) - 1
    pairs = np.unique(np.stack([pieces[:, 0], split.fact_task], axis=1), axis=0)
    assert len(pairs) == len(np.unique(pieces[:, 0]))
    np.testing.assert_array_equal(np.unique(pieces[:, 0], return_inverse=True)[1], split.leaf)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": 35}, "tasks=35; give 1 to 34"),
        ({"tasks": 0}, "tasks=0"),
        ({"tasks": 13, "level": 1}, "tasks=13; give 1 to 12"),
    ],
)
def test_a_division_that_cannot_be_is_named(change, message):
    pieces, vectors = random_facts(5)
    assert len(pieces) == 34
    with pytest.raises(ValueError, match=message):
        splits.semantic_split(pieces, vectors, **{"tasks": 4, **change})


def test_a_piece_without_vector_is_named():
    pieces, vectors = random_facts(5)
    with pytest.raises(ValueError, match=f"pieces holds {pieces.max()}; give -1 to 2"):
        splits.semantic_split(pieces, vectors[:3], 4)


COUNTS = np.random.default_rng(8).integers(0, 30, (2, 60))


def imbalance(task, tasks):
    totals = np.array([[w[task == t].sum() for t in range(tasks)] for w in (np.ones(60), *COUNTS)])
    return np.abs(totals / totals.mean(axis=1, keepdims=True) - 1).max()


def test_the_random_split_is_the_most_balanced_of_a_hundred():
    assert TRIALS == 100
    result = splits.random_split(*COUNTS, 4, seed=3)
    rng = np.random.default_rng(3)
    # One assignment after another draws the same numbers.
    item = [imbalance(rng.integers(0, 4, 60), 4) for _ in range(100)]
    assert imbalance(result, 4) == pytest.approx(min(item))
    assert min(item) < np.median(item)
    np.testing.assert_array_equal(result, splits.random_split(*COUNTS, 4, seed=3))
    assert np.any(result != splits.random_split(*COUNTS, 4, seed=4))


@pytest.mark.parametrize(("tasks", "message"), [(61, "tasks=61"), (0, "tasks=0"), (60, "none of")])
def test_a_random_split_that_cannot_be_is_named(tasks, message):
    with pytest.raises(ValueError, match=message):
        splits.random_split(*COUNTS, tasks, seed=0)


def test_real_facts_chain_under_single_linkage_as_measured(real_data):
    """K = 4 gives one task of 6,669 facts and three of one on Visual Relationship Detection."""
    archive = zipfile.ZipFile(real_data("vrd_spo_facts/vrd_annotations.zip"))
    images = json.loads(archive.read("annotations_train.json"))
    facts = {
        (r["subject"]["category"], 100 + r["predicate"], r["object"]["category"])
        for relations in images.values()
        for r in relations
    }
    vectors = np.load(real_data("vrd_spo_facts/vrd_word_embeddings.npz"))
    words = np.concatenate([vectors["objects_gnews"], vectors["predicates_gnews"]])
    split = splits.semantic_split(np.array(list(facts)), words, 4, "single")
    np.testing.assert_array_equal(np.bincount(split.fact_task), [6669, 1, 1, 1])
