"""Weight aligning (WA; Zhao et al. 2020, CVPR): new classes' weights as long as old ones'.

    L(θ) = (1 − λ) · CE(labels, π(z)) + λ · CE(π(ẑ / T), π(z / T)),   λ = old / (old + new)
    after the task   w_j ← γ w_j for new classes j,   γ = mean |w| of old / mean |w| of new

over old and new classes, w_j being the weights of class j in the head. Softmax π runs over the seen
classes, in the second term over the old ones; ẑ are the logits of the network before the task. The
loss is stage 1 of BiC without corrections. Trained on few exemplars and many new samples, weights
of new classes become longer and win predictions; aligning needs no held-out samples. Biases stay.
Where new weights are the shorter ones, as in small networks after few steps without weight decay, γ
is above 1 and favours the new classes: check γ before using the method on such networks. T = 2 in
the paper.

Aligning needs new weights that training has made longer. With one class per task the first task
has no gradient, nor has the distillation of the second, since a softmax over one class is constant.
Few steps then leave all lengths near their initial value: on digits with one epoch γ is 0.91 to
1.09, and with ten 1.06 to 1.24. Most samples are then predicted as one of the newest classes. Ten
tasks of one class end at 0.26 with one epoch and at 0.63 with ten (BiC: 0.46 and 0.90).
On one seed with ten epochs, aligning lowers the final accuracy from 0.80 to 0.67.

Its memory is a fixed total of herded exemplars: 2,000 on CIFAR-100 and 20,000
on ImageNet (`buffer_size`). Exemplars join every epoch.

The authors published no code. Equal to PyCIL (G-U-N/PyCIL, `models/wa.py`) at the gradient of a
step, the aligned weights and the exemplars: counts are rounded down, herding never picks a sample
twice, and classes keep their first exemplars when the number falls. Differs in:

- The head has all outputs from the start, on which weight decay acts; in the official code a task
  adds its own.
- The paper also clips weights of the head below 0 after every step; neither PyCIL nor this does.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.parts.distillation import (
    label_softmax,
    soft_softmax,
    taught_gradient,
)
from everlight.continual.strategies.parts.linear_head import align_head
from everlight.continual.strategies.parts.rehearsal import Rehearsal, rehearsal
from everlight.continual.strategies.parts.teacher import freeze_teacher
from everlight.models.heads import head_kernel, with_head_kernel


@checked
def wa(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    temperature: PositiveFloat = 2.0,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return weight aligning (WA), whose memory is `Rehearsal`.

    The first label of a sample is its class. The linear head is `params["head"]`.

    Args:
      setup: network, objective, optimizer and data access; WA's loss replaces the objective's.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      temperature: temperature T of the distillation.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """
    replay = rehearsal(setup, exemplars_per_class, labels, buffer_size)

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        return memory._replace(teacher=freeze_teacher(learner, task)), learner

    def grads(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        teacher = memory.teacher
        old_share = jnp.sum(teacher.known) / jnp.maximum(jnp.sum(learner.seen), 1)

        def losses(logits: Float[Array, "b c"], old: Float[Array, "b c"]) -> Float[Array, "b"]:
            task_loss = label_softmax(logits, batch.labels, learner.seen)
            distilled = soft_softmax(logits / temperature, old / temperature, teacher.known)
            return (1 - old_share) * task_loss + old_share * distilled

        return taught_gradient(setup, teacher, learner, batch, losses, key)

    def end_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        kernel = align_head(head_kernel(learner.params), task.classes, memory.teacher.known)
        learner = learner._replace(params=with_head_kernel(learner.params, kernel))
        return replay.end_task(memory, learner, task, key)

    return replay._replace(begin_task=begin_task, grads=grads, end_task=end_task)


METHODS = (
    Method(
        "WA",
        wa,
        Publication("Zhao et al.", 2020, "CVPR", ("samples", "old net")),
        "weight aligning (WA)",
        requirements=(*SINGLE_LABEL_SCORES, "disjoint classes", "named head"),
        select="last",
        authors={"temperature": 2},
    ),
)
