"""Averaged gradient episodic memory (Chaudhry et al. 2019, ICLR).

With g the gradient of the task's batch and g_ref that of a batch from the memory, where g·g_ref < 0

    g̃ = g − (g·g_ref / g_ref·g_ref) g_ref,

so that the step does not raise the memory's average loss. The reference batch is drawn anew at
every step without replacement. It is as large as the task's, as in IIRC's code, or as large as
`replay_batch_size` says: 128 or 256 in the authors' code, beside batches of 10 to 16. Of batch
statistics the paper says nothing; the reference pass runs in training mode, and moves them before
the task's does. The paper holds 13 to 65 samples per class.

Equal to the official code (facebookresearch/agem) at the projected gradient, the reference being
the mean over a random batch without replacement; differs in that exemplars are a random choice of
each class, where theirs are the last samples of it, and in that one loss runs over all seen
classes, where theirs runs over those of each sample's task.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.continual.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.strategies.balanced_replay import Exemplars, balanced_replay, replayed_loss
from everlight.continual.strategies.memory import draw_batch
from everlight.continual.strategies.naive import naive, task_gradient


def project(gradient: PyTree, reference: PyTree) -> PyTree:
    """The gradient without its component against the reference, where it has one."""
    along, squared = _dot(gradient, reference), _dot(reference, reference)
    factor = jnp.where((along < 0) & (squared > 0), along / jnp.where(squared > 0, squared, 1), 0)
    return jax.tree.map(lambda g, r: g - factor * r, gradient, reference)


@checked
def agem(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    apart: bool = False,
    replay_batch_size: PositiveInt | None = None,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """A-GEM, its memory being experience replay's, whose exemplars join no epoch.

    Args:
      setup: what is static.
      exemplars_per_class: exemplars per class, where there is no `buffer_size`.
      labels: labels per sample in the sequence.
      apart: the task's loss runs over its own classes alone and the reference's over the classes
        known before, as in IIRC; otherwise both run over all seen.
      replay_batch_size: samples of the reference batch, at most as many as are held; None is as
        many as the task's batch has.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """

    def draw(memory: Exemplars, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        return draw_batch(memory.buffer, replay_batch_size or batch.index.shape[0], key)

    def grads(
        memory: Exemplars, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_task, key_reference = jax.random.split(key)
        new, known = learner.seen, learner.seen
        if apart:
            new, known = task.classes, learner.seen & ~task.classes

        def reference_loss(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            among = learner._replace(seen=known)
            return replayed_loss(setup, params, among, batch.replay, key_reference)

        reference, batch_stats = jax.grad(reference_loss, has_aux=True)(learner.params)
        now = learner._replace(seen=new, batch_stats=batch_stats)
        gradient, info = task_gradient(setup, now, batch, key_task)
        return project(gradient, reference), info

    replay = balanced_replay(setup, exemplars_per_class, labels, buffer_size)
    return replay._replace(epoch_data=naive(setup).epoch_data, draw=draw, grads=grads)


def _dot(first: PyTree, second: PyTree) -> Float[Array, ""]:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), first, second)
    return sum(jax.tree.leaves(products))
