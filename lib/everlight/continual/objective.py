"""Objectives: the loss of a sample and the scores that predict."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.base import Objective, Outputs


def softmax_objective(class_group: Int[Array, "c"] | None = None) -> Objective:
    """Softmax cross-entropy over one label per sample.

    Args:
      class_group: for a head per task: the group of each class; a sample's loss then runs over the
        classes of its label's group. None: over all classes seen so far, one head.

    Scores are the logits; goodness is whether the label's score is the greatest of the same
    classes.
    """

    def active(label: Int[Array, "b"], seen: Bool[Array, "c"]) -> Bool[Array, "b c"]:
        if class_group is None:
            return jnp.broadcast_to(seen, (label.shape[0], seen.shape[0]))
        return class_group == class_group[label][:, None]

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        label = labels[:, 0]
        logits = jnp.where(active(label, seen), outputs.logits, -jnp.inf)
        chosen = jnp.take_along_axis(outputs.logits, label[:, None], axis=1)[:, 0]
        return jax.nn.logsumexp(logits, axis=1) - chosen

    def goodness(
        scores: Float[Array, "b c"], labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return correct(scores, labels[:, 0], active(labels[:, 0], seen))

    return Objective(loss, lambda outputs: outputs.logits, goodness)


def correct(
    scores: Float[Array, "b c"], label: Int[Array, "b"], among: Bool[Array, "*b c"]
) -> Float[Array, "b"]:
    """1 where the label has the greatest score among the given classes, else 0."""
    chosen = jnp.argmax(jnp.where(among, scores, -jnp.inf), axis=1)
    return (chosen == label).astype(scores.dtype)
