"""Learning without forgetting (Li and Hoiem 2016, ECCV).

    L(θ) = L_task(θ) + λ T² · mean over old heads of KL(softmax(z_old / T) ‖ softmax(z / T))

z_old are the outputs, for the new task's images, of the network as it was before the task, in
evaluation mode. T² is Hinton et al.'s; the paper has T = 2 and λ = 1 without it, which is λ = 1 / 4
here. With one head the old classes form a single softmax; with `class_group`, a softmax per group,
averaged.

Equal to the official code (lizhitwo/LearningWithoutForgetting) at the gradient of a sample's
distillation over one head, with λ = 1 / T²; differs with several old heads, whose losses that code
adds up.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.base import Batch, Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.strategies.naive import batch_loss, naive, weighted_mean


class Teacher(NamedTuple):
    """The network before the task, and the classes that it knew: LwF's memory, part of others'."""

    params: PyTree
    batch_stats: PyTree
    known: Bool[Array, "c"]


def no_teacher(learner: Learner) -> Teacher:
    """A network that knew no class, before the first task."""
    return Teacher(learner.params, learner.batch_stats, jnp.zeros_like(learner.seen))


def freeze_teacher(learner: Learner, task: Task) -> Teacher:
    """The network as a task begins, and the classes that it knew before."""
    return Teacher(learner.params, learner.batch_stats, learner.seen & ~task.classes)


def distillation(
    student: Float[Array, "c"],
    teacher: Float[Array, "c"],
    among: Bool[Array, "c"],
    temperature: float,
) -> Float[Array, ""]:
    """T² KL(softmax(teacher / T) ‖ softmax(student / T)) over some classes; 0 over none.

    Hinton et al. 2015, whose T² keeps the gradient's size independent of T.
    """

    def log_softmax(logits: Float[Array, "c"]) -> Float[Array, "c"]:
        # A finite floor: minus infinity in both branches would make the gradient NaN.
        return jax.nn.log_softmax(jnp.where(among, logits / temperature, -1e9))

    old, new = log_softmax(teacher), log_softmax(student)
    return temperature**2 * jnp.sum(jnp.where(among, jnp.exp(old) * (old - new), 0))


@checked
def lwf(
    setup: Setup,
    regularization: Coefficient = 1.0,
    temperature: PositiveFloat = 2.0,
    class_group: Int[Array, "c"] | None = None,
    groups: PositiveInt = 1,
) -> Strategy:
    """LwF.

    Args:
      setup: what is static.
      regularization: λ above.
      temperature: T above.
      class_group: the head of each class, where tasks have heads of their own.
      groups: number of heads.
    """

    def begin_task(
        memory: Teacher, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Teacher, Learner]:
        return freeze_teacher(learner, task), learner

    def grads(
        memory: Teacher, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        group = jnp.zeros(learner.seen.shape, int) if class_group is None else class_group
        heads = (group == jnp.arange(groups)[:, None]) & memory.known
        used = jnp.any(heads, axis=1)

        def sample_distillation(student: Float[Array, "c"], teacher: Float[Array, "c"]) -> Array:
            per_head = jax.vmap(lambda head: distillation(student, teacher, head, temperature))
            total = jnp.sum(jnp.where(used, per_head(heads), 0))
            return total / jnp.maximum(jnp.sum(used), 1)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            task_loss, (outputs, batch_stats) = batch_loss(setup, params, learner, batch, key)
            old, _ = setup.apply(memory.params, memory.batch_stats, batch.inputs, False, None)
            kept = jax.vmap(sample_distillation)(outputs.logits, old.logits)
            total = task_loss + regularization * weighted_mean(kept, batch.weight)
            return total, (task_loss, batch_stats)

        gradient, (task_loss, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, task_loss)

    return naive(setup)._replace(
        init=lambda key, learner: no_teacher(learner), begin_task=begin_task, grads=grads
    )
