"""Semantic and random division of a label space of facts into disjoint tasks.

Elhoseiny et al. 2018, section 3.1. Vectors are taken at length 1, piece by piece. Eq. 2:

    D(f, g) = Σ_c w_c ‖φ_c(f) − φ_c(g)‖² / Σ_c w_c,   w_c = 1 where both facts define piece c

so that ⟨person, *, *⟩ and ⟨person, jumping, *⟩ are at 0; it is no metric.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster import hierarchy
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from everlight.checks import Between, NonNegativeInt, check_finite, check_range, checked

TRIALS = 100
"""Random assignments, of which the most balanced is kept; as in the paper."""


class SemanticSplit(NamedTuple):
    """Tasks in falling order of their number of facts."""

    fact_task: Int[np.ndarray, "f"]
    linkage: Float[np.ndarray, "leaves-1 4"]
    """As SciPy draws dendrograms of it (`scipy.cluster.hierarchy.dendrogram`)."""
    leaf: Int[np.ndarray, "f"]
    """The dendrogram's leaf of each fact; facts share one where `level` makes them the same."""


@checked
def distances_between_facts(
    pieces: Int[np.ndarray, "f 3"], vectors: Float[np.ndarray, "v d"]
) -> Float[np.ndarray, "pairs"]:
    """D above of all pairs, condensed as by `scipy.spatial.distance.pdist`: 4 f² bytes.

    Raises:
      ValueError: a piece without vector, a vector that is not finite.
    """
    _check_words(pieces, vectors)
    between, defined = _word_distances(vectors), pieces >= 0

    def row(number: int) -> Float[np.ndarray, "_"]:
        both = defined[number] & defined[number + 1 :]
        apart = between[pieces[number], pieces[number + 1 :]]
        return np.sum(apart * both, axis=1) / np.sum(both, axis=1)

    return _condensed(row, len(pieces))


@checked
def embedding_distances(
    pieces: Int[np.ndarray, "f 3"], vectors: Float[np.ndarray, "v d"]
) -> Float[np.ndarray, "pairs"]:
    """Euclidean distances of eq. 1's embeddings, zeros where undefined; condensed likewise.

    Raises:
      ValueError: as for `distances_between_facts`.
    """
    _check_words(pieces, vectors)
    between = _word_distances(vectors)

    def row(number: int) -> Float[np.ndarray, "_"]:
        # -1 is the last word, of zeros.
        return np.sqrt(np.sum(between[pieces[number], pieces[number + 1 :]], axis=1))

    return _condensed(row, len(pieces))


@checked
def semantic_split(
    pieces: Int[np.ndarray, "f 3"],
    vectors: Float[np.ndarray, "v d"],
    tasks: int,
    linkage: Literal["ward", "single"] = "ward",
    level: Literal[1, 2, 3] = 3,
) -> SemanticSplit:
    """Agglomerative clusters, the tree cut to so many tasks.

    "single" is the paper's: nearest point by D. It chains: 6,672 facts of Visual Relationship
    Detection in four fall into 6,669 and three of one. "ward" clusters the embeddings of eq. 1.
    Merges of equal height, of which facts with common pieces have many, go by the pieces' numbers,
    so that the order in which facts are listed does not matter.
    Both take 8 f² bytes or so for f facts to cluster (SciPy): 6,672 take 0.4 GB, 165,150 would
    take 200 GB. `level` makes them fewer.

    Args:
      pieces: of every fact, -1 where undefined.
      vectors: of the words, of any length.
      tasks: how many.
      linkage: "ward" or "single".
      level: cluster the distinct facts of the first so many pieces, 1 to 3; 1 is by subject.

    Raises:
      ValueError: an unknown linkage or level, a piece without vector, fewer than 1 task, more tasks
        than facts to cluster.
    """
    _check_words(pieces, vectors)
    coarse, leaf = np.unique(
        np.where(np.arange(3) < level, pieces, -1), axis=0, return_inverse=True
    )
    _check_count(tasks, len(coarse))
    measure = embedding_distances if linkage == "ward" else distances_between_facts
    tree = np.zeros((0, 4))
    if len(coarse) > 1:
        tree = hierarchy.linkage(measure(coarse, vectors), linkage)
    return SemanticSplit(_largest_first(_cut(tree, tasks)[leaf]), tree, leaf)


