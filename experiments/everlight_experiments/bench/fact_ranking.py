"""Ranks of facts in blocks against NumPy's full matrix of distances, where that fits."""

import tracemalloc
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.metrics.ranking import Facts, Ranks, rank_facts
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns


class RankingSizes(NamedTuple):
    """What is ranked: all of the paper's large benchmark, and a part of it that fits NumPy."""

    images: int = 10_000
    facts: int = 165_150
    words: int = 10_000
    part: tuple[int, int] = (1_000, 20_000)
    """Images and facts."""
    dimension: int = 300
    rounds: int = 3


class RankingSpeed(NamedTuple):
    """Median seconds, and bytes held beside the arguments at the peak."""

    everlight_s: float
    everlight_bytes: int
    matrix_bytes: int
    """That the full matrix of all would take, in float32."""
    part_everlight_s: float
    part_everlight_bytes: int
    part_numpy_s: float
    part_numpy_bytes: int
    ratio: float
    same_ranks: float
    """Share of the part's ranks that are the same."""


class _World(NamedTuple):
    embeddings: np.ndarray
    labels: np.ndarray
    facts: Facts
    fact_task: np.ndarray


def ranking_speed(sizes: RankingSizes) -> RankingSpeed:
    """Times both ranks of every image, standard and generalised, and takes their memory."""
    whole = _world(sizes, sizes.images, sizes.facts)
    part = _world(sizes, *sizes.part)
    ranked, ranked_part = (_compiled(world) for world in (whole, part))
    on_device = [jax.tree.map(jnp.asarray, tuple(world)) for world in (whole, part)]
    turns = {
        "everlight": lambda: ranked_part(*on_device[1]),
        "numpy": lambda: numpy_ranks(*part),
    }
    seconds = seconds_in_turns(turns, sizes.rounds)
    alone = seconds_in_turns({"everlight": lambda: ranked(*on_device[0])}, 1)
    tracemalloc.start()
    theirs = numpy_ranks(*part)
    numpy_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ours = ranked_part(*on_device[1])
    return RankingSpeed(
        float(np.median(alone["everlight"])),
        ranked.memory_analysis().temp_size_in_bytes,
        4 * sizes.images * sizes.facts,
        float(np.median(seconds["everlight"])),
        ranked_part.memory_analysis().temp_size_in_bytes,
        float(np.median(seconds["numpy"])),
        numpy_bytes,
        median_ratio(seconds["numpy"], seconds["everlight"]),
        float(np.mean([np.mean(a == b) for a, b in zip(ours, theirs, strict=True)])),
    )


def numpy_ranks(
    embeddings: np.ndarray, labels: np.ndarray, facts: Facts, fact_task: np.ndarray
) -> Ranks:
    """Ranks from the full matrix, by the same formula and in the same precision."""
    pieces, vectors = facts
    squares = np.sum(vectors**2, axis=1)
    distances = np.zeros((len(embeddings), len(pieces)), np.float32)
    for piece, embedded in enumerate(np.moveaxis(embeddings, 1, 0)):
        words = squares - 2 * embedded @ vectors.T + np.sum(embedded**2, axis=1, keepdims=True)
        distances += np.pad(words, ((0, 0), (0, 1)))[:, pieces[:, piece]]
    distances /= np.sum(pieces >= 0, axis=1)
    closer = distances < np.take_along_axis(distances, labels[:, None], axis=1)
    same = fact_task[labels][:, None] == fact_task
    return Ranks(1 + np.sum(closer & same, axis=1), 1 + np.sum(closer, axis=1))


def _world(sizes: RankingSizes, images: int, facts: int) -> _World:
    """Noisy embeddings of random facts of all three types in eight tasks."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((sizes.words, sizes.dimension), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pieces = rng.integers(0, sizes.words, (facts, 3))
    kind = rng.integers(0, 3, facts)
    pieces[np.arange(3) > kind[:, None]] = -1
    labels = rng.integers(0, facts, images)
    noise = rng.standard_normal((images, 3, sizes.dimension), np.float32)
    shown = np.where(pieces[labels, :, None] >= 0, vectors[pieces[labels]], 0)
    return _World(
        (shown + noise / 10).astype(np.float32),
        labels,
        Facts(pieces, vectors),
        rng.integers(0, 8, facts),
    )


def _compiled(world: _World):
    return jax.jit(rank_facts).lower(*jax.tree.map(jnp.asarray, tuple(world))).compile()
