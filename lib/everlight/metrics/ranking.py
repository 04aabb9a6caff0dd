"""Ranks of structured labels by distance in an embedding space, and Top-K accuracy.

A fact ⟨S, P, O⟩ has three pieces, each a word of a vocabulary or undefined. An image's embedding
has a vector for each piece. The distance to a fact is the mean over the pieces that the fact
defines:

    D(x, f) = Σ_c w_c ‖x_c − φ_c(f)‖² / Σ_c w_c,   w_c = 1 where f defines piece c

With a sum instead of a mean, facts with one piece would be closer than facts with three. Elhoseiny
et al. 2018, "Exploring the challenges towards lifelong fact learning", section 5.1.

Functions of `Facts` raise ValueError for a piece that is not a word, a word vector that is not
finite, and a fact without a piece, which has no distance.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import (
    Between,
    NotEmpty,
    PositiveInt,
    check_finite,
    check_range,
    check_sizes,
    checked,
)
from everlight.errors import ArgumentError
from everlight.precision import full_precision


class Facts(NamedTuple):
    """Label space of facts; a fact's index is its label."""

    pieces: Int[Array, "f 3"]
    """Subject, predicate and object as indices into `vectors`; -1 is undefined."""
    vectors: Float[Array, "v d"]
    """Word vectors of the vocabulary shared by subjects, predicates and objects."""


class Ranks(NamedTuple):
    """Ranks of true labels: 1 plus the number of strictly closer labels; ties share a rank."""

    standard: Int[Array, "*time m"]
    """Rank among the labels of the label's own task (eq. 3)."""
    generalised: Int[Array, "*time m"]
    """Rank among the labels of all tasks (eq. 4)."""


class Means(NamedTuple):
    """Accuracy on each task's samples and its two means; NaN over no sample."""

    by_task: Float[Array, "*time t"]
    task_mean: Float[Array, "*time"]
    """Mean with equal weight per task, excluding tasks without samples."""
    example_mean: Float[Array, "*time"]
    """Mean with equal weight per sample."""


class TopK(NamedTuple):
    """Top-K accuracies; over time, `generalised.example_mean` is the paper's gained knowledge."""

    standard: Means
    generalised: Means
    drop: Means
    """Standard minus generalised accuracy; never below 0."""


@checked
def distances_to_facts(embeddings: Float[Array, "m 3 d"], facts: Facts) -> Float[Array, "f m"]:
    """Compute D(x, f) between all facts and images at once, `[f, m]`; memory grows with both.

    Args:
      embeddings: embedded S, P and O of each image, `[m, 3, d]`.
      facts: facts, as pieces with their vectors.

    Raises:
      ValueError: embeddings and word vectors differ in dimension, or as the module says.
    """
    check_pieces(facts)
    check_sizes(vectors=(facts.vectors, 1), embeddings=(embeddings, 2))
    return _gather_distances(_word_distances(embeddings, facts.vectors), facts.pieces)


@checked
def embed_facts(facts: Facts) -> Float[Array, "f 3 d"]:
    """Return φ of every fact (eq. 1): its pieces' vectors, zeros where undefined, `[f, 3, d]`.

    Args:
      facts: facts, as pieces with their vectors.
    """
    check_pieces(facts)
    return jnp.where(facts.pieces[..., None] >= 0, facts.vectors[facts.pieces], 0)


