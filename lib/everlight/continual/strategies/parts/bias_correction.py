"""Scales and shifts of classes' logits, and their fit for the new classes (stage 2 of BiC)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.base import Samples
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.parts.passes import weighted_mean


class Correction(NamedTuple):
    """Correction scale · z + shift of each class's logit z."""

    scale: Float[Array, "c"]
    shift: Float[Array, "c"]

    def __call__(self, logits: Float[Array, "*b c"]) -> Float[Array, "*b c"]:
        """Return the corrected logits."""
        return self.scale * logits + self.shift


def no_correction(classes: int) -> Correction:
    """Return the identity correction."""
    return Correction(jnp.ones(classes), jnp.zeros(classes))


def correct_classes(
    correction: Correction, pair: Float[Array, "2"], classes: Bool[Array, "c"]
) -> Correction:
    """Return the correction with a common scale and shift for the given classes."""
    return Correction(
        *(jnp.where(classes, one, current) for one, current in zip(pair, correction, strict=True))
    )


def fit_pair(
    loss: Callable[[Float[Array, "2"]], Float[Array, ""]],
    ridge: float | Float[Array, "2"],
    steps: int = 30,
) -> Float[Array, "2"]:
    """Return the scale and shift that minimize a convex loss, by damped Newton steps.

    Args:
      loss: function of `[scale, shift]`.
      ridge: weight of the penalty (α − 1)² + β², or one weight for each term.
      steps: number of Newton steps. Without a penalty and with separable samples, the scale has no
        minimum and depends on this number.
    """
    start = jnp.array([1.0, 0.0])
    # Without samples the curvature is that of the penalty, which may be 0.
    damping = jnp.where(jnp.broadcast_to(ridge, 2) > 0, 0.0, 1e-8)

    def objective(pair: Float[Array, "2"]) -> Float[Array, ""]:
        return loss(pair) + jnp.sum(ridge * (pair - start) ** 2)

    def newton(pair: Float[Array, "2"], _: None) -> tuple[Float[Array, "2"], None]:
        curvature = jax.hessian(objective)(pair) + jnp.diag(damping)
        direction = jnp.linalg.solve(curvature, jax.grad(objective)(pair))
        tried = pair - direction * 0.5 ** jnp.arange(12)[:, None]
        values = jax.vmap(objective)(tried)
        best = jnp.argmin(values)
        return jnp.where(values[best] < objective(pair), tried[best], pair), None

    return jax.lax.scan(newton, start, None, length=steps)[0]


def best_threshold(
    logits: Float[Array, "n c"],
    samples: Samples,
    correction: Correction,
    new: Bool[Array, "c"],
    seen: Bool[Array, "c"],
    metric: Callable[[Float[Array, "n c"], Int[Array, "n k"], Bool[Array, "c"]], Float[Array, "n"]],
) -> Float[Array, "2"]:
    """Return scale 1 and the shift of the new classes that maximizes the samples' mean metric.

    Labels are predicted above 0 and a false prediction never helps. The best threshold then lies
    just below the logit of a true label, so all of these are tried, halfway to the next logit
    below. Ties go to the smallest shift. The result is [1, 0] if no new label is true.

    Args:
      logits: uncorrected logits of the samples, `[n, c]`.
      samples: held-out samples.
      correction: correction of the other classes.
      new: the classes that share the shift.
      seen: the classes over which the metric runs.
      metric: the objective's metric.
    """
    counted = samples.mask[:, None] & new
    holds = (multi_hot(samples.labels, new.shape[0]) & counted).ravel()
    values, others = logits.ravel(), jnp.where(counted, logits, -jnp.inf).ravel()
    # There is one slot of the flat logits per label.
    tried = jnp.argsort(~holds, stable=True)[: samples.labels.size]

    def mean_metric(index: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        below = jnp.max(jnp.where(others < values[index], others, -jnp.inf))
        threshold = jnp.where(below > -jnp.inf, (values[index] + below) / 2, values[index] - 1)
        pair = jnp.stack([jnp.ones(()), -threshold])
        metrics = metric(correct_classes(correction, pair, new)(logits), samples.labels, seen)
        return weighted_mean(metrics, samples.mask.astype(logits.dtype)), threshold

    means, thresholds = jax.lax.map(mean_metric, tried)
    means = jnp.where(holds[tried], means, -jnp.inf)
    equal = means >= jnp.max(means) - 1e-6
    least = jnp.min(jnp.where(equal, jnp.abs(thresholds), jnp.inf))
    chosen = jnp.argmax(equal & (jnp.abs(thresholds) == least))
    return jnp.array([1.0, 0.0]).at[1].set(jnp.where(jnp.any(holds), -thresholds[chosen], 0.0))
