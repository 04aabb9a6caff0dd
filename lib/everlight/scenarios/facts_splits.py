"""Semantic and random splits of a label space of facts into disjoint tasks.

Elhoseiny et al. 2018, section 3.1. Word vectors are normalized to length 1. Eq. 2:

    D(f, g) = Σ_c w_c ‖φ_c(f) − φ_c(g)‖² / Σ_c w_c,   w_c = 1 where both facts define component c

D is not a metric: ⟨person, *, *⟩ and ⟨person, jumping, *⟩ have distance 0.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster import hierarchy
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from everlight.checks import Between, NonNegativeInt, NotEmpty, check_finite, check_range, checked
from everlight.errors import ArgumentError
from everlight.scenarios.facts import refuse_facts

TRIALS = 100
"""Number of random assignments, of which the most balanced is kept; as in the paper."""


class SemanticSplit(NamedTuple):
    """Semantic split; tasks are sorted by descending number of facts."""

    fact_task: Int[np.ndarray, "f"]
    linkage: Float[np.ndarray, "leaves-1 4"]
    """Linkage matrix for `scipy.cluster.hierarchy.dendrogram`."""
    leaf: Int[np.ndarray, "f"]
    """Dendrogram leaf of each fact; facts that `level` makes equal share one."""


@checked
def distances_between_facts(
    pieces: Int[np.ndarray, "f 3"], vectors: Annotated[Float[np.ndarray, "v d"], NotEmpty]
) -> Float[np.ndarray, "pairs"]:
    """Return D of all pairs, condensed as in `scipy.spatial.distance.pdist`: 4 f² bytes.

    Args:
      pieces: numbers of S, P and O of each fact, −1 where undefined, `[f, 3]`.
      vectors: vector of each word, `[v, d]`.

    Raises:
      ValueError: a component has no vector, a vector is not finite, or a fact has no subject.
    """
    _check_words(pieces, vectors)
    between, defined = _word_distances(vectors), pieces >= 0

    def row(number: int) -> Float[np.ndarray, "_"]:
        both = defined[number] & defined[number + 1 :]
        apart = between[pieces[number], pieces[number + 1 :]]
        return np.sum(apart * both, axis=1) / np.sum(both, axis=1)

    return _condensed_distances(row, len(pieces))


@checked
def embedding_distances(
    pieces: Int[np.ndarray, "f 3"], vectors: Annotated[Float[np.ndarray, "v d"], NotEmpty]
) -> Float[np.ndarray, "pairs"]:
    """Return Euclidean distances of eq. 1's embeddings, condensed; undefined components are zeros.

    Args:
      pieces: numbers of S, P and O of each fact, −1 where undefined, `[f, 3]`.
      vectors: vector of each word, `[v, d]`.

    Raises:
      ValueError: as for `distances_between_facts`.
    """
    _check_words(pieces, vectors)
    between = _word_distances(vectors)

    def row(number: int) -> Float[np.ndarray, "_"]:
        # -1 is the last word, of zeros.
        return np.sqrt(np.sum(between[pieces[number], pieces[number + 1 :]], axis=1))

    return _condensed_distances(row, len(pieces))


@checked
def semantic_split(
    pieces: Annotated[Int[np.ndarray, "f 3"], NotEmpty],
    vectors: Annotated[Float[np.ndarray, "v d"], NotEmpty],
    tasks: int,
    linkage: Literal["ward", "single"] = "ward",
    level: Literal[1, 2, 3] = 3,
) -> SemanticSplit:
    """Split facts by agglomerative clustering, with the tree cut into `tasks` clusters.

    "single" is the paper's linkage: nearest neighbour by D. It chains: four tasks of 6,672 facts of
    Visual Relationship Detection become one of 6,669 facts and three of one. "ward" clusters the
    embeddings of eq. 1. Ties in height, frequent among facts with common components, and in the
    tasks' numbers of facts are broken by the components' indices. The order of the facts is thus
    irrelevant.

    Clustering f facts takes about 8 f² bytes (SciPy): 0.4 GB for 6,672 facts, 200 GB for 165,150.
    `level` reduces the number.

    Args:
      pieces: components of every fact, `[f, 3]`, -1 if undefined.
      vectors: word vectors of any length, `[v, d]`.
      tasks: number of tasks.
      linkage: "ward" or "single".
      level: number of leading components, 1 to 3, whose distinct values are clustered; 1 is by
        subject.

    Raises:
      ValueError: as for `distances_between_facts`; or the linkage or level is unknown, or `tasks`
        is not between 1 and the number of facts to cluster.
    """
    _check_words(pieces, vectors)
    coarse, leaf = np.unique(
        np.where(np.arange(3) < level, pieces, -1), axis=0, return_inverse=True
    )
    check_range("tasks", tasks, 1, len(coarse))
    measure = embedding_distances if linkage == "ward" else distances_between_facts
    tree = np.zeros((0, 4))
    if len(coarse) > 1:
        tree = hierarchy.linkage(measure(coarse, vectors), linkage)
    return SemanticSplit(_number_by_size(_cut_tree(tree, tasks), leaf), tree, leaf)


@checked
def random_split(
    train_counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    test_counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    tasks: int,
    seed: NonNegativeInt,
) -> Int[np.ndarray, "f"]:
    """Return the most balanced of `TRIALS` random assignments of facts to tasks.

    Imbalance is the greatest relative deviation of any task from an equal share of facts, training
    examples or test examples. The assignment with the least imbalance wins.

    Args:
      train_counts: number of training examples of every fact, `[f]`.
      test_counts: number of test examples of every fact, `[f]`.
      tasks: number of tasks.
      seed: random seed of the assignments.

    Raises:
      ValueError: `tasks` is not between 1 and the number of facts, or every assignment left a task
        empty.
    """
    check_range("tasks", tasks, 1, len(train_counts))
    weights = np.stack([np.ones(len(train_counts)), train_counts, test_counts])
    # A set without examples is perfectly balanced.
    shares = np.maximum(weights.sum(axis=1, keepdims=True), 1) / tasks

    def imbalance(assigned: Int[np.ndarray, "f"]) -> tuple[bool, float]:
        totals = np.stack([np.bincount(assigned, row, minlength=tasks) for row in weights])
        return bool(np.any(totals[0] == 0)), float(np.abs(totals / shares - 1).max())

    trials = np.random.default_rng(seed).integers(0, tasks, (TRIALS, len(train_counts)))
    best = min(trials, key=imbalance)
    if imbalance(best)[0]:
        raise ArgumentError(
            f"none of {TRIALS} random assignments of {len(best)} facts gave each of {tasks} tasks "
            "a fact; choose fewer tasks or another seed"
        )
    return best


def _check_words(pieces: Int[np.ndarray, "f 3"], vectors: Float[np.ndarray, "v d"]) -> None:
    check_range("pieces", pieces, -1, len(vectors) - 1)
    check_finite("vectors", vectors)
    refuse_facts(pieces, pieces[:, 0] < 0, "has no subject")


def _word_distances(vectors: Float[np.ndarray, "v d"]) -> Float[np.ndarray, "v+1 v+1"]:
    """Return squared distances of unit word vectors; the last one, zeros, is the undefined word."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.float64(vectors) / np.where(lengths > 0, lengths, 1)
    unit = np.pad(unit, ((0, 1), (0, 0)))
    squares = np.sum(unit**2, axis=1)
    between = np.maximum(squares[:, None] + squares - 2 * unit @ unit.T, 0)
    np.fill_diagonal(between, 0)
    return between


