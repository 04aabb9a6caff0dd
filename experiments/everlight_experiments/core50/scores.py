"""From what a method left on all orders to what the report shows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.continual.base import TaskSequence
from everlight.metrics.open_set import partial_test_accuracy, rejection_curve, roc_area
from everlight_experiments.continual.benchmark import Arrays
from everlight_experiments.continual.runner import Outcome

ROC_POINTS = np.linspace(0, 1, 51)
"""Shares of unknown samples accepted at which the ROC curve is kept."""


class Scored(NamedTuple):
    """What this paper asks of a method in a scenario; arrays have a leading axis over orders."""

    learnt: Outcome
    frame_operations: float
    """Of a frame before the first step: the frozen trunk's; else 0."""
    partial: Float[np.ndarray, "runs t"]
    """On the classes learnt so far: option 1 of the paper, section 5.2."""
    roc: Float[np.ndarray, "runs t points"]
    """Option 3: known samples accepted, at `ROC_POINTS`; NaN where no class is unknown."""
    roc_area: Float[np.ndarray, "runs t"]
    evaluation_seconds: Float[np.ndarray, "runs"]

    @property
    def storage(self) -> int:
        """Bytes held beside the net: the strategy's memory, and the samples at their most."""
        cost, held = self.learnt.cost, int(self.learnt.stored_samples.max())
        return cost.memory_bytes + held * cost.sample_bytes

    def operations(self, frames: int) -> float:
        """Of a whole sequence's training, on so many training frames."""
        steps = float(self.learnt.steps[:, -1].mean())
        return steps * self.learnt.cost.operations + frames * self.frame_operations

    @property
    def evaluation_share(self) -> float:
        """Of the fastest sequence that was not stopped; NaN without any."""
        batches = self.partial.shape[1]
        share = self.evaluation_seconds * batches / self.learnt.seconds
        return float(np.nan if np.isnan(share).all() else np.nanmax(share))


def score_method(
    learnt: Outcome, frame_operations: float, sequences: list[TaskSequence], kept: list[Arrays]
) -> Scored:
    """Scores what a method kept of each of its sequences."""
    runs = []
    for sequence, left in zip(sequences, kept, strict=True):
        seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
        known = seen[:, sequence.test.labels[:, 0]]
        found = _open_set(
            jnp.asarray(left["confidence"]), jnp.asarray(left["correct"]), known, sequence.test.mask
        )
        runs.append((*found, left["evaluation_seconds"]))
    arrays = (np.stack(leaves) for leaves in zip(*runs, strict=True))
    return Scored(learnt, frame_operations, *arrays)


@jax.jit
def _open_set(
    confidence: Float[Array, "t m"],
    correct: Bool[Array, "t m"],
    known: Bool[Array, "t m"],
    mask: Bool[Array, "m"],
) -> tuple[Float[Array, "t"], Float[Array, "t points"], Float[Array, "t"]]:
    def after_batch(
        confidence: Float[Array, "m"], correct: Bool[Array, "m"], known: Bool[Array, "m"]
    ) -> tuple[Float[Array, ""], Float[Array, "points"], Float[Array, ""]]:
        curve = rejection_curve(confidence, correct, known, mask)
        points = jnp.asarray(ROC_POINTS, jnp.float32)
        roc = jnp.interp(points, curve.unknown_accepted, curve.known_accepted)
        return partial_test_accuracy(correct, known, mask), roc, roc_area(curve)

    return jax.lax.map(lambda row: after_batch(*row), (confidence, correct, known))
