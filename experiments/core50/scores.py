"""From what a method left on all orders to what the report shows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.base import TaskSequence
from everlight.metrics.open_set import partial_test_accuracy, rejection_curve, roc_area
from experiments.continual.benchmark import Arrays

ROC_POINTS = np.linspace(0, 1, 51)
"""Shares of unknown samples accepted at which the ROC curve is kept."""


class Cost(NamedTuple):
    """What does not depend on the order."""

    parameters: int
    """That learn."""
    memory_bytes: int
    """Of the strategy's own memory."""
    sample_bytes: int
    """Of a sample, where samples are held."""
    step_operations: float
    frame_operations: float
    """Of a frame before the first step: the frozen trunk's; else 0."""


class Outcome(NamedTuple):
    """One method in one scenario; all arrays but the cost have a leading axis over orders."""

    cost: Cost
    accuracy: Float[np.ndarray, "runs t"]
    """On the full test set: option 2 of the paper, section 5.2."""
    partial: Float[np.ndarray, "runs t"]
    """On the classes learnt so far: option 1."""
    roc: Float[np.ndarray, "runs t points"]
    """Option 3: known samples accepted, at `ROC_POINTS`; NaN where no class is unknown."""
    roc_area: Float[np.ndarray, "runs t"]
    steps: Int[np.ndarray, "runs t"]
    stored_samples: Int[np.ndarray, "runs t"]
    seconds: Float[np.ndarray, "runs"]
    evaluation_seconds: Float[np.ndarray, "runs"]

    @property
    def storage(self) -> int:
        """Bytes held beside the net: the strategy's memory, and the samples at their most."""
        held = int(self.stored_samples.max()) * self.cost.sample_bytes
        return self.cost.memory_bytes + held

    def operations(self, frames: int) -> float:
        """Of a whole sequence's training, on so many training frames."""
        steps = float(self.steps.sum(axis=1).mean())
        return steps * self.cost.step_operations + frames * self.cost.frame_operations

    @property
    def evaluation_share(self) -> float:
        """Of the fastest sequence that was not stopped; NaN without any."""
        share = self.evaluation_seconds * self.accuracy.shape[1] / self.seconds
        return float(np.nan if np.isnan(share).all() else np.nanmax(share))


def score_method(cost: Cost, sequences: list[TaskSequence], learnt: list[Arrays]) -> Outcome:
    """Scores what a method left on each of its sequences."""
    runs = []
    for sequence, left in zip(sequences, learnt, strict=True):
        seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
        known = seen[:, sequence.test.labels[:, 0]]
        partial, roc, area = _open_set(
            jnp.asarray(left["confidence"]), jnp.asarray(left["correct"]), known, sequence.test.mask
        )
        steps = np.diff(left["steps"], prepend=0)
        told = (left[name] for name in ("stored_samples", "seconds", "evaluation_seconds"))
        runs.append((left["accuracy"], partial, roc, area, steps, *told))
    return Outcome(cost, *(np.stack(leaves) for leaves in zip(*runs, strict=True)))


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
