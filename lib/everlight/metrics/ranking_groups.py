"""Groups of facts or samples for ranking metrics: head to tail, few-shot, SPO generalization.

Elhoseiny et al. 2018, section 5.3, supplement 7.3, and the similarity of tasks of section 5.1.
"""

from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import (
    Between,
    NonNegativeInt,
    NotEmpty,
    PositiveInt,
    check_increasing,
    check_range,
    check_sizes,
    checked,
)
from everlight.metrics.ranking import Facts, check_pieces, mean_hits
from everlight.precision import matrix_product

FEW_SHOT_LIMIT = 5
"""Largest number of training examples of a few-shot fact."""

PARTS = {"S": (0,), "P": (1,), "O": (2,), "SP": (0, 1), "PO": (1, 2), "SO": (0, 2)}
Part = Literal["S", "P", "O", "SP", "PO", "SO"]
SPO_CASES = (
    ("SP", "O"),
    ("P", "SO"),
    ("PO", "S"),
    ("SP", "PO", "SO"),
    ("SP", "PO"),
    ("SP", "SO"),
    ("PO", "SO"),
)
"""Parts that must all have been seen often enough (tables 14 to 17)."""


class Bins(NamedTuple):
    """Accuracy by number of training examples; NaN in a bin without samples."""

    accuracy: Float[Array, "*time b"]
    samples: Int[Array, "b"]


@checked
def accuracy_by_count(
    hits: Bool[Array, "*time m"],
    counts: Annotated[Int[Array, "m"], Between(0)],
    edges: Annotated[Int[Array, "e"], NotEmpty],
) -> Bins:
    """Return the accuracy binned by the number of training examples of a sample's fact.

    Args:
      hits: true where a sample's label is in the Top-K, `[..., m]`.
      counts: training examples of each sample's fact, `[m]`.
      edges: increasing bin edges; bin b holds `edges[b] <= count < edges[b + 1]`, and other counts
        are ignored.

    Returns:
      Accuracies and sizes of the bins, one fewer than edges.

    Raises:
      ValueError: a count is negative, or the edges are not in ascending order.
    """
    check_increasing("edges", edges)
    inside = (counts >= edges[:-1, None]) & (counts < edges[1:, None])
    return Bins(mean_hits(hits, inside).by_task, jnp.sum(inside, axis=1))


@checked
def few_shot(counts: Annotated[Int[Array, "m"], Between(0)]) -> Bool[Array, "m"]:
    """Return True for samples of facts with at most `FEW_SHOT_LIMIT` training examples.

    Args:
      counts: training examples of each sample's fact, `[m]`.
    """
    return counts <= FEW_SHOT_LIMIT


@checked
def part_counts(
    pieces: Annotated[Int[np.ndarray, "f 3"], Between(-1)],
    counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    part: Part,
) -> Int[np.ndarray, "f"]:
    """Count training examples that have a fact's part, over all facts with this part.

    An example of ⟨dog, riding, horse⟩ has the parts of that fact, including ⟨dog, riding, *⟩ and
    ⟨dog, *, *⟩.

    Args:
      pieces: pieces of all facts, -1 where undefined.
      counts: training examples of each fact.
      part: a key of `PARTS`.

    Returns:
      The counts, 0 for a fact with an undefined piece in the part.
    """
    chosen = pieces[:, PARTS[part]]
    _, group = np.unique(chosen, axis=0, return_inverse=True)
    totals = np.bincount(group, weights=counts).astype(int)
    return np.where(np.all(chosen >= 0, axis=1), totals[group], 0)


@checked
def spo_generalization(
    pieces: Annotated[Int[np.ndarray, "f 3"], Between(-1)],
    counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    min_count: NonNegativeInt,
) -> Bool[np.ndarray, "7 f"]:
    """Return the facts of each of `SPO_CASES`: rare triples whose parts are frequent.

    Rare triples have at most `FEW_SHOT_LIMIT` examples, which count for their parts too.

    Args:
      pieces: pieces of all facts, -1 where undefined.
      counts: training examples of each fact.
      min_count: examples that each part of a case must have; 15 and 50 in the paper.
    """
    frequent = {part: part_counts(pieces, counts, part) >= min_count for part in PARTS}
    rare = np.all(pieces >= 0, axis=1) & (counts <= FEW_SHOT_LIMIT)
    return np.stack([rare & np.all([frequent[p] for p in case], axis=0) for case in SPO_CASES])


@checked
def embedding_similarity(
    facts: Facts, fact_task: Int[Array, "f"], tasks: PositiveInt
) -> Float[Array, "t t"]:
    """Return cosines between tasks' mean fact embeddings, `[t, t]`; NaN for one without facts.

    Args:
      facts: facts, as pieces with their vectors.
      fact_task: task of each fact, `[f]`.
      tasks: number of tasks.

    Raises:
      ValueError: a fact's task is missing or out of range, or a piece is not a word.
    """
    check_pieces(facts)
    check_sizes(pieces=(facts.pieces, 0), fact_task=(fact_task, 0))
    check_range("fact_task", fact_task, 0, tasks - 1)

    def total(words: Int[Array, "f"]) -> Float[Array, "t d"]:
        # Weighted by word counts: the embeddings of all facts need not fit in memory.
        used = jnp.zeros((tasks, facts.vectors.shape[0]))
        used = used.at[fact_task, words].add(words >= 0)
        return matrix_product(used, facts.vectors)

    # A mean and a sum point in the same direction.
    sums = jnp.concatenate([total(facts.pieces[:, kind]) for kind in range(3)], axis=1)
    unit = sums / jnp.linalg.norm(sums, axis=1, keepdims=True)
    return matrix_product(unit, unit.T)


@checked
def spo_overlap(
    pieces: Annotated[Int[np.ndarray, "f 3"], Between(-1)],
    fact_task: Int[np.ndarray, "f"],
    tasks: PositiveInt,
) -> Float[np.ndarray, "t t"]:
    """Return the geometric mean over S, P and O of |intersection| / |union| of two tasks' pieces.

    It is 0 where tasks share no piece of a kind. A kind absent from both tasks is excluded; two
    tasks without pieces have NaN.

    Args:
      pieces: numbers of S, P and O of each fact, −1 where undefined, `[f, 3]`.
      fact_task: task of each fact, `[f]`.
      tasks: number of tasks.

    Raises:
      ValueError: a fact's task is out of range.
    """
    check_range("fact_task", fact_task, 0, tasks - 1)
    ratios = np.stack([_overlap(pieces[:, kind], fact_task, tasks) for kind in range(3)])
    is_finite = np.isfinite(ratios)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(is_finite, np.log(np.where(is_finite, ratios, 1)), 0)
        return np.exp(np.sum(logs, axis=0) / np.sum(is_finite, axis=0))


def _overlap(
    words: Int[np.ndarray, "f"], fact_task: Int[np.ndarray, "f"], tasks: int
) -> Float[np.ndarray, "t t"]:
    seen = [set(words[(fact_task == task) & (words >= 0)].tolist()) for task in range(tasks)]
    return np.array([[_ratio(first, second) for second in seen] for first in seen])


def _ratio(first: set, second: set) -> float:
    either = len(first | second)
    return len(first & second) / either if either else np.nan
