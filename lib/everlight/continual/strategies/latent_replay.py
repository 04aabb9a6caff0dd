"""AR1* with latent replay (Pellegrini et al. 2020, IROS): activations of a layer in memory.

The layers up to a chosen one are frozen. The memory has the chosen layer's outputs a for m samples
of earlier tasks. A step passes its n new samples through the frozen layers l, joins the results
with r stored outputs, and trains the layers above, u, on both:

    L = (Σ_{i = 1..n} ℓ(u(l(x_i)), y_i) + Σ_{j = 1..r} ℓ(u(a_j), y_j)) / (n + r)

The frozen layers compute in evaluation mode. The memory is replayed in its order, cyclically, from
the start of every task. The head is CWR*'s (`cwr`), for which samples in memory count among those
of a task. After task t, counted from 1, min(⌊m / t⌋, n_t) random samples of its n_t replace random
ones in memory. With a `regularization` above 0 the layers above have AR1's penalty (`ar1`).

The frozen layers never learn, so the method is made for pretrained networks. In the authors' code
for CORe50's 391 batches, steps have 21 new and 107 stored samples, m is 1,500, and the layer is
conv5_4/dw of MobileNet, within the tenth of its 13 blocks.

Equal to the official code (vlomonaco/ar1-pytorch, `ar1star_lat_replay.py`) at the gradient of a
step, the stored outputs, the number of samples that enter and leave the memory, the order of replay
within an epoch, and the consolidation of the head given the classes of a task; differs in these
points:

- A class is consolidated once. That code goes through a set of tensors, which holds a replayed
  class as often as the memory has samples of it, and consolidates it so many times.
- The loss runs over the classes seen so far by default. There it runs over all.
- The optimizer restarts in every task by default. There it restarts in the second one alone.
- Every epoch has an order of its own. There one order holds for a task.
- Every step has the same numbers of new and stored samples. That code divides 128 in each task in
  proportion to its samples and m, drops a smaller last batch, and replays from the first slot again
  in every epoch. Only samples of whole batches enter its memory, and it fills up the first task by
  its own samples.
- Empty places of the memory are filled first. There it keeps the size of the first task's samples,
  if these are fewer than m.
- Batch norm is not replaced by batch renormalization, whose limits grow in the first task. The
  statistics of frozen layers stay in both codes.
- Outputs in memory are those of samples without augmentation; that code has no augmentation.
- The bias of the head, which that head lacks, is consolidated like the weights.

In the original Caffe code (lrzpellegrini/Latent-Replay) all layers learn in the first task, and the
statistics of frozen layers go on moving.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Learner,
    Memory,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import NonNegativeFloat, PositiveInt, checked
from everlight.continual.engine.evaluation import gather_inputs, update_rows
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.ar1 import (
    DAMPING,
    IMPORTANCE_LIMIT,
    protect_below_head,
)
from everlight.continual.strategies.cwr import cwr
from everlight.continual.strategies.parts.exemplars import random_ranks
from everlight.continual.strategies.parts.memory import empty_buffer, merge_buffer
from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.errors import ArgumentError

PASS = 256
"""Largest number of samples per pass through the frozen layers at the end of a task."""


class LatentMemory(NamedTuple):
    """Memory of latent replay."""

    head: Memory
    """Memory of the head's strategy, CWR*."""
    samples: Samples
    activations: Float[Array, "m *units"]
    """Outputs of the chosen layer for each sample."""
    position: Int[Array, ""]
    """First slot that the next step replays."""


