"""The objective of lifelong fact learning: near the fact's word vectors, piece by piece.

    ℓ(x, f) = Σ_c w_c ‖x_c − φ_c(f)‖²,   w_c = 1 where fact f defines piece c

x are the network's outputs, [S, P, O] one after another (Elhoseiny et al. 2017 and 2018). There is
one output space for all tasks, so that nothing depends on which facts have been seen.

As a negative log-likelihood ℓ is that of a Gaussian of variance ½ about x. Its Fisher information
is 2 JᵀJ, J the Jacobian of the defined pieces of x: the Gauss-Newton matrix, in which the residual
x − φ plays no part (Martens 2020, JMLR). The squared gradient of ℓ itself, 4 (Jᵀ(x − φ))², would
call important whatever a badly fitted sample touches (Kunstner et al. 2019, NeurIPS).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.checks import checked
from everlight.continual.base import Objective, Outputs, Predictions, TaskSequence
from everlight.metrics.ranking import Facts, Ranks, check_pieces, embed_facts, rank_facts


@checked
def embedding_objective(facts: Facts) -> Objective:
    """Squared distance of outputs, `[b, 3 d]`, to the vectors of each sample's one fact.

    Scores are the outputs: similarities to all facts would take 6.6 GB for 10,000 images and
    165,150 facts. Goodness is less the loss. An evaluation keeps the `Ranks` of the test union's
    facts after a task, 8 bytes a sample, from which `metrics.ranking` reads every accuracy.

    Raises:
      ValueError: a piece that is no word, a word that is not finite.
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

    def evaluate(sequence: TaskSequence, judged: Ranks, seen: Bool[Array, "c"]) -> Ranks:
        return judged

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


def projection(
    embeddings: Float[Array, "b w"], fact: Int[Array, "b"], facts: Facts, key: PRNGKeyArray
) -> Float[Array, "b"]:
    """√2 Σ v·x over the pieces that each sample's fact defines, v of random signs.

    Its squared gradient, (√2 Jᵀv)², is the diagonal of 2 JᵀJ in the mean over v.
    """
    signs = jax.random.rademacher(key, embeddings.shape, embeddings.dtype)
    pieces = facts.pieces[fact]
    signed = (signs * embeddings).reshape(*pieces.shape, -1)
    return jnp.sqrt(2.0) * jnp.sum(signed, axis=(1, 2), where=pieces[:, :, None] >= 0)


def squared_distance(
    embeddings: Float[Array, "b w"], fact: Int[Array, "b"], facts: Facts
) -> Float[Array, "b"]:
    """ℓ above of each sample, from its outputs and its fact's number."""
    pieces = facts.pieces[fact]
    own = embed_facts(Facts(pieces, facts.vectors))
    squares = jnp.sum((embeddings.reshape(own.shape) - own) ** 2, axis=-1)
    return jnp.sum(squares, axis=-1, where=pieces >= 0)
