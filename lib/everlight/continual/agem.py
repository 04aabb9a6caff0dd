"""Averaged gradient episodic memory (Chaudhry et al. 2019, ICLR).

With g the gradient of the task's batch and g_ref that of a batch from the memory, where g·g_ref < 0

    g̃ = g − (g·g_ref / g_ref·g_ref) g_ref,

so that the step does not raise the memory's average loss. The reference pass updates no batch
statistics. The paper holds 13 to 65 samples a class and draws a reference batch of 256.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.continual.base import Batch, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.continual.naive import batch_inputs_loss, naive, task_gradient
from everlight.continual.replay import experience_replay


def project(gradient: PyTree, reference: PyTree) -> PyTree:
    """The gradient without its component against the reference, where it has one."""
    along, squared = _dot(gradient, reference), _dot(reference, reference)
    factor = jnp.where((along < 0) & (squared > 0), along / jnp.where(squared > 0, squared, 1), 0)
    return jax.tree.map(lambda g, r: g - factor * r, gradient, reference)


def agem(
    setup: Setup,
    per_class: int = 20,
    reference_batch: int = 64,
    labels: int = 1,
    apart: bool = False,
) -> Strategy:
    """A-GEM, its memory being experience replay's buffer, which joins no epoch.

    Args:
      setup: what is static.
      per_class: exemplars of every class.
      reference_batch: samples of the reference gradient, drawn anew at every step.
      labels: labels per sample in the sequence.
      apart: the task's loss runs over its own classes alone and the reference's over the classes
        known before, as in IIRC; otherwise both run over all seen.
    """
    replay = experience_replay(setup, per_class, labels)

    def grads(
        memory: Samples, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_task, key_draw, key_reference = jax.random.split(key, 3)
        new, known = learner.seen, learner.seen
        if apart:
            new, known = task.classes, learner.seen & ~task.classes
        gradient, info = task_gradient(setup, learner._replace(seen=new), batch, key_task)
        drawn = _draw(memory, reference_batch, key_draw)

        def reference_loss(params: PyTree) -> Float[Array, ""]:
            among = learner._replace(seen=known)
            return batch_inputs_loss(setup, params, among, drawn, key_reference)[0]

        reference = jax.grad(reference_loss)(learner.params)
        return project(gradient, reference), info

    plain = naive(setup)
    return replay._replace(epoch_data=plain.epoch_data, grads=grads)


def _draw(memory: Samples, size: int, key: PRNGKeyArray) -> Batch:
    """A batch with replacement; of weight 0 while the memory is empty, so its gradient is 0."""
    odds = jnp.where(memory.mask, 0.0, -jnp.inf)
    some = jnp.any(memory.mask)
    slot = jax.random.categorical(key, jnp.where(some, odds, 0.0), shape=(size,))
    weight = jnp.broadcast_to(some, (size,)).astype(jnp.float32)
    return Batch(memory.index[slot], memory.labels[slot], weight, jnp.ones(size, bool))


def _dot(first: PyTree, second: PyTree) -> Float[Array, ""]:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), first, second)
    return sum(jax.tree.leaves(products))
