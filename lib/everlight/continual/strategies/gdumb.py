"""GDumb: a greedy sampler and a dumb learner (Prabhu et al. 2020, ECCV).

Samples arrive one by one. With buffer_size k and Y classes seen, one is held if its class is new or
holds fewer than k / Y; in a full memory the largest class then gives up one of its samples, drawn
at random (algorithm 1). Nothing is learnt from the stream: before every evaluation a new net is
trained on the memory alone. It needs no boundaries between tasks.

The net is trained by the setup's optimizer, begun anew, whose rate follows the authors' schedule: a
tenth of it in the first epoch, then cosine cycles of 1, 2, 4, ... epochs from all of it to a
hundredth (Loshchilov and Hutter 2017, SGDR), of which a power of two ends with the last. The
authors' optimizer has rate 0.05, momentum 0.9, weight decay 1e-6 and gradients clipped at 10, in
batches of 16, for 64 to 256 epochs. They cut and mix images, which is not done here.

Their stream is one pass. Where it comes again, a sample that is held is not held twice. Of a sample
with several labels the first is its class.

Equal to the paper's algorithm 1 at the number held of every class after every arrival, and to the
official code (drimpossible/GDumb) at the rate of every epoch; differs from that code in the samples
held, which there are the first k / C of each of all C classes, and in its mixing of images.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.continual.base import (
    Batch,
    Learner,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.continual.engine.keys import epoch_keys, step_key
from everlight.continual.engine.steps import shuffle, take_batch, train_step
from everlight.continual.strategies.memory import arrived, empty_buffer
from everlight.continual.strategies.naive import naive


class BalancedMemory(NamedTuple):
    """GDumb's memory."""

    samples: Samples
    seen: Bool[Array, "c"]
    """Classes of which any sample has arrived."""


def add_greedily(memory: BalancedMemory, sample: Samples, key: PRNGKeyArray) -> BalancedMemory:
    """The memory after one more sample arrived; one of mask 0 changes nothing.

    Args:
      memory: of k slots.
      sample: without leading axis.
      key: of who gives way.
    """
    held, seen = memory
    buffer_size, label = held.mask.shape[0], sample.labels[0]
    counts = jax.ops.segment_sum(held.mask.astype(int), held.labels[:, 0], seen.shape[0])
    wanted = ~seen[label] | (counts[label] * jnp.sum(seen) < buffer_size)
    same = held.mask & (held.index == sample.index)
    same &= jnp.all(held.labels == sample.labels, axis=1)
    largest = held.mask & (held.labels[:, 0] == jnp.argmax(counts))
    free = jnp.where(jnp.all(held.mask), largest, ~held.mask)
    slot = jnp.argmax(jnp.where(free, jax.random.uniform(key, free.shape), -1))
    slot = jnp.where(sample.mask & wanted & ~jnp.any(same), slot, buffer_size)
    samples = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), held, sample)
    return BalancedMemory(samples, seen.at[label].set(seen[label] | sample.mask))


def rate_factor(epoch: Int[Array, ""]) -> Float[Array, ""]:
    """Of an epoch, counted from 0, on the optimizer's rate."""
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
    """GDumb, its memory being `BalancedMemory`.

    Validation trains a net too: give tasks no validation samples where that is too dear.

    Args:
      setup: what is static.
      buffer_size: k above.
      epochs: over the memory, for every evaluation.
      batch_size: of a step on the memory.
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
        # The memory is the only task of a net that is trained as any other.
        task = Task(memory.samples, memory.samples, memory.seen, jnp.int32(0))
        every = plain.epoch_data((), task)

        def one_epoch(number: Int[Array, ""], net: Learner) -> Learner:
            keys = epoch_keys(key_epochs, number)
            order = shuffle(every, keys.order)
            net = net._replace(schedule=net.schedule._replace(factor=rate_factor(number)))

            def one_step(step: Int[Array, ""], net: Learner) -> Learner:
                batch = take_batch(every, order, step, batch_size)
                key_step = step_key(keys.steps, step)
                return train_step(setup, plain, (), net, batch, task, key_step)[1]

            return jax.lax.fori_loop(0, -(-order.count // batch_size), one_step, net)

        params, batch_stats = setup.init(key_init)
        opt_state = setup.optimizer.init(params)
        net = learner._replace(params=params, batch_stats=batch_stats, opt_state=opt_state)
        net = jax.lax.fori_loop(0, epochs, one_epoch, net)
        return memory, net._replace(schedule=learner.schedule)

    return plain._replace(
        init=init,
        grads=grads,
        after_step=after_step,
        before_evaluation=before_evaluation,
        on_memory=(plain, batch_size),
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )
