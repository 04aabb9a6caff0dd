"""Separated softmax for incremental learning (SS-IL; Ahn et al. 2021, ICCV).

    L = mean over both batches of CE(label; group) + Σ_t T² KL(π_t(ẑ / T) ‖ π_t(z / T))

The n incoming samples have the task's new classes as their group, the m replayed ones all old
classes: gradients of new samples never push down the logits of old classes. The distillation is per
earlier task t: π_t is the softmax over that task's classes, and ẑ are the logits of the network
before the task, for samples of both batches. The sum has no coefficient. T = 2.

The replayed batch is smaller than the incoming one, 32 of 128 in the paper, so that old classes
with few samples are not repeated too often. Exemplars are balanced over classes, and a fixed total
is shared by the classes so far: 20,000 on ImageNet (`buffer_size`). Both batches have one pass.
Task t, counted from 1, has the setup's learning rate divided by t.

Equal to the official code (hongjoon0805/SS-IL-Official, `trainer/ssil.py`) at the gradient of a
step and, with `main.py`, at the learning rate of a task; differs in:

- Exemplars are random samples of each class, in the official code its first ones.
- Each replayed batch is a new draw of distinct exemplars. In the official code an epoch shuffles a
  list that repeats the exemplars, so that a batch may hold one twice.
- Counts are rounded down. In the official code the classes share a fixed total without a rest.
- Later tasks have as many epochs as the first. In the official code they have a quarter of them,
  and the optimizer's momentum carries over from task to task.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.balanced_replay import Exemplars, balanced_replay
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.distillation import label_softmax, taught_gradient
from everlight.continual.strategies.parts.memory import draw_batch, fill_up
from everlight.continual.strategies.parts.replayed import join_batches
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher, no_teacher

REPLAYED_SHARE = 4
"""Incoming samples per replayed one, by default."""


class SeparatedMemory(NamedTuple):
    """Memory of SS-IL."""

    exemplars: Exemplars
    teacher: Teacher
    class_task: Int[Array, "c"]
    """Task that introduced each class."""
    task: Int[Array, ""]
    """Number of the current task, counted from 0."""


@checked
def ss_il(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    temperature: PositiveFloat = 2.0,
    replay_batch_size: PositiveInt | None = None,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return separated softmax (SS-IL), whose memory is `SeparatedMemory`.

    The first label of a sample is its class. Tasks must have disjoint classes; new samples of one
    class alone, and replayed ones of one old class, have no gradient of the cross-entropy.

    Args:
      setup: network, objective, optimizer and data access; SS-IL's loss replaces the objective's.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      temperature: temperature T of the distillation.
      replay_batch_size: samples drawn per step, at most the stored ones; None is a quarter of the
        incoming batch, as in the paper.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """
    balanced = balanced_replay(setup, exemplars_per_class, labels, buffer_size)

    def init(key: PRNGKeyArray, learner: Learner) -> SeparatedMemory:
        none = jnp.zeros(learner.seen.shape, jnp.int32)
        return SeparatedMemory(balanced.init(key, learner), no_teacher(learner), none, jnp.int32(0))

    def begin_task(
        memory: SeparatedMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[SeparatedMemory, Learner]:
        numbers = jnp.where(task.classes, task.id, memory.class_task).astype(jnp.int32)
        teacher = freeze_teacher(learner, task)
        number = jnp.asarray(task.id, jnp.int32)
        return memory._replace(teacher=teacher, class_task=numbers, task=number), learner

    def draw(memory: SeparatedMemory, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        size = replay_batch_size or max(1, batch.index.shape[0] // REPLAYED_SHARE)
        return fill_up(draw_batch(memory.exemplars.buffer, size, key), batch)

    def grads(
        memory: SeparatedMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        both, teacher = join_batches(batch, batch.replay), memory.teacher
        group = jnp.where(both.memory_mask[:, None], teacher.known, task.classes)

        def losses(logits: Float[Array, "b c"], old: Float[Array, "b c"]) -> Float[Array, "b"]:
            task_loss = label_softmax(logits, both.labels, group)
            logits, old = logits / temperature, old / temperature
            distilled = task_divergence(logits, old, memory.class_task, teacher.known)
            return task_loss + temperature**2 * distilled

        gradient, info = taught_gradient(setup, teacher, learner, both, losses, key)
        return gradient, info._replace(aux=learner.params)

    def after_step(
        memory: SeparatedMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[SeparatedMemory, Learner]:
        change = jax.tree.map(lambda leaf: leaf / (memory.task + 1), info.update)
        return memory, learner._replace(params=jax.tree.map(jnp.add, info.aux, change))

    return with_outer_memory(balanced, "exemplars")._replace(
        init=init,
        begin_task=begin_task,
        # Exemplars do not join epochs.
        epoch_data=naive(setup).epoch_data,
        draw=draw,
        grads=grads,
        after_step=after_step,
    )


def task_divergence(
    logits: Float[Array, "b c"],
    old: Float[Array, "b c"],
    class_task: Int[Array, "c"],
    known: Bool[Array, "c"],
) -> Float[Array, "b"]:
    """Return the sum over tasks of KL(softmax(old) ‖ softmax(logits)) over the task's classes.

    Args:
      logits: logits of the network.
      old: logits of the network before the task.
      class_task: task of each class, a number below that of the classes.
      known: classes that count.
    """
    before, now = (_log_softmax_by_task(scores, class_task, known) for scores in (old, logits))
    return jnp.sum(jnp.where(known, jnp.exp(before) * (before - now), 0), axis=1)


def _log_softmax_by_task(
    logits: Float[Array, "b c"], class_task: Int[Array, "c"], known: Bool[Array, "c"]
) -> Float[Array, "b c"]:
    classes = class_task.shape[0]
    # A finite floor: minus infinity in both branches would make the gradient NaN.
    rows = jnp.where(known, logits, -1e9).T
    top = jax.ops.segment_max(jax.lax.stop_gradient(rows), class_task, classes)[class_task]
    total = jax.ops.segment_sum(jnp.exp(rows - top), class_task, classes)[class_task]
    return (rows - top - jnp.log(total)).T


METHODS = (
    Method(
        "SS-IL",
        ss_il,
        Publication("Ahn et al.", 2021, "ICCV", ("samples", "old net")),
        "separated softmax (SS-IL)",
        requirements=(*SINGLE_LABEL_SCORES, "disjoint classes"),
        select="last",
        authors={
            "temperature": 2,
            "batch size": 128,
            "epochs per task": "100, then 25",
            "optimizer at a new task": "continues",
        },
    ),
)
