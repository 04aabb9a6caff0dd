"""The objective of lifelong fact learning: near the fact's word vectors, piece by piece.

    ℓ(x, f) = Σ_c w_c ‖x_c − φ_c(f)‖²,   w_c = 1 where fact f defines piece c

x are the network's outputs, [S, P, O] one after another (Elhoseiny et al. 2017 and 2018). There is
one output space for all tasks, so that nothing depends on which facts have been seen.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.base import Objective, Outputs, TaskSequence
from everlight.metrics.ranking import Facts, Ranks, embed_facts, rank_facts


def embedding_objective(facts: Facts) -> Objective:
    """Squared distance of outputs, `[b, 3 d]`, to the vectors of each sample's one fact.

    Scores are the outputs: similarities to all facts would take 6.6 GB for 10,000 images and
    165,150 facts. Goodness is less the loss. An evaluation keeps the `Ranks` of the test union's
    facts after a task, 8 bytes a sample, from which `metrics.ranking` reads every accuracy.
    """

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return squared_distance(outputs.logits, labels[:, 0], facts)

    def goodness(
        scores: Float[Array, "b w"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return -squared_distance(scores, labels[:, 0], facts)

    def evaluate(
        sequence: TaskSequence, scores: Float[Array, "m w"], seen: Bool[Array, "c"]
    ) -> Ranks:
        embeddings = scores.reshape(scores.shape[0], 3, -1)
        return rank_facts(embeddings, sequence.test.labels[:, 0], facts, sequence.class_task)

    return Objective(
        loss,
        lambda outputs: outputs.logits,
        goodness,
        evaluate,
        lambda outputs, seen: outputs.logits,
    )


def squared_distance(
    embeddings: Float[Array, "b w"], fact: Int[Array, "b"], facts: Facts
) -> Float[Array, "b"]:
    """ℓ above of each sample, from its outputs and its fact's number."""
    pieces = facts.pieces[fact]
    own = embed_facts(Facts(pieces, facts.vectors))
    squares = jnp.sum((embeddings.reshape(own.shape) - own) ** 2, axis=-1)
    return jnp.sum(squares, axis=-1, where=pieces >= 0)