@checked
def rank_facts(
    embeddings: Annotated[Float[Array, "m 3 d"], NotEmpty],
    labels: Int[Array, "m"],
    facts: Facts,
    fact_task: Annotated[Int[Array, "f"], Between(0)],
    images_at_once: PositiveInt = 128,
    facts_at_once: PositiveInt = 4096,
) -> Ranks:
    """Rank the true labels in one pass over blocks of images and, for each, blocks of facts.

    Distances to the v words are computed first and shared by all facts. This needs 3mvd products
    instead of 3mfd, and facts that share a word tie exactly. An embedding that is not finite ranks
    last, at f + 1 (standard: one after its task's last). In addition to its arguments and a copy of
    them, the function needs about 24 bytes times `images_at_once` times (v + facts_at_once), for
    any m and f.

    Args:
      embeddings: embeddings of the images, `[m, 3, d]`.
      labels: true fact of each image, `[m]`.
      facts: the whole label space.
      fact_task: task of each fact, `[f]`.
      images_at_once: images per block.
      facts_at_once: facts per block.

    Returns:
      Ranks, `[m]` each, int32.

    Raises:
      ValueError: there is no image, a label is not a fact, a piece is not a word, a word vector is
        not finite, or a fact has no piece or no task.
    """
    check_pieces(facts)
    fact_task = jnp.asarray(fact_task)
    check_sizes(pieces=(facts.pieces, 0), fact_task=(fact_task, 0))
    check_sizes(vectors=(facts.vectors, 1), embeddings=(embeddings, 2))
    check_range("labels", labels, 0, facts.pieces.shape[0] - 1)
    count, size = labels.shape[0], facts.pieces.shape[0]
    facts_at_once = min(facts_at_once, size)
    pieces = _blocks(facts.pieces, facts_at_once)
    # Padding belongs to no task and to no fact, and neither rank counts it.
    tasks = _blocks(fact_task, facts_at_once, fill=-1)
    real = _blocks(jnp.ones(size, bool), facts_at_once)

    def rank_block(block: tuple[Float[Array, "b 3 d"], Int[Array, "b"]]) -> Ranks:
        embedded, label = block
        words = _word_distances(embedded, facts.vectors)
        true_distance = _true_label_distances(words, facts.pieces[label])

        def add(counted: Ranks, part: tuple) -> tuple[Ranks, None]:
            some, task, mask = part
            # Not "less": where the embedding is NaN every label counts as closer.
            closer = ~(_gather_distances(words, some) >= true_distance) & mask[:, None]
            same = closer & (task[:, None] == fact_task[label])
            return Ranks(
                counted.standard + jnp.sum(same, axis=0, dtype=jnp.int32),
                counted.generalised + jnp.sum(closer, axis=0, dtype=jnp.int32),
            ), None

        start = jnp.ones(label.shape, jnp.int32)
        return jax.lax.scan(add, Ranks(start, start), (pieces, tasks, real))[0]

    images_at_once = min(images_at_once, count)
    blocks = (_blocks(embeddings, images_at_once), _blocks(labels, images_at_once))
    ranks = jax.lax.map(rank_block, blocks)
    return jax.tree.map(lambda leaf: leaf.reshape(-1)[:count], ranks)


@checked
def top_k(ranks: Ranks, member: Bool[Array, "t m"], k: PositiveInt = 5) -> TopK:
    """Return Top-K accuracies, standard and generalised, and the drop between them.

    Args:
      ranks: ranks, `[..., m]`; with a time axis, `by_task` is an accuracy matrix for transfer
        metrics (`metrics.accuracy_matrix`).
      member: mask of each task's samples, `[t, m]`.
      k: largest rank that counts as found; 5 in the paper.

    Raises:
      ValueError: the mask has another number of samples.
    """
    check_sizes(ranks=(ranks.standard, -1), member=(member, 1))
    standard, generalised = (mean_hits(rank <= k, member) for rank in ranks)
    drop = jax.tree.map(jnp.subtract, standard, generalised)
    return TopK(standard, generalised, drop)


@checked
def mean_hits(hits: Bool[Array, "*time m"], member: Bool[Array, "t m"]) -> Means:
    """Return the fraction of hits by task and its two means.

    Args:
      hits: True where the right fact is among the best, `[..., m]`.
      member: True where a sample belongs to a task, `[t, m]`.
    """
    size = jnp.sum(member, axis=1)
    hit_counts = jnp.sum(hits[..., None, :] & member, axis=-1)
    by_task = hit_counts / size
    anywhere = jnp.any(member, axis=0)
    return Means(
        by_task, jnp.mean(by_task, axis=-1, where=size > 0), jnp.mean(hits, axis=-1, where=anywhere)
    )


def check_pieces(facts: Facts) -> None:
    """Check that pieces are words or undefined, some of every fact, and word vectors finite.

    Raises:
      ValueError: a piece is out of range, a fact has none, or a word vector is not finite.
    """
    check_range("facts.pieces", facts.pieces, -1, facts.vectors.shape[0] - 1)
    check_finite("facts.vectors", facts.vectors)
    if isinstance(facts.pieces, jax.core.Tracer):
        return
    empty = np.flatnonzero((np.asarray(facts.pieces) < 0).all(axis=1))
    if len(empty):
        raise ArgumentError(f"facts.pieces has no piece of fact {empty[0]}; give one or more")


