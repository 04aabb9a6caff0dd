"""Margins between the outputs of past, present and future classes (X-DER)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.strategies.parts.passes import weighted_mean


def past_excess(
    logits: Float[Array, "b c"],
    seen: Bool[Array, "c"],
    past: Bool[Array, "c"],
    present: Bool[Array, "c"],
    margin: float,
) -> Float[Array, "b"]:
    """Return how far the largest past probability plus the margin exceeds the largest present one.

    Args:
      logits: logits of the task's samples.
      seen: classes of the softmax.
      past: classes of earlier tasks; their probability has no gradient.
      present: classes of the task.
      margin: margin m.
    """
    probability = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf))
    above, below = (
        jnp.max(jnp.where(part, probability, -jnp.inf), axis=1) for part in (past, present)
    )
    return jax.lax.stop_gradient(above) + margin - below


def mean_positive(values: Float[Array, "n"], weight: Float[Array, "n"]) -> Float[Array, ""]:
    """Return the mean over the positive values of weight 1; 0 without any."""
    return weighted_mean(values, weight * (values > 0))


def future_excess(
    logits: Float[Array, "b c"],
    label: Int[Array, "b"],
    class_task: Int[Array, "c"],
    future: Bool[Array, "c"],
    margin: float | Float[Array, ""],
) -> Float[Array, "b"]:
    """Return how far each sample's largest future logit plus the margin exceeds its own task's.

    It is −∞ without future classes.

    Args:
      logits: logits of the samples.
      label: class of each sample.
      class_task: task of each class.
      future: True for the classes of later tasks.
      margin: distance by which the logits of future classes stay below.
    """
    same_task = class_task == class_task[label][:, None]
    above = jnp.max(jnp.where(future, logits, -jnp.inf), axis=1)
    return above + margin - jnp.max(jnp.where(same_task, logits, -jnp.inf), axis=1)
