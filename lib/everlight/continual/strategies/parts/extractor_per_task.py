"""Rehearsal with an extractor per task below one head, as of expandable DER and MEMO.

A network has a part that all tasks share, which may be empty, and an extractor above it, of which
each task trains its own. Below, s is the shared part, φ_t the extractor of task t, K_t its rows of
the head, and a an auxiliary head:

    z(x) = Σ_{i ≤ t} K_iᵀ φ_i(s(x)) + b
    L = CE(y, π(z)) + λ_a CE(y', π(a(φ_t(s(x))))),   y' = 0 for earlier classes, else 1 + the class

π runs over the seen classes, in the second term over the task's classes and the joint one of all
earlier classes. The first task has the first term alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.added_parameters import (
    new_parameters,
    updated_parameters,
)
from everlight.continual.strategies.parts.distillation import label_softmax
from everlight.continual.strategies.parts.exemplars import empty_exemplars, exemplar_slots
from everlight.continual.strategies.parts.expansion import (
    Expansion,
    Extractors,
    empty_copies,
    expanded_outputs,
    expanded_setup,
    joined_head,
    new_auxiliary,
    with_finished,
    with_joined_head,
)
from everlight.continual.strategies.parts.linear_head import align_head, linear_head, linear_logits
from everlight.continual.strategies.parts.memory import merge_buffer
from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.continual.strategies.parts.rehearsal import herd_task

Correction = Callable[[Setup, Expansion, Learner, Task, PRNGKeyArray], PyTree]
"""Function from the setup of all extractors, memory, learner, task and key to the joined head after
a task."""


def extractor_per_task(
    setup: Setup,
    extractors: Extractors,
    method: str,
    tasks: int,
    exemplars_per_class: int,
    labels: int,
    auxiliary_weight: float | Float[Array, ""],
    buffer_size: int | None,
    correction: Correction | None,
) -> Strategy:
    """Return rehearsal with an extractor per task, whose memory is `Expansion`.

    Args:
      setup: network, objective, optimizer and data access.
      extractors: division of the network, with places for the extractors of all tasks but one.
      method: name of the method, for errors.
      tasks: number of tasks in the sequence.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      auxiliary_weight: coefficient λ_a of the auxiliary loss.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
      correction: correction of the head after every task but the first; None is none.

    Raises:
      ValueError: at `init`, no layer is named head, or it is not linear.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Expansion:
        kernel = linear_head(learner.params, method)["kernel"]
        slots = exemplar_slots(exemplars_per_class, buffer_size, learner.seen.shape[0])
        parts, batch_stats, kernels = empty_copies(
            (extractors.part(learner.params), learner.batch_stats, kernel), extractors.places
        )
        heads = {"kernel": kernels, "auxiliary": new_auxiliary(kernel, key)}
        buffer = empty_exemplars(slots, labels)
        return Expansion(buffer, parts, batch_stats, jnp.int32(0), new_parameters(setup, heads))

    def begin_task(
        memory: Expansion, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Expansion, Learner]:
        key_network, key_auxiliary = jax.random.split(key)
        kernel = learner.params["head"]["kernel"]
        parts, batch_stats, kernels = with_finished(
            (memory.extractors, memory.batch_stats, memory.heads.params["kernel"]),
            (extractors.part(learner.params), learner.batch_stats, kernel),
            task.id,
        )
        kernels, grown = grown_head(setup, kernels, kernel, task, key_network)
        params = {**learner.params, "head": {**learner.params["head"], "kernel": grown}}
        heads = {"kernel": kernels, "auxiliary": new_auxiliary(kernel, key_auxiliary)}
        memory = Expansion(
            memory.buffer,
            parts,
            batch_stats,
            task.id.astype(memory.count.dtype),
            new_parameters(setup, heads),
        )
        return memory, learner._replace(params=params)

    def epoch_data(memory: Expansion, task: Task) -> Epoch:
        return merge_buffer(task.train, memory.buffer.samples)

    def grads(
        memory: Expansion, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        # The number of the task is common to vmapped runs, so that no run passes more often.
        numbered = memory._replace(count=task.id)
        label = batch.labels[:, 0]
        target = jnp.where(task.classes[label], 1 + label, 0)
        active = jnp.concatenate([jnp.ones(1, bool), task.classes])

        def loss(params: PyTree, heads: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, features, batch_stats = extractors.apply(
                numbered, params, learner.batch_stats, batch.inputs, True, key
            )
            expanded = expanded_outputs(outputs, features, heads["kernel"])
            losses = setup.objective.loss(expanded, batch.labels, learner.seen)
            task_loss = weighted_mean(losses, batch.weight)
            logits = linear_logits(heads["auxiliary"], outputs.features)
            auxiliary = label_softmax(logits, target[:, None], active)
            auxiliary = auxiliary_weight * weighted_mean(auxiliary, batch.weight)
            return task_loss + jnp.where(task.id > 0, auxiliary, 0), (task_loss, batch_stats)

        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient, for_heads), (task_loss, batch_stats) = differentiate(
            learner.params, memory.heads.params
        )
        return gradient, StepInfo(gradient, batch_stats, task_loss, for_heads)

    def after_step(
        memory: Expansion, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Expansion, Learner]:
        heads = updated_parameters(setup, learner, memory.heads, info.aux)
        return memory._replace(heads=heads), learner

    def end_task(
        memory: Expansion, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Expansion, Learner]:
        sharing_classes = None if buffer_size is None else learner.seen
        expanded = expanded_setup(setup, extractors, memory)
        buffer = herd_task(expanded, memory.buffer, learner, task, sharing_classes)
        memory = memory._replace(buffer=buffer)
        if correction is None:
            return memory, learner
        corrected = correction(expanded, memory, learner, task, key)
        corrected = jax.tree.map(
            lambda new, old: jnp.where((task.id > 0) & learner.seen, new, old),
            corrected,
            joined_head(memory, learner.params),
        )
        return with_joined_head(memory, learner, corrected)

    def predict(
        memory: Expansion, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs, _ = expanded_setup(setup, extractors, memory).apply(
            learner.params, learner.batch_stats, inputs, False, None
        )
        return setup.objective.scores(outputs)

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        epoch_data=epoch_data,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.samples.mask),
        tasks=tasks,
        parameter_copies=extractors.copies,
    )


