"""Metrics of ranked facts, the paper's numbers, and baselines that see no pixel.

The paper's are of 6DS (mid-scale) and Sherlock (large-scale), other data than ours.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.registry import METHODS
from everlight.metrics import gem_backward_transfer, gem_forward_transfer
from everlight.metrics.ranking import (
    Facts,
    Ranks,
    distances_to_facts,
    mean_hits,
    rank_facts,
    top_k,
)
from everlight.metrics.ranking_groups import (
    SPO_CASES,
    accuracy_by_count,
    few_shot,
    spo_generalisation,
)
from everlight_data.facts.divided import DividedFacts
from everlight_data.facts.vrd import box_features
from everlight_experiments.common.many_runs import DIVERGED_AT, NOWHERE
from everlight_experiments.continual.benchmark import (
    Benchmarks,
    Draw,
    Metric,
    Trained,
    once_per_run,
)
from everlight_experiments.continual.outcome import BY_TASK, measured

TOP = 5
"""Rank up to which a fact counts as found; 5 in the paper."""
EDGES = (0, 1, 2, 6, 11, 21, 51, 101, 100_000)
"""Edges of bins of training examples, from tail to head."""
BINS = ("0", "1", "2–5", "6–10", "11–20", "21–50", "51–100", "101+")
LEAST = (15, 50)
"""Training examples that a part must have in the cases of SPO generalisation."""
STANDARD, GENERALISED, DROP = "standard Top-5", "generalised Top-5", "drop"
OVER_TASKS, BY_COUNT = "{} over tasks", "{} by training examples"
BACKWARD, FORWARD = "backward transfer (GEM)", "forward transfer (GEM)"
HITS, FOUND = "hits", "nearest facts"
FEW_SHOT = "few-shot Top-5"
SPO = "SPO generalisation"
LAYOUT, NO_INPUT = "layout only", "no input"
UNITS = 256
RIDGE = 1e-3
"""Added to the mean of squares of every unit."""
Features = tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "m f"]]
"""Features of training and of test examples."""
Baselines = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]
"""Metrics of what is not trained, by split and name."""
OTHER_DATA = "6DS and Sherlock, other data"
PRINTED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "mid-scale, random": {
        "ExpertGate": (64.88, 43.69),
        "finetune": (66.11, 42.02),
        "IMM mode": (78.15, 58.77),
        "SI": (75.94, 50.95),
        "MAS": (79.68, 56.94),
        "joint": (82.57, 70.87),
    },
    "mid-scale, semantic": {
        "ExpertGate": (59.39, 51.83),
        "finetune": (21.3, 6.07),
        "IMM mode": (64.33, 37.31),
        "SI": (21.23, 5.77),
        "MAS": (30.96, 6.04),
        "joint": (74.75, 70.87),
    },
    "large-scale, random": {
        "ExpertGate": (20.95, 15.34, 1.46),
        "finetune": (26.59, 18.93, 3.16, -0.35, 0.22),
        "IMM mode": (27.53, 20.91, 1.88),
        "SI": (28.06, 19.92, 2.87, -0.25, 0.26),
        "MAS": (32.0, 22.48, 3.33, -0.22, 0.30),
        "joint": (float("nan"), float("nan"), 5.7),
    },
    "large-scale, semantic": {
        "ExpertGate": (20.15, 14.91, 1.05),
        "finetune": (17.91, 9.75, 1.86, -0.44, 0.06),
        "IMM mode": (14.81, 4.15, 0.5),
        "SI": (17.49, 8.7, 1.18, -0.37, 0.08),
        "MAS": (18.75, 8.54, 1.27, -0.20, 0.24),
        "joint": (23.41, 20.68, 5.7),
    },
}
"""Top-5 over examples, standard and generalised (tables 3 to 8); few-shot Top-5 over tasks (tables
11 and 12); BWT and FWT (table 10)."""
SPO_TOP5 = {
    15: {
        "finetune": (10.11, 27.44, 12.35, 20.91, 29.37, 20.91, 33.8),
        "SI": (10.41, 21.11, 6.17, 10.52, 12.81, 11.21, 21.61),
        "MAS": (6.81, 9.5, 3.09, 14.42, 19.57, 14.15, 21.61),
    },
    50: {
        "finetune": (17.25, 31.56, 8.66, 23.31, 28.66, 22.98, 33.29),
        "SI": (12.58, 20.18, 7.65, 10.7, 13.9, 11.28, 19.49),
        "MAS": (10.02, 23.28, 5.61, 14.78, 18.56, 14.46, 21.9),
    },
}
"""Top-5 by least examples of a part, in the order of `SPO_CASES` (tables 14 to 17)."""
SIMILARITY = {
    "mid-scale, semantic": (0.02, 0.25),
    "mid-scale, random": (0.22, 0.84),
    "large-scale, semantic": (0.07, 0.238),
    "large-scale, random": (0.96, 0.453),
}
"""Mean word2vec similarity and SPO overlap of tasks, each with itself counted (table 9, section 7).
The mid-scale random overlap is as printed; its own table's entries have the mean 0.38."""


class Groups(NamedTuple):
    """Groups of test examples by what was trained on; the same for all methods."""

    counts: Int[np.ndarray, "m"]
    """Training examples of each test example's fact."""
    few: Bool[np.ndarray, "m"]
    spo: Bool[np.ndarray, "thresholds 7 m"]


def group_tests(divided: DividedFacts) -> Groups:
    """Return the groups of the test examples."""
    counts, label = divided.train_counts, divided.test.fact
    cases = [spo_generalisation(divided.pieces, counts, least)[:, label] for least in LEAST]
    few = np.asarray(few_shot(jnp.asarray(counts[label])))
    return Groups(counts[label], few, np.stack(cases))


def fact_metrics(
    groups: Groups, shown: int, initial: Callable[[Draw], Ranks]
) -> tuple[Metric, ...]:
    """Return all metrics, which share what is computed once for a run.

    Args:
      groups: of the test examples.
      shown: number of test samples whose nearest facts are kept.
      initial: ranks before the first task.
    """
    scores = once_per_run(functools.partial(scores_of, groups, initial))

    def metric(name: str, *axes, better: bool | None = True) -> Metric:
        return Metric(name, lambda run: scores(run)[name], axes, better)

    def top5(name: str, better: bool = True) -> list[Metric]:
        return [
            metric(name, "time", better=better),
            metric(BY_TASK.format(name), "time", "task", better=better),
            metric(OVER_TASKS.format(name), "time", better=better),
        ]

    return (
        *top5(GENERALISED),
        *top5(STANDARD),
        *top5(DROP, False),
        metric(BACKWARD),
        metric(FORWARD),
        metric(HITS, len(groups.counts)),
        metric(FEW_SHOT),
        metric(BY_TASK.format(FEW_SHOT), "task"),
        metric(OVER_TASKS.format(FEW_SHOT)),
        metric(BY_COUNT.format(STANDARD), BINS),
        metric(BY_COUNT.format(GENERALISED), BINS),
        metric(SPO, len(LEAST), len(SPO_CASES)),
        metric(FOUND, shown, TOP, better=None),
    )


def scores_of(
    groups: Groups, initial: Callable[[Draw], Ranks], run: Trained
) -> dict[str, np.ndarray]:
    """Return every metric of a run by name; transfer is NaN where all was learned at once."""
    # The test examples may be padded to the number of those for validation.
    size = len(groups.counts)
    member = jnp.asarray(run.sequence.test_member)[:, :size]
    ranks = Ranks(*(jnp.asarray(run.arrays[name])[:, :size] for name in Ranks._fields))
    scores = top_k(ranks, member, TOP)
    hits = [rank[-1] <= TOP for rank in ranks]
    backward = forward = np.float32(np.nan)
    if np.any(run.arrays["steps"][:-1]):
        start = Ranks(*(rank[None, :size] for rank in initial(run.draw)))
        matrix = scores.generalised.by_task
        backward = gem_backward_transfer(matrix)
        forward = gem_forward_transfer(matrix, top_k(start, member, TOP).generalised.by_task[0])
    few = mean_hits(hits[1], member & groups.few)
    counts, edges = jnp.asarray(groups.counts), jnp.asarray(EDGES)
    cases = mean_hits(hits[1], jnp.asarray(groups.spo).reshape(-1, size)).by_task
    found: dict[str, Any] = {}
    names = (STANDARD, GENERALISED, DROP, FEW_SHOT)
    for name, means in zip(names, (*scores, few), strict=True):
        found[name] = means.over_examples
        found[BY_TASK.format(name)] = means.by_task
        found[OVER_TASKS.format(name)] = means.over_tasks
    for name, hit in zip((STANDARD, GENERALISED), hits, strict=True):
        found[BY_COUNT.format(name)] = accuracy_by_count(hit, counts, edges).accuracy
    found |= {BACKWARD: backward, FORWARD: forward, HITS: hits[1]}
    found |= {SPO: cases.reshape(len(LEAST), len(SPO_CASES)), FOUND: run.arrays["found"][-1]}
    return {name: np.asarray(value) for name, value in found.items()}