def _condensed_distances(
    row: Callable[[int], Float[np.ndarray, "_"]], count: int
) -> Float[np.ndarray, "pairs"]:
    condensed = np.empty(count * (count - 1) // 2)
    start = 0
    for number in range(count - 1):
        stop = start + count - 1 - number
        condensed[start:stop] = row(number)
        start = stop
    return condensed


def _cut_tree(tree: Float[np.ndarray, "_ 4"], tasks: int) -> Int[np.ndarray, "leaves"]:
    """Return the cluster of each leaf before the last `tasks` - 1 merges.

    A cut at a height could not separate merges of equal height, which are frequent with D.
    """
    leaves, merges = len(tree) + 1, len(tree) + 1 - tasks
    children = tree[:merges, :2].astype(int).ravel()
    parents = np.repeat(leaves + np.arange(merges), 2)
    nodes = leaves + merges
    graph = coo_array((np.ones(2 * merges), (children, parents)), shape=(nodes, nodes))
    return connected_components(graph, directed=False)[1][:leaves]


def _number_by_size(
    cluster: Int[np.ndarray, "leaves"], leaf: Int[np.ndarray, "f"]
) -> Int[np.ndarray, "f"]:
    """Return each fact's cluster, numbered by descending number of facts, ties by first leaf."""
    first, sizes = np.unique(cluster, return_index=True)[1], np.bincount(cluster[leaf])
    position = np.argsort(np.lexsort((first, -sizes)))
    return position[cluster[leaf]]
