"""Test sets with unseen classes: exclude their samples, or let the classifier reject them.

Options 1 and 3 of the CORe50 paper (Lomonaco and Maltoni 2017, section 5.2). A test sample is known
if its class has been learned: `seen[labels]`.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.checks import Between, checked
from everlight.extrema import largest_value


class RejectionCurve(NamedTuple):
    """One point per threshold, from infinity, which accepts nothing, to the one accepting all.

    `known_accepted` against `unknown_accepted` is the ROC curve. Equal confidences share a point.
    """

    threshold: Float[Array, "points"]
    """Samples of at least this confidence are accepted."""
    known_accepted: Float[Array, "points"]
    """True positive rate: accepted fraction of known samples; NaN without any."""
    unknown_accepted: Float[Array, "points"]
    """False positive rate: accepted fraction of unknown samples; NaN without any."""
    accuracy: Float[Array, "points"]
    """Fraction of samples that are known and classified correctly, or unknown and rejected."""


@checked
def maximum_softmax_probability(scores: Float[Array, "*b c"]) -> Float[Array, "*b"]:
    """Return the largest class probability of logits: the confidence of option 3, in (0, 1].

    Args:
      scores: logits, `[..., c]`.
    """
    return largest_value(jax.nn.softmax(scores, axis=-1), axis=-1)


@checked
def partial_test_accuracy(
    correct: Bool[Array, "m"], known: Bool[Array, "m"], mask: Bool[Array, "m"]
) -> Float[Array, ""]:
    """Return the accuracy on the known test samples, `[]` (option 1); NaN without any.

    Args:
      correct: true where a sample is classified correctly among all outputs, `[m]`.
      known: true where a sample's class has been learned, `[m]`.
      mask: false for padding, `[m]`.
    """
    return jnp.mean(correct, where=known & mask)


@checked
def rejection_curve(
    confidence: Annotated[Float[Array, "m"], Between()],
    correct: Bool[Array, "m"],
    known: Bool[Array, "m"],
    mask: Bool[Array, "m"],
) -> RejectionCurve:
    """Return rates of acceptance at each threshold on the confidence, `m + 1` points (option 3).

    Args:
      confidence: confidence of each sample, `[m]`; it may be infinite.
      correct: true where a sample is classified correctly if accepted, `[m]`.
      known: true where a sample's class has been learned, `[m]`.
      mask: false for padding, `[m]`.
    """
    correct, known = jnp.asarray(correct), jnp.asarray(known)
    falling, order = jax.lax.sort_key_val(
        jnp.where(mask, -confidence, jnp.inf), jnp.arange(mask.shape[0])
    )
    last_equal = jnp.searchsorted(falling, falling, side="right")
    known, unknown = known & mask, ~known & mask

    def count_accepted(kind: Bool[Array, "m"]) -> Int[Array, "points"]:
        counts = jnp.cumsum(kind[order], dtype=jnp.int32)
        return jnp.concatenate([jnp.zeros(1, jnp.int32), counts[last_equal - 1]])

    taken = count_accepted(unknown)
    correct_count = count_accepted(known & correct) + jnp.sum(unknown) - taken
    return RejectionCurve(
        jnp.concatenate([jnp.array([jnp.inf]), -falling]),
        count_accepted(known) / jnp.sum(known),
        taken / jnp.sum(unknown),
        correct_count / jnp.sum(mask),
    )


@checked
def roc_area(curve: RejectionCurve) -> Float[Array, ""]:
    """Return the area under the ROC curve, `[]`.

    It is the probability that a known sample has a higher confidence than an unknown one.
    """
    return jnp.trapezoid(curve.known_accepted, curve.unknown_accepted)


class OpenSet(NamedTuple):
    """Scores of a test set that has unseen classes."""

    partial: Float[Array, ""]
    """Accuracy on the known samples (option 1)."""
    roc: Float[Array, "points"]
    """Accepted fraction of known samples at given fractions of accepted unknown ones (option 3).

    It is the largest one where the curve is vertical, and so 1 at the fraction 1.
    """
    area: Float[Array, ""]
    """Area under the ROC curve."""


@checked
def open_set_scores(
    confidence: Annotated[Float[Array, "m"], Between()],
    correct: Bool[Array, "m"],
    known: Bool[Array, "m"],
    mask: Bool[Array, "m"],
    unknown_accepted: Annotated[Float[Array, "points"], Between(0, 1)],
) -> OpenSet:
    """Return the scores of options 1 and 3; NaN where there is no known or no unknown sample.

    Args:
      confidence: confidence of each sample, `[m]`; it may be infinite.
      correct: true where a sample is classified correctly if accepted, `[m]`.
      known: true where a sample's class has been learned, `[m]`.
      mask: false for padding, `[m]`.
      unknown_accepted: fractions of accepted unknown samples at which the ROC curve is read.
    """
    curve = rejection_curve(confidence, correct, known, mask)
    roc = jnp.interp(unknown_accepted, curve.unknown_accepted, curve.known_accepted)
    # At the last x, `interp` reads the last point but one if the two have the same x.
    at_end = unknown_accepted == curve.unknown_accepted[-1]
    roc = jnp.where(at_end, curve.known_accepted[-1], roc)
    return OpenSet(partial_test_accuracy(correct, known, mask), roc, roc_area(curve))


@checked
def open_set_scores_over_time(
    confidence: Annotated[Float[Array, "t m"], Between()],
    correct: Bool[Array, "t m"],
    known: Bool[Array, "t m"],
    mask: Bool[Array, "m"],
    unknown_accepted: Annotated[Float[Array, "points"], Between(0, 1)],
) -> OpenSet:
    """Return `open_set_scores` after every task, one at a time; fields have a leading axis over t.

    Args:
      confidence: confidence of each sample, `[t, m]`.
      correct: true where a sample is classified correctly if accepted, `[t, m]`.
      known: true where a sample's class has been learned, `[t, m]`.
      mask: false for padding, `[m]`.
      unknown_accepted: fractions of accepted unknown samples at which the ROC curve is read.
    """
    rows = confidence, correct, known
    return jax.lax.map(lambda row: open_set_scores(*row, mask, unknown_accepted), rows)
