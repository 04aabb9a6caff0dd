"""Learning without forgetting (Li and Hoiem 2016, ECCV).

    L(θ) = L_task(θ) + λ T² · mean over old heads of KL(softmax(z_old / T) ‖ softmax(z / T))

z_old are the logits, for the new task's images, of the network before the task in evaluation mode.
The factor T² is Hinton et al.'s. The paper has T = 2 and λ = 1 without it, which is λ = 1 / 4 in
everlight. With one head the old classes form a single softmax. With `class_group` there is one
softmax per group, and their losses are averaged. With `times_tasks` λ is multiplied by the number
of earlier tasks: the losses of heads that have a task each are summed, as in the official code.

Equal to the official code (lizhitwo/LearningWithoutForgetting) at the gradient of a sample's
distillation over one head, with λ = 1 / T²; differs in:

- The code sums the losses of several old heads (`times_tasks`).
- The old network sees each batch as it is augmented. The code records its outputs once, for the
  images without augmentation.
- As the paper says, the code first trains the new head alone (warm-up). In everlight all parameters
  learn from the start.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import Between, NotEmpty, PositiveFloat, PositiveInt, check_range, checked
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.distillation import distillation
from everlight.continual.strategies.parts.passes import (
    batch_loss,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher, no_teacher


@checked
def lwf(
    setup: Setup,
    regularization: Coefficient = 1.0,
    temperature: PositiveFloat = 2.0,
    class_group: Annotated[Int[Array, "c"], Between(0), NotEmpty] | None = None,
    groups: PositiveInt = 1,
    times_tasks: bool = False,
) -> Strategy:
    """Return learning without forgetting (LwF), whose memory is `Teacher`.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the distillation.
      temperature: temperature T of the distillation.
      class_group: head of each class, if tasks have separate heads.
      groups: largest number of heads; heads of `class_group` alone have a part in the loss.
      times_tasks: multiply λ by the number of earlier tasks, as the code of van de Ven et al. 2022
        does in the task- and domain-incremental scenarios.

    Raises:
      ValueError: `class_group` holds a head that is not below `groups`.
    """
    if class_group is not None:
        check_range("class_group", class_group, 0, groups - 1)

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
            old = evaluation_outputs(setup, memory, batch.inputs)
            distilled = jax.vmap(sample_distillation)(outputs.logits, old.logits)
            factor = regularization * (task.id if times_tasks else 1)
            total = task_loss + factor * weighted_mean(distilled, batch.weight)
            return total, (task_loss, batch_stats)

        gradient, (task_loss, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, task_loss)

    return naive(setup)._replace(
        init=lambda key, learner: no_teacher(learner), begin_task=begin_task, grads=grads
    )


METHODS = (
    Method(
        "LwF",
        lwf,
        Publication("Li and Hoiem", 2016, "ECCV", ("old net",)),
        "learning without forgetting (LwF)",
        tunes="regularization",
        hyperparameters=(0.25, 1, 3, 10),
        # The paper's 1 without the factor T² = 4 of the module's equation.
        published=0.25,
        requirements=SINGLE_LABEL_SCORES,
        authors={"temperature": 2, "regularization": 0.25},
    ),
)