def nearest_facts(embeddings: Float[Array, "s 3 d"], facts: Facts) -> Int[Array, "s k"]:
    """Return the nearest facts of all tasks, nearest first."""
    return jax.lax.top_k(-distances_to_facts(embeddings, facts).T, TOP)[1]


def baselines_of(
    divided: DividedFacts,
    shown: Int[np.ndarray, "s"],
    benchmarks: Benchmarks,
    draws: Sequence[Draw],
) -> Baselines:
    """Return the metrics of baselines that learn all facts at once.

    One knows only the boxes, where there are some; the other has no input.

    Args:
      divided: facts and examples.
      shown: test samples whose nearest facts are kept.
      benchmarks: by split.
      draws: seeds.
    """
    facts = Facts(jnp.asarray(divided.pieces), jnp.asarray(divided.words.vectors))
    pieces, vectors = divided.pieces[divided.train.fact], divided.words.vectors
    found: dict[str, dict[str, Mapping[str, np.ndarray]]] = {split: {} for split in benchmarks}
    for name, features in _features(divided).items():
        embedded = [
            jnp.asarray(layout_embeddings(features, pieces, vectors, draw.order)) for draw in draws
        ]
        for split, benchmark in benchmarks.items():
            runs = []
            for draw, each in zip(draws, embedded, strict=True):
                sequence = benchmark.sequence(METHODS["joint"], draw)
                ranks = _ranked(each, jnp.asarray(divided.test.fact), facts, sequence.class_task)
                arrays = {name: np.asarray(rank)[None] for name, rank in ranks._asdict().items()}
                arrays["found"] = np.asarray(nearest_facts(each[shown], facts))[None]
                arrays |= {"steps": np.zeros(1, int), DIVERGED_AT: np.array(NOWHERE)}
                tasks = sequence.tasks.id.shape[0]
                runs.append(Trained(arrays, sequence, draw, METHODS["joint"], tasks))
            found[split][name] = measured(benchmark.metrics, runs)
    return found


def _features(divided: DividedFacts) -> dict[str, Features]:
    """Return the features of each baseline; boxes are used where they are known."""
    parts = divided.train, divided.test
    nothing = tuple(np.zeros((len(part.fact), 0), np.float32) for part in parts)
    if any(part.samples is None for part in parts):
        return {NO_INPUT: nothing}
    return {LAYOUT: tuple(box_features(part.samples) for part in parts), NO_INPUT: nothing}


_ranked = jax.jit(rank_facts)


def layout_embeddings(
    features: tuple[Float[np.ndarray, "n f"], Float[np.ndarray, "m f"]],
    pieces: Int[np.ndarray, "n 3"],
    vectors: Float[np.ndarray, "v d"],
    seed: int,
) -> Float[np.ndarray, "m 3 d"]:
    """Return embeddings of the test examples from features other than pixels.

    A dense layer of fixed random weights with ReLU, and on it a ridge regression to the vectors of
    each component, over the examples that define it. Without features every image has the same
    embedding: the mean of the training facts.

    Args:
      features: of training and of test examples, of any width, even 0.
      pieces: of the training examples' facts, -1 where undefined.
      vectors: of the words.
      seed: of the random weights.
    """
    train, test = (_units(part, features[0], seed) for part in features)
    embedded = [
        test @ _ridge(train[defined], vectors[pieces[defined, piece]])
        for piece, defined in enumerate((pieces >= 0).T)
    ]
    return np.stack(embedded, axis=1).astype(np.float32)


def _units(
    features: Float[np.ndarray, "n f"], like: Float[np.ndarray, "_ f"], seed: int
) -> Float[np.ndarray, "n u"]:
    """Return the hidden layer on features standardized as `like` is, and a constant."""
    inputs = (features - like.mean(axis=0)) / np.maximum(like.std(axis=0), 1e-6)
    draw = np.random.default_rng(seed)
    # One input is the bias.
    weights = draw.standard_normal((features.shape[1] + 1, UNITS if features.shape[1] else 0))
    constant = np.ones((len(inputs), 1))
    hidden = np.maximum(np.concatenate([inputs, constant], axis=1) @ weights, 0)
    return np.concatenate([hidden / np.sqrt(len(weights)), constant], axis=1)


def _ridge(
    units: Float[np.ndarray, "n u"], target: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "u d"]:
    """Return the weights of a ridge regression, whose constant is not shrunk."""
    shrink = RIDGE * len(units) * np.diag(np.arange(units.shape[1]) < units.shape[1] - 1)
    return np.linalg.solve(units.T @ units + shrink, units.T @ target)
