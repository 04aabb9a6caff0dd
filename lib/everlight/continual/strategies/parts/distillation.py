"""Losses over some of the classes, with labels or with a teacher's outputs, and their gradient."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo
from everlight.continual.objectives.multilabel import binary_cross_entropy, multi_hot
from everlight.continual.strategies.parts.passes import (
    batch_outputs,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.teacher import Teacher

Loss = Literal["binary", "softmax"]
"""Loss for many labels per sample (binary), or for one (softmax)."""


def taught_gradient(
    setup: Setup,
    teacher: Teacher,
    learner: Learner,
    batch: Batch,
    losses: Callable[[Float[Array, "b c"], Float[Array, "b c"]], Float[Array, "b"]],
    key: PRNGKeyArray,
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of losses by the logits of a network and of its teacher, and the step.

    Args:
      setup: network, objective, optimizer and data access.
      teacher: network before the task, which is in evaluation mode.
      learner: learner before the step.
      batch: samples of the step, with inputs.
      losses: function from the logits of the network and of the teacher to each sample's loss.
      key: random key of the pass.
    """

    def total(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
        outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
        old = evaluation_outputs(setup, teacher, batch.inputs)
        return weighted_mean(losses(outputs.logits, old.logits), batch.weight), batch_stats

    (value, batch_stats), gradient = jax.value_and_grad(total, has_aux=True)(learner.params)
    return gradient, StepInfo(gradient, batch_stats, value)


def masked_log_softmax(
    logits: Float[Array, "*b c"], active_classes: Bool[Array, "*#b c"]
) -> Float[Array, "*b c"]:
    """Return the logarithm of the softmax over given classes; values of the others are arbitrary.

    Args:
      logits: logits of all classes.
      active_classes: the classes, for all samples or for each one.
    """
    # A finite floor: minus infinity in both branches would make the gradient NaN.
    return jax.nn.log_softmax(jnp.where(active_classes, logits, -1e9))


def distillation(
    student: Float[Array, "c"],
    teacher: Float[Array, "c"],
    active_classes: Bool[Array, "c"],
    temperature: float,
) -> Float[Array, ""]:
    """Return T² KL(softmax(teacher / T) ‖ softmax(student / T)) over given classes; 0 without any.

    The factor T² of Hinton et al. 2015 keeps the gradient's size independent of T.
    """
    old, new = (
        masked_log_softmax(logits / temperature, active_classes) for logits in (teacher, student)
    )
    return temperature**2 * jnp.sum(jnp.where(active_classes, jnp.exp(old) * (old - new), 0))


def label_entropy(
    logits: Float[Array, "b c"], labels: Int[Array, "b k"], active_classes: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Return the binary cross-entropy of each sample's labels, averaged over the given classes."""
    targets = multi_hot(labels, active_classes.shape[0]).astype(logits.dtype)
    return binary_cross_entropy(logits, targets, active_classes)


def soft_entropy(
    logits: Float[Array, "b c"], old: Float[Array, "b c"], active_classes: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Return the binary cross-entropy with the old logits' sigmoids, averaged over classes."""
    return binary_cross_entropy(logits, jax.nn.sigmoid(old), active_classes)


def label_softmax(
    logits: Float[Array, "b c"], labels: Int[Array, "b k"], active_classes: Bool[Array, "*b c"]
) -> Float[Array, "b"]:
    """Return the cross-entropy of each sample's first label, with softmax over given classes.

    Args:
      logits: logits of all classes.
      labels: labels of the samples.
      active_classes: the classes, for all samples or for each one.
    """
    rows = masked_log_softmax(logits, active_classes)
    return -jnp.take_along_axis(rows, labels[:, :1], axis=1)[:, 0]


def soft_softmax(
    logits: Float[Array, "b c"], old: Float[Array, "b c"], active_classes: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Return the cross-entropy with the old logits' softmax over given classes; 0 without any."""
    soft = jnp.where(active_classes, jnp.exp(masked_log_softmax(old, active_classes)), 0)
    return -jnp.sum(soft * masked_log_softmax(logits, active_classes), axis=-1)
