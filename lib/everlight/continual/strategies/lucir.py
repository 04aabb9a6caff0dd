"""Learning a unified classifier incrementally by rebalancing (Hou et al. 2019, CVPR), for IIRC.

    L(θ) = BCE + λ · (1 − cos(f_old(x), f(x)))
         + mean over replayed x, their labels y and the K nearest new classes c of
           max(0, m − cos(f, w_y) + cos(f, w_c)),        λ = λ₀ √(old classes / new classes)

A cosine head is needed. Weights of classes known before stay as they are; those of new classes
begin as the normalised mean of their samples' normalised features, as long as the known ones on
average. λ₀ = 5, K = 2 and m = .5 in the paper, and 20 herded exemplars a class.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.checks import Count, NotNegative, checked
from everlight.continual.base import (
    Batch,
    Learner,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Strength,
    Task,
)
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.objectives.many_labels import multi_hot
from everlight.continual.strategies.icarl import Rehearsal, rehearsal
from everlight.continual.strategies.lwf import freeze_teacher
from everlight.continual.strategies.naive import batch_outputs, weighted_mean
from everlight.models.heads import cosines, unit


@checked
def lucir(
    setup: Setup,
    per_class: Count = 20,
    labels: Count = 1,
    strength: Strength = 5.0,
    margin: NotNegative = 0.5,
    rivals: Count = 2,
    buffer_size: Count | None = None,
) -> Strategy:
    """LUCIR, its memory being `Rehearsal`; the head's weights are `params["head"]["kernel"]`.

    Args:
      setup: what is static.
      per_class: exemplars per class, where there is no `buffer_size`; 20 in the paper.
      labels: labels per sample in the sequence.
      strength: λ₀ above.
      margin: m above.
      rivals: K above; a task of fewer new classes has all of them.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        teacher = freeze_teacher(learner, task)
        features = sample_features(setup, learner, task.train)
        kernel = imprint(_kernel(learner.params), features, task.train, task.classes, teacher.known)
        params = _with_kernel(learner.params, kernel)
        return memory._replace(teacher=teacher), learner._replace(params=params)

    def grads(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        teacher, new = memory.teacher, task.classes
        weight = strength * jnp.sqrt(jnp.sum(teacher.known) / jnp.maximum(jnp.sum(new), 1))

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
            old, _ = setup.apply(teacher.params, teacher.batch_stats, batch.inputs, False, None)
            task_loss = weighted_mean(
                setup.objective.loss(outputs, batch.labels, learner.seen), batch.weight
            )
            moved = 1 - jnp.sum(unit(outputs.features, -1) * unit(old.features, -1), axis=-1)
            true = multi_hot(batch.labels, new.shape[0]) & teacher.known
            scores = cosines(outputs.features, _kernel(params))
            ranking = margin_ranking(scores, true, new, margin, rivals)
            replayed = batch.weight * batch.from_memory
            total = task_loss + weight * weighted_mean(moved, batch.weight)
            return total + weighted_mean(ranking, replayed), (task_loss, batch_stats)

        gradient, (task_loss, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, task_loss)

    def after_step(
        memory: Rehearsal, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        teacher = memory.teacher
        kernel = jnp.where(teacher.known, _kernel(teacher.params), _kernel(learner.params))
        return memory, learner._replace(params=_with_kernel(learner.params, kernel))

    return rehearsal(setup, per_class, labels, buffer_size)._replace(
        begin_task=begin_task, grads=grads, after_step=after_step
    )


def margin_ranking(
    scores: Float[Array, "b c"],
    true: Bool[Array, "b c"],
    new: Bool[Array, "c"],
    margin: float,
    rivals: int,
) -> Float[Array, "b"]:
    """Each sample's mean of max(0, m − true score + rival's) over its true classes and rivals.

    Args:
      scores: cosines with all classes, `[b, c]`.
      true: the sample's classes among those known before, `[b, c]`.
      new: the classes whose greatest scores are the rivals.
      margin: m.
      rivals: how many; the mean is over those that there are, 0 without any.
    """
    top, _ = jax.lax.top_k(jnp.where(new, scores, -jnp.inf), min(rivals, new.shape[0]))
    pairs = true[:, :, None] & (top > -jnp.inf)[:, None, :]
    short = margin - scores[:, :, None] + jnp.where(top > -jnp.inf, top, 0)[:, None, :]
    total = jnp.sum(jnp.where(pairs, jax.nn.relu(short), 0), axis=(1, 2))
    return total / jnp.maximum(jnp.sum(pairs, axis=(1, 2)), 1)


def imprint(
    kernel: Float[Array, "f c"],
    features: Float[Array, "n f"],
    samples: Samples,
    new: Bool[Array, "c"],
    known: Bool[Array, "c"],
) -> Float[Array, "f c"]:
    """Head weights with those of new classes from their samples; as given where none is known.

    Args:
      kernel: the head's weights, `[f, c]`.
      features: of the samples, `[n, f]`.
      samples: of the task, `[n]`.
      new: classes to imprint that have a sample.
      known: classes whose weights' mean length the new ones take.
    """
    member = multi_hot(samples.labels, new.shape[0]) & samples.mask[:, None]
    means = jnp.where(samples.mask[:, None], unit(features, -1), 0).T @ member
    lengths = jnp.linalg.norm(kernel, axis=0)
    length = jnp.sum(lengths, where=known) / jnp.maximum(jnp.sum(known), 1)
    imprinted = new & jnp.any(member, axis=0) & jnp.any(known)
    # The sum of a class's unit features has the direction of their mean.
    return jnp.where(imprinted, length * unit(means, 0), kernel)


def _kernel(params: PyTree) -> Float[Array, "f c"]:
    return params["head"]["kernel"]


def _with_kernel(params: PyTree, kernel: Float[Array, "f c"]) -> PyTree:
    return {**params, "head": {**params["head"], "kernel": kernel}}