@checked
def latent_replay(
    setup: Setup,
    buffer_size: PositiveInt = 1500,
    layer: str | None = None,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    regularization: NonNegativeFloat = 0.0,
    implicit_rate: Coefficient | None = None,
) -> Strategy:
    """Return AR1* with latent replay, whose memory is `LatentMemory`.

    With a `regularization` above 0 it is `ar1.ProtectedBelowHead`, whose `head` is `LatentMemory`.
    The linear head is `params["head"]`. A task's classes are the labels of its samples and of those
    in memory.

    Args:
      setup: network, objective, optimizer and data access, with `split_at`.
      buffer_size: number m of stored samples.
      layer: name of the layer whose outputs are stored, with slashes between names of nested ones.
        It and the layers below it are frozen. None is the last but one below the head, or the only
        one.
      labels: labels per sample in the sequence.
      replay_batch_size: number r of stored samples per step, at most those in memory; None is the
        size of the incoming batch.
      regularization: coefficient λ of AR1's penalty on the layers above; 0 is no penalty.
      implicit_rate: learning rate of implicit steps on the penalty; None is an explicit step.

    Raises:
      ValueError: the setup has no `split_at`, or the network no such layer; or, while tracing, no
        layer is named head.
    """
    if setup.split_at is None:
        raise ArgumentError(
            "latent replay needs the outputs of a layer, but the setup has no split_at; make it by "
            "flax_setup"
        )
    split, with_head = setup.split_at(layer), cwr(setup, form="star")

    def lower(learner: Learner, inputs: Float[Array, "b *shape"]) -> Float[Array, "b *units"]:
        outputs, _ = split.lower(learner.params, learner.batch_stats, inputs, False, None)
        return outputs

    def init(key: PRNGKeyArray, learner: Learner) -> LatentMemory:
        one = jax.eval_shape(lambda images: lower(learner, images), setup.input_shape)
        activations = jnp.zeros((buffer_size, *one.shape[1:]), one.dtype)
        samples = empty_buffer(buffer_size, labels)
        return LatentMemory(with_head.init(key, learner), samples, activations, jnp.int32(0))

    def begin_task(
        memory: LatentMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[LatentMemory, Learner]:
        both = task._replace(train=merge_buffer(task.train, memory.samples).samples)
        head, learner = with_head.begin_task(memory.head, learner, both, key)
        return memory._replace(head=head, position=jnp.int32(0)), learner

    def grads(
        memory: LatentMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        new = lower(learner, batch.inputs)
        stored, stored_labels, weight = _replayed(memory, batch, new, replay_batch_size)
        activations = jnp.concatenate([new, stored])
        all_labels = jnp.concatenate([batch.labels, stored_labels])
        weight = jnp.concatenate([batch.weight, weight])

        def loss(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            outputs, stats = split.upper(params, learner.batch_stats, activations, True, key)
            losses = setup.objective.loss(outputs, all_labels, learner.seen)
            return weighted_mean(losses, weight), stats

        (value, stats), gradient = jax.value_and_grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, value, learner.params)

    def after_step(
        memory: LatentMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[LatentMemory, Learner]:
        # Weight decay and momentum move parameters whose gradient is 0.
        params = jax.tree.map(
            lambda is_lower, before, after: before if is_lower else after,
            split.is_lower,
            info.aux,
            learner.params,
        )
        learner = learner._replace(params=params)
        size = _replayed_size(memory, info.batch, replay_batch_size)
        filled = jnp.maximum(jnp.sum(memory.samples.mask, dtype=jnp.int32), 1)
        return memory._replace(position=(memory.position + size) % filled), learner

    def end_task(
        memory: LatentMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[LatentMemory, Learner]:
        head, learner = with_head.end_task(memory.head, learner, task, key)
        samples, is_new = exchanged(memory.samples, task, key)

        def outputs(slots: Int[Array, "s"]) -> Float[Array, "s *units"]:
            return lower(learner, gather_inputs(setup, samples.index[slots], None))

        activations = update_rows(outputs, is_new, PASS, memory.activations)
        return memory._replace(head=head, samples=samples, activations=activations), learner

    def predict(
        memory: LatentMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        return with_head.predict(memory.head, learner, inputs)

    strategy = with_head._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )
    if not regularization:
        return strategy
    return protect_below_head(
        setup, strategy, regularization, DAMPING, IMPORTANCE_LIMIT, implicit_rate
    )


def _replayed_size(memory: LatentMemory, batch: Batch, size: int | None) -> int:
    return min(size or batch.index.shape[0], memory.samples.mask.shape[0])


def _replayed(
    memory: LatentMemory, batch: Batch, new: Float[Array, "b *units"], size: int | None
) -> tuple[Float[Array, "r *units"], Int[Array, "r k"], Float[Array, "r"]]:
    """Return the outputs, labels and weights of the stored samples that a step replays.

    Outputs of the step's own samples, of weight 0, take the places that memory cannot fill.
    Layers that normalize over the batch then see current samples instead of an empty slot's.
    """
    place = jnp.arange(_replayed_size(memory, batch, size))
    filled = jnp.sum(memory.samples.mask)
    slots, is_held = (memory.position + place) % jnp.maximum(filled, 1), place < filled
    current = new[place % new.shape[0]]
    shaped = is_held.reshape(-1, *[1] * (current.ndim - 1))
    stored = jnp.where(shaped, memory.activations[slots], current)
    return stored, memory.samples.labels[slots], is_held.astype(batch.weight.dtype)


def exchanged(samples: Samples, task: Task, key: PRNGKeyArray) -> tuple[Samples, Bool[Array, "m"]]:
    """Return the memory's samples after a task, and True for the slots with a new sample.

    Args:
      samples: samples in memory, in its first slots.
      task: task that ends; at most m / t of its samples enter, t being its number from 1.
      key: random key of the samples that enter and leave, which is independent of padding.
    """
    key_enter, key_leave = jax.random.split(key)
    capacity, train = samples.mask.shape[0], task.train
    count = jnp.minimum(capacity // (task.id + 1), jnp.sum(train.mask))
    # Ranks are among the samples of a label; here all have the same one.
    one_label = train._replace(labels=jnp.zeros_like(train.labels[:, :1]))
    rank = random_ranks(one_label, key_enter)[:, 0]
    entering = jnp.argsort(jnp.where(rank < 0, rank.shape[0], rank), stable=True)
    slot = jnp.arange(capacity)
    # Empty slots come first, in their order, and random ones after them.
    turn = jnp.where(samples.mask, 1 + jax.random.permutation(key_leave, slot), 0)
    position = jnp.argsort(jnp.argsort(turn, stable=True))
    is_new = position < count
    chosen = entering[jnp.minimum(position, rank.shape[0] - 1)]

    def exchange(old: Array, new: Array) -> Array:
        return jnp.where(is_new.reshape(-1, *[1] * (old.ndim - 1)), new[chosen], old)

    return jax.tree.map(exchange, samples, train), is_new


METHODS = (
    Method(
        "latent replay",
        latent_replay,
        Publication("Pellegrini et al.", 2020, "IROS", ("samples",)),
        "AR1* with activations of a layer in memory, over frozen layers",
        requirements=(*OTHER_WEIGHTS, "named head", "layer outputs"),
        advised=("pretrained layers",),
        authors={
            "replay_batch_size": 107,
            "batch size": 21,
            "epochs per task": 4,
            "learning rate": 0.001,
            "network": "pretrained",
        },
    ),
)