@checked
def random_split(
    train_counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    test_counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    tasks: int,
    seed: NonNegativeInt,
) -> Int[np.ndarray, "f"]:
    """The most balanced of `TRIALS` random assignments of facts to tasks.

    Balance is the greatest relative deviation of any task's number of facts, of training or of
    test examples from an equal share; the least wins.

    Args:
      train_counts: training examples of every fact.
      test_counts: test examples of every fact.
      tasks: how many.
      seed: of the draws.

    Raises:
      ValueError: fewer than 1 task, more tasks than facts, no assignment gave every task a fact.
    """
    _check_count(tasks, len(train_counts))
    weights = np.stack([np.ones(len(train_counts)), train_counts, test_counts])
    # A set without examples is as balanced as can be.
    shares = np.maximum(weights.sum(axis=1, keepdims=True), 1) / tasks

    def imbalance(assigned: Int[np.ndarray, "f"]) -> tuple[bool, float]:
        totals = np.stack([np.bincount(assigned, row, minlength=tasks) for row in weights])
        return bool(np.any(totals[0] == 0)), float(np.abs(totals / shares - 1).max())

    trials = np.random.default_rng(seed).integers(0, tasks, (TRIALS, len(train_counts)))
    best = min(trials, key=imbalance)
    if imbalance(best)[0]:
        raise ValueError(
            f"none of {TRIALS} random assignments of {len(best)} facts gave each of {tasks} tasks "
            "a fact; choose fewer tasks or another seed"
        )
    return best


def _check_words(pieces: Int[np.ndarray, "f 3"], vectors: Float[np.ndarray, "v d"]) -> None:
    check_range("pieces", pieces, -1, len(vectors) - 1)
    check_finite("vectors", vectors)


def _word_distances(vectors: Float[np.ndarray, "v d"]) -> Float[np.ndarray, "v+1 v+1"]:
    """Squared, between words of length 1; a last word of zeros stands for an undefined one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.float64(vectors) / np.where(lengths > 0, lengths, 1)
    unit = np.pad(unit, ((0, 1), (0, 0)))
    squares = np.sum(unit**2, axis=1)
    between = np.maximum(squares[:, None] + squares - 2 * unit @ unit.T, 0)
    np.fill_diagonal(between, 0)
    return between


def _condensed(
    row: Callable[[int], Float[np.ndarray, "_"]], count: int
) -> Float[np.ndarray, "pairs"]:
    found = np.empty(count * (count - 1) // 2)
    start = 0
    for number in range(count - 1):
        stop = start + count - 1 - number
        found[start:stop] = row(number)
        start = stop
    return found


def _cut(tree: Float[np.ndarray, "_ 4"], tasks: int) -> Int[np.ndarray, "leaves"]:
    """The cluster of each leaf before the last `tasks` - 1 merges.

    A cut at a height could not separate merges of equal height, of which D has many.
    """
    leaves, merges = len(tree) + 1, len(tree) + 1 - tasks
    children = tree[:merges, :2].astype(int).ravel()
    parents = np.repeat(leaves + np.arange(merges), 2)
    nodes = leaves + merges
    graph = coo_array((np.ones(2 * merges), (children, parents)), shape=(nodes, nodes))
    return connected_components(graph, directed=False)[1][:leaves]


def _largest_first(cluster: Int[np.ndarray, "f"]) -> Int[np.ndarray, "f"]:
    """Clusters numbered by falling size, equal ones by their first fact."""
    _, first, sizes = np.unique(cluster, return_index=True, return_counts=True)
    place = np.argsort(np.lexsort((first, -sizes)))
    return place[cluster]


def _check_count(tasks: int, facts: int) -> None:
    if not 1 <= tasks <= facts:
        raise ValueError(f"tasks={tasks}; there are {facts} facts to divide, give 1 to {facts}")
