"""Test sets with classes not learnt yet: leave them out, or let the classifier reject samples.

Options 1 and 3 of the CORe50 paper (Lomonaco and Maltoni 2017, section 5.2). A test sample is known
where its class has been learnt: `seen[labels]`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import checked


class RejectionCurve(NamedTuple):
    """A point for every threshold; the first, infinity, accepts nothing, the last everything.

    The ROC curve is `known_accepted` over `unknown_accepted`. Equal confidences share a point.
    """

    threshold: Float[Array, "points"]
    """Samples of at least this confidence are accepted."""
    known_accepted: Float[Array, "points"]
    """Part of the known samples, the true positives; NaN without any."""
    unknown_accepted: Float[Array, "points"]
    """Part of the unknown samples, the false positives; NaN without any."""
    accuracy: Float[Array, "points"]
    """Part of all samples that are known and classified rightly, or unknown and rejected."""


@checked
def maximal_softmax(scores: Float[Array, "*b c"]) -> Float[Array, "*b"]:
    """The greatest class probability of logits: the confidence of option 3, in (0, 1]."""
    return jnp.max(jax.nn.softmax(scores, axis=-1), axis=-1)


@checked
def partial_test_accuracy(
    correct: Bool[Array, "m"], known: Bool[Array, "m"], mask: Bool[Array, "m"]
) -> Float[Array, ""]:
    """Option 1: accuracy on the known test samples, `[]`; NaN without any.

    Args:
      correct: whether each sample is classified rightly, among all outputs, `[m]`.
      known: whether its class has been learnt, `[m]`.
      mask: false for padding, `[m]`.
    """
    return jnp.mean(correct, where=known & mask)


@checked
def rejection_curve(
    confidence: Float[Array, "m"],
    correct: Bool[Array, "m"],
    known: Bool[Array, "m"],
    mask: Bool[Array, "m"],
) -> RejectionCurve:
    """Option 3: what every threshold on the confidence accepts; `m + 1` points.

    Args:
      confidence: of each sample, `[m]`.
      correct: whether it is classified rightly, if accepted, `[m]`.
      known: whether its class has been learnt, `[m]`.
      mask: false for padding, `[m]`.
    """
    falling, order = jax.lax.sort_key_val(
        jnp.where(mask, -confidence, jnp.inf), jnp.arange(mask.shape[0])
    )
    last_equal = jnp.searchsorted(falling, falling, side="right")
    known, unknown = known & mask, ~known & mask

    def accepted(kind: Bool[Array, "m"]) -> Int[Array, "points"]:
        counts = jnp.cumsum(kind[order], dtype=jnp.int32)
        return jnp.concatenate([jnp.zeros(1, jnp.int32), counts[last_equal - 1]])

    taken = accepted(unknown)
    right = accepted(known & correct) + jnp.sum(unknown) - taken
    return RejectionCurve(
        jnp.concatenate([jnp.array([jnp.inf]), -falling]),
        accepted(known) / jnp.sum(known),
        taken / jnp.sum(unknown),
        right / jnp.sum(mask),
    )


@checked
def roc_area(curve: RejectionCurve) -> Float[Array, ""]:
    """Area under the ROC curve, `[]`: how often a known sample is the more confident one."""
    return jnp.trapezoid(curve.known_accepted, curve.unknown_accepted)
