"""Passes, losses and gradients of batches that are drawn from memory."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup, StepInfo
from everlight.continual.strategies.parts.passes import batch_outputs, task_gradient, weighted_mean


def replayed_outputs(
    setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Outputs, PyTree]:
    """Return `batch_outputs` of a batch drawn from memory.

    A batch without samples (all weights 0) leaves the batch statistics unchanged.
    """
    outputs, after = batch_outputs(setup, params, learner, batch, key)
    held = jnp.any(batch.weight > 0)
    stats = jax.tree.map(lambda new, old: jnp.where(held, new, old), after, learner.batch_stats)
    return outputs, stats


def replayed_loss(
    setup: Setup, params: PyTree, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], PyTree]:
    """Return the mean loss of a batch drawn from memory, 0 if it is empty, and batch statistics."""
    outputs, batch_stats = replayed_outputs(setup, params, learner, batch, key)
    losses = setup.objective.loss(outputs, batch.labels, learner.seen)
    return weighted_mean(losses, batch.weight), batch_stats


def with_all_seen(learner: Learner) -> Learner:
    """Return the learner with every class seen, so that losses run over all outputs of the head."""
    return learner._replace(seen=jnp.ones_like(learner.seen))


def joint_gradient(
    setup: Setup, learner: Learner, batch: Batch, key: PRNGKeyArray
) -> tuple[PyTree, StepInfo]:
    """Return the gradient of the mean loss over the batch and its replayed batch, in one pass.

    It is one mean over the samples of both, so a larger replayed batch has more weight. Chaudhry et
    al.'s code and Mammoth's `er.py` do the same.
    """
    return task_gradient(setup, learner, join_batches(batch, batch.replay), key)


def join_batches(batch: Batch, replayed: Batch) -> Batch:
    """Return one batch of the task's samples, without its `replay`, and then the replayed ones."""
    incoming = batch._replace(replay=())
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), incoming, replayed)
