"""All scores of a sequence of fact-learning tasks, from the ranks of the test samples' facts.

Elhoseiny et al. 2018, "Exploring the challenges towards lifelong fact learning", section 5.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import Between, PositiveInt, check_range, checked
from everlight.metrics.accuracy_matrix import gem_backward_transfer, gem_forward_transfer
from everlight.metrics.ranking import Means, Ranks, TopK, mean_hits, top_k
from everlight.metrics.ranking_groups import accuracy_by_count, few_shot, spo_generalization

STANDARD, GENERALISED, DROP = "standard Top-5", "generalised Top-5", "drop"
FEW_SHOT, BACKWARD, FORWARD = "few-shot Top-5", "backward transfer (GEM)", "forward transfer (GEM)"
OVER_TASKS = "{} over tasks"
"""Names of scores in results and reports; a mean over tasks has that of its score in it."""


class FactGroups(NamedTuple):
    """Groups of test samples by what was trained on; the same for all strategies."""

    counts: Int[np.ndarray, "m"]
    """Training examples of each sample's fact."""
    few: Bool[np.ndarray, "m"]
    """True for samples of few-shot facts (tables 11 and 12)."""
    spo: Bool[np.ndarray, "thresholds 7 m"]
    """Masks of the cases of SPO generalization (tables 14 to 17)."""


@checked
def group_facts(
    pieces: Annotated[Int[np.ndarray, "f 3"], Between(-1)],
    counts: Annotated[Int[np.ndarray, "f"], Between(0)],
    labels: Int[np.ndarray, "m"],
    min_counts: Sequence[int] = (15, 50),
) -> FactGroups:
    """Return the groups of the test samples.

    Args:
      pieces: pieces of all facts, `[f, 3]`, -1 where undefined.
      counts: training examples of each fact, `[f]`.
      labels: fact of each test sample, `[m]`.
      min_counts: thresholds of `spo_generalization`; 15 and 50 in the paper.
    """
    check_range("labels", labels, 0, len(counts) - 1)
    examples = counts[labels]
    cases = [spo_generalization(pieces, counts, least)[:, labels] for least in min_counts]
    return FactGroups(examples, np.asarray(few_shot(jnp.asarray(examples))), np.stack(cases))


class FactScores(NamedTuple):
    """Top-K accuracies over time, and those of groups after the last task, which are generalised.

    NaN stands for a mean over no sample.
    """

    top_k: TopK
    """Accuracies after every task; every field has a leading axis over time."""
    backward: Float[Array, ""]
    """GEM's backward transfer of the generalised accuracy; NaN without `start`."""
    forward: Float[Array, ""]
    """GEM's forward transfer of the generalised accuracy; NaN without `start`."""
    hits: Bool[Array, "m"]
    """True where a sample's fact is found after the last task."""
    few_shot: Means
    """Accuracy on few-shot facts."""
    standard_by_count: Float[Array, "b"]
    """Standard accuracy by training examples of the fact, from tail to head (figure 4)."""
    generalised_by_count: Float[Array, "b"]
    """Generalised accuracy by training examples of the fact, from tail to head."""
    spo: Float[Array, "thresholds 7"]
    """Accuracy on each case of SPO generalization."""


@checked
def fact_scores(
    ranks: Ranks,
    member: Bool[Array, "t m"],
    groups: FactGroups,
    edges: Int[Array, "e"],
    k: PositiveInt = 5,
    start: Ranks | None = None,
) -> FactScores:
    """Return all scores of a sequence.

    Args:
      ranks: ranks after every task, `[t, m]` each.
      member: mask of each task's test samples, `[t, m]`.
      groups: groups of the test samples.
      edges: edges of the bins of training examples, `[e]`.
      k: largest rank that counts as found; 5 in the paper.
      start: ranks before the first task, `[m]` each; without them there is no transfer.
    """
    scores = top_k(ranks, member, k)
    standard, hits = (rank[-1] <= k for rank in ranks)
    backward = forward = jnp.float32(jnp.nan)
    if start is not None:
        matrix = scores.generalised.by_task
        before = top_k(Ranks(*(rank[None] for rank in start)), member, k).generalised.by_task[0]
        backward, forward = gem_backward_transfer(matrix), gem_forward_transfer(matrix, before)
    counts, spo = jnp.asarray(groups.counts), jnp.asarray(groups.spo)
    return FactScores(
        scores,
        backward,
        forward,
        hits,
        mean_hits(hits, member & groups.few),
        *(accuracy_by_count(hit, counts, edges).accuracy for hit in (standard, hits)),
        mean_hits(hits, spo.reshape(-1, hits.shape[0])).by_task.reshape(spo.shape[:2]),
    )
