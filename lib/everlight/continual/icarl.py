"""iCaRL for many labels a sample (Rebuffi et al. 2017, CVPR; Abdelsalam et al. 2021 for IIRC).

    L(θ) = mean over seen classes c of BCE(t_c, σ(z_c)),   t_c = σ(z_old,c) for classes known before

The labels of known classes, of new and replayed samples alike, give way to the outputs of the
network as it was before the task, in evaluation mode. Exemplars are herded and join every epoch.
IIRC's iCaRL-CNN predicts by σ(z) > ½ with a linear head, its iCaRL-norm with a cosine head whose
scale starts at 1 at every task. The literature keeps 20 exemplars a class on CIFAR-100.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.continual.base import (
    Batch,
    Epoch,
    Learner,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.continual.evaluation import sample_features
from everlight.continual.lwf import Teacher, freeze_teacher, no_teacher
from everlight.continual.memory import add_herded_exemplars, empty_buffer, merge_buffer
from everlight.continual.multilabel_objective import binary_cross_entropy, multi_hot
from everlight.continual.naive import batch_outputs, naive, weighted_mean


class Rehearsal(NamedTuple):
    """Exemplars and the network before the task."""

    buffer: Samples
    teacher: Teacher


def icarl(
    setup: Setup,
    per_class: int = 20,
    labels: int = 1,
    restart: Callable[[PyTree], PyTree] = lambda params: params,
) -> Strategy:
    """iCaRL, its memory being `Rehearsal`.

    Args:
      setup: what is static; the loss above stands in for its objective's.
      per_class: exemplars of every class.
      labels: labels per sample in the sequence.
      restart: what a task's beginning does to the parameters.
    """

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory = memory._replace(teacher=freeze_teacher(learner, task))
        return memory, learner._replace(params=restart(learner.params))

    def grads(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        teacher = memory.teacher

        def loss(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            inputs, outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
            old, _ = setup.apply(teacher.params, teacher.batch_stats, inputs, False, None)
            own = multi_hot(batch.labels, learner.seen.shape[0])
            targets = jnp.where(teacher.known, jax.nn.sigmoid(old.logits), own)
            losses = binary_cross_entropy(outputs.logits, targets, learner.seen)
            return weighted_mean(losses, batch.weight), batch_stats

        (value, batch_stats), gradient = jax.value_and_grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    return rehearsal(setup, per_class, labels)._replace(begin_task=begin_task, grads=grads)


def rehearsal(setup: Setup, per_class: int, labels: int) -> Strategy:
    """Herded exemplars that join every epoch, and a frozen teacher: what iCaRL and LUCIR share."""

    def init(key: PRNGKeyArray, learner: Learner) -> Rehearsal:
        buffer = empty_buffer(per_class * learner.seen.shape[0], labels)
        return Rehearsal(buffer, no_teacher(learner))

    def epoch_data(memory: Rehearsal, task: Task) -> Epoch:
        return merge_buffer(task.train, memory.buffer)

    def end_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        return memory._replace(buffer=herd_task(setup, memory.buffer, learner, task)), learner

    return naive(setup)._replace(
        init=init,
        epoch_data=epoch_data,
        end_task=end_task,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.mask),
    )


def herd_task(setup: Setup, buffer: Samples, learner: Learner, task: Task) -> Samples:
    """The buffer with exemplars of the task's classes, herded by the network's features."""
    features = sample_features(setup, learner, task.train)
    return add_herded_exemplars(buffer, task.train, task.classes, features)
