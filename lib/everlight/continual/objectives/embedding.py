"""Objective of lifelong fact learning: squared distance to the fact's word vectors.

    ℓ(x, f) = Σ_c w_c ‖x_c − φ_c(f)‖²,   w_c = 1 where fact f defines piece c

x are the network's outputs, the pieces [S, P, O] concatenated (Elhoseiny et al. 2017 and 2018). All
tasks share one output space, so nothing depends on the facts seen so far.

ℓ is the negative log-likelihood of a Gaussian of variance ½ about x. Its Fisher information is
2 JᵀJ, J being the Jacobian of the defined pieces of x. This is the Gauss-Newton matrix, which does
not depend on the residual x − φ (Martens 2020, JMLR). The squared gradient of ℓ, 4 (Jᵀ(x − φ))²,
would assign importance to all parameters that badly fitted samples use (Kunstner et al. 2019,
NeurIPS).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Objective, Outputs, Predictions, TaskSequence
from everlight.checks import PositiveInt, checked
from everlight.metrics.ranking import (
    Facts,
    Ranks,
    check_pieces,
    embed_facts,
    nearest_facts,
    rank_facts,
)


@checked
def embedding_objective(facts: Facts) -> Objective:
    """Return the objective of fact learning: squared distance to the vectors of a sample's fact.

    Scores are the outputs, `[b, 3 d]`: similarities to all facts would take 6.6 GB for 10,000
    images and 165,150 facts. The metric is minus the loss. An evaluation keeps the `Ranks` of the
    test samples' facts, 8 bytes per sample, from which `metrics.ranking` computes every accuracy.

    Args:
      facts: pieces of every fact and word vectors.

    Raises:
      ValueError: a piece is not a word, a word vector is not finite, or a fact has no piece.
    """
    check_pieces(facts)

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return squared_distance(outputs.logits, labels[:, 0], facts)

    def metric(
        scores: Float[Array, "b w"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return -squared_distance(scores, labels[:, 0], facts)

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> Ranks:
        embeddings = predictions.scores.reshape(predictions.scores.shape[0], 3, -1)
        return rank_facts(embeddings, predictions.labels[:, 0], facts, predictions.class_task)

    def evaluate(sequence: TaskSequence, ranks: Ranks, seen: Bool[Array, "c"]) -> Ranks:
        return ranks

    def fisher_loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"], key: PRNGKeyArray
    ) -> Float[Array, "b"]:
        return projection(outputs.logits, labels[:, 0], facts, key)

    return Objective(
        loss,
        lambda outputs: outputs.logits,
        metric,
        per_sample_metrics,
        evaluate,
        lambda outputs, seen: outputs.logits,
        fisher_loss=fisher_loss,
        fisher="true",
    )


class RanksAndNearest(NamedTuple):
    """Evaluation of all test samples after a task."""

    ranks: Ranks
    nearest: Int[Array, "s k"]
    """Nearest facts of all tasks to the shown samples, nearest first."""


@checked
def with_nearest_facts(
    objective: Objective, facts: Facts, shown: Int[Array, "s"], count: PositiveInt
) -> Objective:
    """Return the objective of fact learning whose evaluation keeps `RanksAndNearest`.

    Args:
      objective: `embedding_objective` of the facts.
      facts: pieces of every fact and word vectors.
      shown: test samples whose nearest facts are kept, `[s]`.
      count: number of facts per sample.
    """

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        return objective.per_sample_metrics(predictions, seen), predictions.scores

    def evaluate(
        sequence: TaskSequence, per_sample: tuple, seen: Bool[Array, "c"]
    ) -> RanksAndNearest:
        ranks, scores = per_sample
        embeddings = scores[shown].reshape(shown.shape[0], 3, -1)
        nearest = nearest_facts(embeddings, facts, count)
        return RanksAndNearest(objective.evaluate(sequence, ranks, seen), nearest)

    return objective._replace(per_sample_metrics=per_sample_metrics, evaluate=evaluate)


def projection(
    embeddings: Float[Array, "b w"], fact: Int[Array, "b"], facts: Facts, key: PRNGKeyArray
) -> Float[Array, "b"]:
    """Return √2 Σ v·x over the pieces that each sample's fact defines, with random signs v.

    The mean over v of its squared gradient, (√2 Jᵀv)², is the diagonal of 2 JᵀJ.
    """
    signs = jax.random.rademacher(key, embeddings.shape, embeddings.dtype)
    pieces = facts.pieces[fact]
    signed = (signs * embeddings).reshape(*pieces.shape, -1)
    return jnp.sqrt(2.0) * jnp.sum(signed, axis=(1, 2), where=pieces[:, :, None] >= 0)


def squared_distance(
    embeddings: Float[Array, "b w"], fact: Int[Array, "b"], facts: Facts
) -> Float[Array, "b"]:
    """Return the loss ℓ of each sample, given its outputs and its fact's number."""
    pieces = facts.pieces[fact]
    target = embed_facts(Facts(pieces, facts.vectors))
    squares = jnp.sum((embeddings.reshape(target.shape) - target) ** 2, axis=-1)
    return jnp.sum(squares, axis=-1, where=pieces >= 0)
