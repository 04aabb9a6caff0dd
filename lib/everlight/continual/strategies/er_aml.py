"""Experience replay with an asymmetric metric loss (ER-AML; Caccia et al. 2022, ICLR).

    L = mean over incoming samples i of l_i + mean over replayed samples of ℓ
    l_i = −(τ / 0.07) mean over p in P_i of log(exp(f_i·f_p / τ) / Σ_a exp(f_i·f_a / τ)).

f are features of length 1. Each incoming sample draws one positive, of its class, and one negative,
of another class in the batch; both come from the memory and the batch with equal probability for
all of them. The sum over a runs over the positives and negatives of all incoming samples, P_i over
those of i's class. New samples are thus never compared with classes that the batch lacks, whose
features would otherwise drift abruptly; the replayed ones alone separate these, by the usual loss
ℓ. A sample without a possible positive or negative has no l_i. While the memory is empty, ℓ of the
incoming batch takes the place of l.

The batch, its positives with its negatives, and the replayed batch have a pass each, in this order.
Memory and replay are those of `experience_replay`. Once samples are stored, the head learns only
from replayed ones. The authors' default is τ = 0.2.

Equal to the official code (pclucas14/AML, `er_aml.py` and `sample_pos_neg` of `buffer.py`, with
`task_free`) at the possible positives and negatives and at the gradient of a step, with
`loss_over="all"`; differs in:

- Without `task_free`, negatives of the official code may have any class of the task, and its first
  task has only ℓ.
- The official code divides features by their length plus 0.00001, and has a cosine classifier.
- By default ℓ runs over the seen classes, in the official code over all outputs.
- While the memory is empty, samples are augmented in everlight, in the official code not.
- The reservoir in the official code counts the arrivals before a batch for all of the batch.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.memory import arrivals, batch_at, fill_up, merge_buffer
from everlight.continual.strategies.parts.passes import batch_loss, weighted_mean
from everlight.continual.strategies.parts.replayed import (
    join_batches,
    replayed_loss,
    replayed_outputs,
    with_all_seen,
)
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product

BASE_TEMPERATURE = 0.07
"""The authors' constant, by which the loss is divided."""


class Contrast(NamedTuple):
    """Batches of a step; a sample that has no pair of positive and negative has weight 0 in it."""

    replayed: Batch
    positive: Batch
    negative: Batch


@checked
def er_aml(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = None,
    temperature: PositiveFloat = 0.2,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return experience replay with an asymmetric metric loss (ER-AML); its memory is `Reservoir`.

    A sample has one label.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples; the paper has 20 to 100 per class.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      temperature: temperature τ of the metric loss.
      loss_over: classes of the loss ℓ: the seen ones, or all outputs of the head, as in the
        authors' code.
    """
    replay = experience_replay(setup, buffer_size, 1, replay_batch_size)

    def draw(memory: Reservoir, batch: Batch, task: Task, key: PRNGKeyArray) -> Contrast:
        key_replay, key_positive, key_negative = jax.random.split(key, 3)
        candidates = merge_buffer(memory.samples, arrivals(batch)).samples
        same, other = possible_pairs(batch.labels[:, 0], candidates.labels[:, 0], candidates.mask)
        paired = jnp.any(same, axis=1) & jnp.any(other, axis=1) & (batch.weight > 0)
        weight = (paired & (memory.arrived > 0)).astype(jnp.float32)

        def pick(possible: Bool[Array, "b n"], key: PRNGKeyArray) -> Batch:
            drawn = jnp.where(possible, jax.random.uniform(key, possible.shape), -1.0)
            return fill_up(batch_at(candidates, jnp.argmax(drawn, axis=1), weight), batch)

        replayed = replay.draw(memory, batch, task, key_replay)
        return Contrast(replayed, pick(same, key_positive), pick(other, key_negative))

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        replayed, positive, negative = batch.replay
        key_batch, key_pairs, key_replay = jax.random.split(key, 3)
        pairs = join_batches(positive, negative)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            plain, (outputs, batch_stats) = batch_loss(setup, params, learner, batch, key_batch)
            after = learner._replace(batch_stats=batch_stats)
            others, batch_stats = replayed_outputs(setup, params, after, pairs, key_pairs)
            apart = metric_losses(
                outputs.features, batch.labels[:, 0], others.features, pairs, temperature
            )
            metric = weighted_mean(apart, positive.weight)
            first = jnp.where(memory.arrived > 0, metric, plain)
            after = learner._replace(batch_stats=batch_stats)
            replay_loss, batch_stats = replayed_loss(setup, params, after, replayed, key_replay)
            return first + replay_loss, (first, batch_stats)

        gradient, (value, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    return replay._replace(draw=draw, grads=grads)


def possible_pairs(
    batch_labels: Int[Array, "b"], labels: Int[Array, "n"], mask: Bool[Array, "n"]
) -> tuple[Bool[Array, "b n"], Bool[Array, "b n"]]:
    """Return the possible positives and negatives of each sample of a batch.

    A positive has the sample's label and is not the sample itself; a negative has another label of
    the batch.

    Args:
      batch_labels: labels of the batch.
      labels: labels of all samples, of which the batch's are the last.
      mask: True for samples that exist.
    """
    count, size = labels.shape[0], batch_labels.shape[0]
    equal = (batch_labels[:, None] == labels) & mask
    itself = jnp.arange(count) == count - size + jnp.arange(size)[:, None]
    carried = jnp.any(equal & mask[count - size :, None], axis=0)
    return equal & ~itself, carried & ~equal & mask


def metric_losses(
    features: Float[Array, "b f"],
    labels: Int[Array, "b"],
    others: Float[Array, "n f"],
    pairs: Batch,
    temperature: float,
) -> Float[Array, "b"]:
    """Return each sample's metric loss l; it is finite for a sample without a positive, too.

    Args:
      features: features of the incoming samples, of any length.
      labels: labels of the incoming samples.
      others: features of the positives and negatives, of any length.
      pairs: these samples; those of weight 0 do not count.
      temperature: temperature τ.
    """
    mask = pairs.weight > 0
    near = matrix_product(unit_vectors(features, -1), unit_vectors(others, -1).T) / temperature
    # A sum over nothing would have no finite gradient.
    counted = mask | ~jnp.any(mask)
    total = jax.scipy.special.logsumexp(near, axis=1, keepdims=True, where=counted)
    positive = ((labels[:, None] == pairs.labels[:, 0]) & mask).astype(near.dtype)
    mean = jnp.sum(positive * (near - total), axis=1) / jnp.maximum(jnp.sum(positive, axis=1), 1)
    return -temperature / BASE_TEMPERATURE * mean


METHODS = (
    Method(
        "ER-AML",
        er_aml,
        Publication("Caccia et al.", 2022, "ICLR", ("samples",)),
        "experience replay with an asymmetric metric loss (ER-AML)",
        requirements=SINGLE_LABEL_SCORES,
        authors={
            "temperature": 0.2,
            "replay_batch_size": 10,
            "loss_over": "all",
            "batch size": 10,
            "epochs per task": 1,
        },
    ),
)
