"""Feature translation (FeTrIL; Petit et al. 2023, WACV): translated features replay classes.

The layers below the head learn in the first task and are frozen afterwards. Memory holds the mean
μ_k of the features φ of each class k, and no sample. An epoch of a later task has the samples x of
its classes, and for each earlier class k all samples of the new class n(k) that is most similar:

    φ_k(x) = φ(x) + μ_k − μ_n(k),   n(k) = argmax over new classes j of cos(μ_k, μ_j)
    L(head) = mean over samples of CE(y, π(h(φ(x)))) and CE(k, π(h(φ_k(x))))

π is the softmax over the seen classes and h the head, which continues from the task before. The
network below it computes in evaluation mode. An epoch has as many features of an earlier class as
n(k) has samples, so that its steps grow with the number of earlier classes. Each step passes its
samples through the frozen layers again; the authors store the features.

This is the form FeTrIL^fc of the paper, whose table has 64.7% and 63.4% on CIFAR-100 with 50 first
classes and 5 or 10 later tasks. The paper's other form (66.3% and 65.2%) trains linear support
vector machines on features of length 1 in place of the head; it is not implemented here. The
official code has this form alone.

Equal to PyCIL (`models/fetril.py`) at the means, the most similar classes and the features of an
epoch with their labels, and to the official code (GregoirePetit/FeTrIL, `compute_distances.py`) at
the latter with `similarity="euclidean"`: that code takes the nearest new mean, the paper and PyCIL
the one at the least angle. Functions and script, run on the same features of nine classes, chose
the same classes, and their translated features differ by 1.3e-7 at most, relative to the largest
value. Differs in:

- Steps pass samples as the setup augments them, in both codes as they are.
- The head has all outputs from the start, on which weight decay acts. In both codes a task adds its
  own.
- The first task is trained as the setup says. The official code trains it by LUCIR's code and then
  by AugMix, PyCIL with AutoAugment and Cutout.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import checked
from everlight.conditional import cond_under_vmap, where_under_vmap
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_first_labels,
    no_means,
)
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.linear_head import linear_head, linear_logits
from everlight.continual.strategies.parts.passes import evaluation_outputs, weighted_mean
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product

Similarity = Literal["cosine", "euclidean"]
"""Rule of the most similar mean: the least angle, or the least distance."""


class TranslationMemory(NamedTuple):
    """Memory of FeTrIL."""

    means: ClassMeans
    """Mean of each class's features."""
    source: Int[Array, "c"]
    """New class whose samples are translated to each earlier class."""
    known: Bool[Array, "c"]
    """Classes of earlier tasks."""