@full_precision
def _word_distances(
    embeddings: Float[Array, "b 3 d"], vectors: Float[Array, "v d"]
) -> Float[Array, "3 words b"]:
    """Return ‖x_c − word‖² for every piece; a last row of zeros stands for an undefined word."""
    product = jnp.einsum("bcd,vd->cvb", embeddings, vectors)
    lengths = jnp.sum(embeddings**2, axis=-1).T[:, None, :]
    squares = lengths - 2 * product + jnp.sum(vectors**2, axis=-1)[:, None]
    # Stored before it is gathered: fused into two consumers, it could round differently in each.
    return jax.lax.optimization_barrier(jnp.pad(squares, ((0, 0), (0, 1), (0, 0))))


def _gather_distances(
    words: Float[Array, "3 words b"], pieces: Int[Array, "n 3"]
) -> Float[Array, "n b"]:
    # -1 is the last row, of zeros.
    total = words[0, pieces[:, 0]] + words[1, pieces[:, 1]] + words[2, pieces[:, 2]]
    return total * _share(pieces)[:, None]


def _true_label_distances(
    words: Float[Array, "3 words b"], pieces: Int[Array, "b 3"]
) -> Float[Array, "b"]:
    """Return the distance of each image to its own label, in the same order of operations."""
    image = jnp.arange(pieces.shape[0])
    parts = [words[piece, pieces[:, piece], image] for piece in range(3)]
    distance = (parts[0] + parts[1] + parts[2]) * _share(pieces)
    # Overflow puts all labels at the same infinite distance, which must not count as a tie.
    return jnp.where(jnp.isfinite(distance), distance, jnp.nan)


def _share(pieces: Int[Array, "n 3"]) -> Float[Array, "n"]:
    return 1 / jnp.sum(pieces >= 0, axis=-1)


def _blocks(values: Array, size: int, fill: int = 0) -> Array:
    """Split along the first axis into blocks, padding the last one."""
    missing = [(0, -values.shape[0] % size)] + [(0, 0)] * (values.ndim - 1)
    padded = jnp.pad(values, missing, constant_values=fill)
    return padded.reshape(-1, size, *values.shape[1:])


@checked
def nearest_facts(
    embeddings: Float[Array, "s 3 d"], facts: Facts, count: PositiveInt
) -> Int[Array, "s k"]:
    """Return the nearest facts of all tasks to each embedding, nearest first, `[s, count]`.

    The facts of an embedding that is not finite are arbitrary.

    Args:
      embeddings: embedding of each sample's subject, predicate and object, `[s, 3, d]`.
      facts: label space.
      count: number of facts per sample.

    Raises:
      ValueError: as for `distances_to_facts`, or `count` is above the number of facts.
    """
    check_range("count", count, 1, facts.pieces.shape[0])
    return jax.lax.top_k(-distances_to_facts(embeddings, facts).T, count)[1]


@checked
def chance_hits(
    fact_task: Annotated[Int[np.ndarray, "f"], Between(0)],
    labels: Annotated[Int[np.ndarray, "m"], NotEmpty],
    count: PositiveInt,
) -> tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]:
    """Return the probability of a hit when facts are in random order, standard and generalised.

    Each array has the probability of every task, then the means over tasks and over examples. The
    standard one of a task without facts is NaN, and the mean excludes it.

    Args:
      fact_task: task of each fact, `[f]`.
      labels: fact of each test example, `[m]`.
      count: rank up to which a fact is a hit.

    Raises:
      ValueError: there is no example, a label is not a fact, or a task is negative.
    """
    check_range("labels", labels, 0, len(fact_task) - 1)
    facts = np.bincount(fact_task)
    examples = np.bincount(fact_task[labels], minlength=len(facts))
    standard = np.minimum(count / np.where(facts > 0, facts, np.nan), 1)
    means = np.nanmean(standard), np.average(np.nan_to_num(standard), weights=examples)
    generalised = np.full(len(facts) + 2, min(count / len(fact_task), 1.0))
    return np.append(standard, means), generalised