def grown_head(
    setup: Setup,
    kernels: Float[Array, "s f c"],
    kernel: Float[Array, "f c"],
    task: Task,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "s f c"], Float[Array, "f c"]]:
    """Return the head's rows of finished extractors and of the task's own as the task begins.

    Drawn are the weights of the task's classes for all t extractors, and those of all classes for
    the task's extractor. They are what the setup draws for one extractor, over √t: the variance of
    a head is one over its inputs. The first task keeps its head.

    Args:
      setup: network, whose head is drawn.
      kernels: rows of the finished extractors; those of empty ones stay 0.
      kernel: rows of the head before the task.
      task: task that begins.
      key: random key.
    """
    places = len(kernels)
    draw = jax.vmap(lambda key: setup.init(key)[0]["head"]["kernel"])
    drawn = draw(jax.random.split(key, places + 1)) / jnp.sqrt(task.id + 1)
    drawn = drawn.astype(kernel.dtype)
    finished = jnp.arange(places) < task.id
    renewed = finished[:, None, None] & task.classes
    return jnp.where(renewed, drawn[:-1], kernels), jnp.where(task.id > 0, drawn[-1], kernel)


def aligned_head(
    expanded: Setup, memory: Expansion, learner: Learner, task: Task, key: PRNGKeyArray
) -> PyTree:
    """Return the joined head, weights of new classes scaled to the mean length of earlier ones.

    Args:
      expanded: setup of all extractors.
      memory: memory with the rows of finished extractors.
      learner: learner at the end of the task.
      task: task that ends.
      key: random key, which is not used.
    """
    head = joined_head(memory, learner.params)
    known = learner.seen & ~task.classes
    return {**head, "kernel": align_head(head["kernel"], task.classes, known)}