@checked
def feature_translation(setup: Setup, similarity: Similarity = "cosine") -> Strategy:
    """Return feature translation (FeTrIL), whose memory is `TranslationMemory`.

    The first label of a sample is its class. The linear head is `params["head"]`.

    Args:
      setup: network, objective, optimizer and data access.
      similarity: rule of the most similar new class, "cosine" or "euclidean".

    Raises:
      ValueError: at `init`, no layer is named head, or it is not linear.
    """
    plain = naive(setup)

    def class_means(means: ClassMeans, learner: Learner, task: Task) -> ClassMeans:
        features = sample_features(setup, learner, task.train)
        return add_first_labels(means, features, task.train.labels[:, 0], task.train.mask)

    def init(key: PRNGKeyArray, learner: Learner) -> TranslationMemory:
        linear_head(learner.params, "FeTrIL")
        classes = learner.seen.shape[0]
        means = no_means(classes, *feature_width(setup, learner))
        return TranslationMemory(means, jnp.zeros(classes, jnp.int32), jnp.zeros(classes, bool))

    def begin_task(
        memory: TranslationMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TranslationMemory, Learner]:
        known = memory.means.count > 0

        def with_new_classes() -> ClassMeans:
            return class_means(memory.means, learner, task)

        # The features of the first task are those of its end.
        means = where_under_vmap(task.id > 0, with_new_classes, memory.means)
        new = task.classes & (means.count > 0) & ~known
        source = most_similar(means.mean, new, similarity)
        return TranslationMemory(means, source, known), learner

    def epoch_data(memory: TranslationMemory, task: Task) -> Epoch:
        return translated_epoch(task.train, memory.source, memory.known)

    def grads(
        memory: TranslationMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        def first_gradient() -> tuple[PyTree, PyTree, Float[Array, ""]]:
            gradient, info = plain.grads((), learner, batch, task, key)
            return gradient, info.batch_stats, info.loss

        def head_gradient() -> tuple[PyTree, PyTree, Float[Array, ""]]:
            outputs = evaluation_outputs(setup, learner, batch.inputs)
            features = outputs.features + translation(memory, batch)

            def loss(head: PyTree) -> Float[Array, ""]:
                logits = linear_logits(head, features).astype(outputs.logits.dtype)
                now = outputs._replace(logits=logits, features=features)
                losses = setup.objective.loss(now, batch.labels, learner.seen)
                return weighted_mean(losses, batch.weight)

            value, slope = jax.value_and_grad(loss)(learner.params["head"])
            nothing = jax.tree.map(jnp.zeros_like, learner.params)
            return {**nothing, "head": slope}, learner.batch_stats, value

        gradient, batch_stats, value = cond_under_vmap(task.id == 0, first_gradient, head_gradient)
        return gradient, StepInfo(gradient, batch_stats, value, learner.params)

    def after_step(
        memory: TranslationMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TranslationMemory, Learner]:
        # Weight decay moves a parameter whose gradient is 0.
        frozen = jnp.any(memory.known)
        params = jax.tree.map(
            lambda old, new: jnp.where(frozen, old, new), info.aux, learner.params
        )
        return memory, learner._replace(params={**params, "head": learner.params["head"]})

    def end_task(
        memory: TranslationMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TranslationMemory, Learner]:
        def first_task_means() -> ClassMeans:
            return class_means(memory.means, learner, task)

        means = where_under_vmap(task.id == 0, first_task_means, memory.means)
        return memory._replace(means=means), learner

    return plain._replace(
        init=init,
        begin_task=begin_task,
        epoch_data=epoch_data,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
    )


def most_similar(
    means: Float[Array, "c f"], new: Bool[Array, "c"], similarity: Similarity
) -> Int[Array, "c"]:
    """Return for each class the new class whose mean is most similar; 0 without new classes.

    Args:
      means: means of all classes.
      new: classes that are compared with.
      similarity: "cosine" or "euclidean".
    """
    if similarity == "cosine":
        directions = unit_vectors(means, -1)
        near = matrix_product(directions, directions.T)
    else:
        # Squared distances without the part that all candidates share, from a near origin.
        centered = means - jnp.mean(means, axis=0)
        near = 2 * matrix_product(centered, centered.T) - jnp.sum(centered**2, axis=1)
    return jnp.argmax(jnp.where(new, near, -jnp.inf), axis=1).astype(jnp.int32)


def translated_epoch(train: Samples, source: Int[Array, "c"], known: Bool[Array, "c"]) -> Epoch:
    """Return an epoch of a task's samples and, for each known class, of those of its source.

    The label of a translated sample is the class that it stands for. The mask of memory marks it.

    Args:
      train: samples of the task.
      source: class whose samples are translated to each class.
      known: classes of earlier tasks.
    """
    classes, count = known.shape[0], train.mask.shape[0]
    label = jnp.repeat(jnp.arange(classes, dtype=train.labels.dtype), count)
    translated = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (classes, *leaf.shape)).reshape(-1, *leaf.shape[1:]),
        train,
    )
    mask = translated.mask & known[label] & (translated.labels[:, 0] == source[label])
    labels = jnp.broadcast_to(label[:, None], translated.labels.shape)
    translated = Samples(translated.index, labels, mask)
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), train, translated)
    return Epoch(both, jnp.concatenate([jnp.zeros_like(train.mask), jnp.ones_like(mask)]))


def translation(memory: TranslationMemory, batch: Batch) -> Float[Array, "b f"]:
    """Return μ_k − μ_n(k) of each translated sample, and 0 of the task's."""
    label = batch.labels[:, 0]
    change = memory.means.offset[label] - memory.means.offset[memory.source[label]]
    return jnp.where(batch.memory_mask[:, None], change, 0)


METHODS = (
    Method(
        "FeTrIL",
        feature_translation,
        Publication("Petit et al.", 2023, "WACV", ("statistics",)),
        "feature translation (FeTrIL): samples of new classes, moved to the means of earlier ones",
        requirements=(*OTHER_WEIGHTS, "disjoint classes", "named head"),
        select="last",
        authors={"similarity": "cosine in the paper, euclidean in the code"},
    ),
)
