"""From ranks after every task to all that the report shows."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from everlight.continual.base import TaskSequence
from everlight.metrics.accuracy_matrix import gem_backward_transfer, gem_forward_transfer
from everlight.metrics.ranking import Means, Ranks, mean_hits, top_k
from everlight.metrics.ranking_groups import (
    SPO_CASES,
    accuracy_by_count,
    few_shot,
    spo_generalisation,
)
from everlight_experiments.continual.runner import Outcome as Learning
from everlight_experiments.facts.benchmarks import TOP, FactSet, Split

EDGES = (0, 1, 2, 6, 11, 21, 51, 101, 100_000)
"""Bins of training examples, from tail to head."""
LEAST = (15, 50)
"""Training examples that a part must have in the cases of SPO generalisation."""


class Outcome(NamedTuple):
    """One run of a method on a split; after stacking, all of them, with a leading axis."""

    standard: Means
    """Top-5 by task after every task, `[*runs t t]`, and both means of it."""
    generalised: Means
    drop: Means
    backward: Float[np.ndarray, "*runs"]
    """GEM's, on the generalised accuracy; NaN for what does not learn task after task."""
    forward: Float[np.ndarray, "*runs"]
    hits: Bool[np.ndarray, "*runs m"]
    """Generalised, after the last task, of every test example."""
    few: Means
    """Generalised Top-5 of few-shot facts after the last task, `[*runs t]` by task."""
    by_count: Float[np.ndarray, "*runs 2 bins"]
    """Top-5 by number of training examples, standard and generalised."""
    spo: Float[np.ndarray, "*runs thresholds 7"]
    """Generalised Top-5 in the cases of SPO generalisation."""
    found: Int[np.ndarray, "*runs s k"]
    """Nearest facts of the shown samples at the end."""


Outcomes = Mapping[Split, Mapping[str, Outcome]]
"""Of a benchmark."""
Learnt = Mapping[Split, Mapping[str, Learning]]
"""The same as the runner leaves it, which the common report is made of."""


class Groups(NamedTuple):
    """Which test examples are in which group, by what was trained on; the same for all methods."""

    counts: Int[np.ndarray, "m"]
    """Training examples of each test example's fact."""
    few: Bool[np.ndarray, "m"]
    spo: Bool[np.ndarray, "thresholds 7 m"]


class Results(NamedTuple):
    """All of a benchmark."""

    benchmark: FactSet
    seeds: int
    learnt: Learnt
    outcomes: Outcomes
    groups: Groups
    shown: Int[np.ndarray, "s"]
    """Test samples of which the nearest facts are kept."""
    pictures: UInt8[np.ndarray, "s h w 3"]
    """What they show."""


def group_tests(benchmark: FactSet) -> Groups:
    """The groups of a benchmark's test examples."""
    counts, label = benchmark.train_counts, benchmark.test.fact
    cases = [spo_generalisation(benchmark.pieces, counts, least)[:, label] for least in LEAST]
    few = np.asarray(few_shot(jnp.asarray(counts[label])))
    return Groups(counts[label], few, np.stack(cases))


def score_ranks(
    ranks: Ranks,
    found: Int[np.ndarray, "s k"],
    initial: Ranks | None,
    sequence: TaskSequence,
    groups: Groups,
) -> Outcome:
    """Scores one run.

    Args:
      ranks: of the test union, `[t, m]`, or `[1, m]` of what learnt everything at once.
      found: nearest facts of the shown samples at the end.
      initial: ranks before the first task; None for what does not learn task after task.
      sequence: that was learnt.
      groups: of the benchmark.
    """
    # The union may be padded to the length of the one that hyperparameters are chosen on.
    size = len(groups.counts)
    member = jnp.asarray(sequence.test_member)[:, :size]
    ranks = Ranks(*(jnp.asarray(rank)[:, :size] for rank in ranks))
    scores = top_k(ranks, member, TOP)
    hits = [rank[-1] <= TOP for rank in ranks]
    backward = forward = np.float32(np.nan)
    if initial is not None:
        start = Ranks(*(rank[None, :size] for rank in initial))
        matrix = scores.generalised.by_task
        backward = gem_backward_transfer(matrix)
        forward = gem_forward_transfer(matrix, top_k(start, member, TOP).generalised.by_task[0])
    counts, edges = jnp.asarray(groups.counts), jnp.asarray(EDGES)
    cases = jnp.asarray(groups.spo).reshape(-1, size)
    outcome = Outcome(
        *scores,
        backward,
        forward,
        hits[1],
        mean_hits(hits[1], member & groups.few),
        jnp.stack([accuracy_by_count(hit, counts, edges).accuracy for hit in hits]),
        mean_hits(hits[1], cases).by_task.reshape(len(LEAST), len(SPO_CASES)),
        found,
    )
    return jax.tree.map(np.asarray, outcome)


def last(values: Float[np.ndarray, "runs t *rest"]) -> Float[np.ndarray, "runs *rest"]:
    """After the last task."""
    return values[:, -1]


def final(outcome: Outcome, metric: str = "generalised") -> Float[np.ndarray, "runs"]:
    """Top-5 over examples after the last task."""
    return last(getattr(outcome, metric).over_examples)


def sequential(methods: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Those that learn task after task."""
    return {name: each for name, each in methods.items() if np.isfinite(each.backward).all()}
