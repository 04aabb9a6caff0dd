"""GDumb: greedy sampler and dumb learner (Prabhu et al. 2020, ECCV).

Samples arrive one by one. With `buffer_size` k and Y seen classes, a sample is stored if its class
is new or has fewer than k / Y samples. In a full memory the largest class then loses a random one
of its samples (algorithm 1). The stream trains nothing: before every evaluation a new network is
trained only on the memory. The method needs no task boundaries.

The setup's optimizer is reset and trains the network with the authors' learning-rate schedule. The
first epoch has 0.1 times the rate. Cosine cycles of 1, 2, 4, ... epochs follow, from the full rate
to 0.01 times the rate (SGDR, Loshchilov and Hutter 2017). With a power of two epochs, a cycle ends
with the last one. The authors' optimizer has rate 0.05, momentum 0.9, weight decay 1e-6 and
gradients clipped at 10, in batches of 16, for 64 to 256 epochs. Their CutMix augmentation is not
implemented in everlight.

Their stream is one pass. In a second pass, a stored sample is not stored again. The class of a
sample with several labels is the first.

Equal to the paper's algorithm 1 at the number of stored samples per class after every arrival, and
to the official code (drimpossible/GDumb) at the learning rate of every epoch; differs from that
code in its mixing of images, and in the stored samples: in the official code they are the first k /
C of each of all C classes. That code trains once, in half precision, after all classes have come.
It reports the epoch with the best accuracy on the test set, in everlight the last one predicts.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, MemoryTraining, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.epochs import train_on
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.memory import arrived, empty_buffer


class BalancedMemory(NamedTuple):
    """Memory of GDumb."""

    samples: Samples
    seen: Bool[Array, "c"]
    """Classes of which at least one sample has arrived."""


def add_greedily(memory: BalancedMemory, sample: Samples, key: PRNGKeyArray) -> BalancedMemory:
    """Return the memory after one more sample; a masked sample has no effect.

    Args:
      memory: memory of k slots.
      sample: the sample, without leading axis.
      key: random key of the replaced slot.
    """
    held, seen = memory
    buffer_size, label = held.mask.shape[0], sample.labels[0]
    counts = jax.ops.segment_sum(held.mask.astype(int), held.labels[:, 0], seen.shape[0])
    has_room = ~seen[label] | (counts[label] * jnp.sum(seen) < buffer_size)
    same = held.mask & (held.index == sample.index)
    same &= jnp.all(held.labels == sample.labels, axis=1)
    largest = held.mask & (held.labels[:, 0] == jnp.argmax(counts))
    free = jnp.where(jnp.all(held.mask), largest, ~held.mask)
    slot = jnp.argmax(jnp.where(free, jax.random.uniform(key, free.shape), -1))
    slot = jnp.where(sample.mask & has_room & ~jnp.any(same), slot, buffer_size)
    samples = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), held, sample)
    return BalancedMemory(samples, seen.at[label].set(seen[label] | sample.mask))


def rate_factor(epoch: Int[Array, ""]) -> Float[Array, ""]:
    """Return the factor on the optimizer's learning rate in an epoch, counted from 0."""
    # Epoch 2^i begins a cycle of 2^i epochs. Leading zeros are counted in 32 bits.
    epoch = jnp.asarray(epoch, jnp.int32)
    cycle = jnp.left_shift(1, 31 - jax.lax.clz(jnp.maximum(epoch, 1)))
    cosine = jnp.cos(jnp.pi * (epoch - cycle) / cycle)
    return jnp.where(epoch == 0, 0.1, 0.01 + 0.99 * (1 + cosine) / 2).astype(jnp.float32)


@checked
def gdumb(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    epochs: PositiveInt = 256,
    batch_size: PositiveInt = 16,
    labels: PositiveInt = 1,
) -> Strategy:
    """Return GDumb (greedy sampler and dumb learner), whose memory is `BalancedMemory`.

    Validation also trains a network. Give tasks no validation samples if that costs too much.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number k of stored samples.
      epochs: epochs over the memory before every evaluation.
      batch_size: samples per step on the memory.
      labels: labels per sample in the sequence.
    """
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> BalancedMemory:
        return BalancedMemory(empty_buffer(buffer_size, labels), jnp.zeros_like(learner.seen))

    def grads(
        memory: BalancedMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        nothing = jax.tree.map(jnp.zeros_like, learner.params)
        return nothing, StepInfo(nothing, learner.batch_stats, jnp.float32(0))

    def after_step(
        memory: BalancedMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[BalancedMemory, Learner]:
        def arrive(memory: BalancedMemory, one: tuple) -> tuple[BalancedMemory, None]:
            return add_greedily(memory, *one), None

        new = arrived(info)
        keys = jax.random.split(key, new.mask.shape[0])
        memory, _ = jax.lax.scan(arrive, memory, (new, keys))
        # A step that trains nothing is none of the optimizer's.
        return memory, learner._replace(step=learner.step - 1)

    def before_evaluation(
        memory: BalancedMemory, learner: Learner, key: PRNGKeyArray
    ) -> tuple[BalancedMemory, Learner]:
        key_init, key_epochs = jax.random.split(key)
        # The memory is the only task of a network that is trained like any other.
        task = Task(memory.samples, memory.samples, memory.seen, jnp.int32(0))
        epoch = plain.epoch_data((), task)

        params, batch_stats = setup.init(key_init)
        net = learner._replace(params=params, batch_stats=batch_stats)
        return memory, train_on(
            setup,
            plain,
            (),
            net,
            task,
            epoch,
            epochs=epochs,
            batch_size=batch_size,
            key=key_epochs,
            learning_rate_factor=rate_factor,
        )

    return plain._replace(
        init=init,
        grads=grads,
        after_step=after_step,
        before_evaluation=before_evaluation,
        memory_training=MemoryTraining(plain, batch_size),
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )


METHODS = (
    Method(
        "GDumb",
        gdumb,
        Publication("Prabhu et al.", 2020, "ECCV", ("samples",)),
        "greedy sampler and dumb learner (GDumb): a new network, trained on a balanced memory",
        fixed={"epochs": 64},
        requirements=("last weights",),
        authors={"epochs": "64 to 256", "batch_size": 16, "learning rate": 0.05},
    ),
)
