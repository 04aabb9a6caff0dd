"""Bias correction (Wu et al. 2019, CVPR), for many labels a sample as IIRC uses it.

Before a task some samples of every seen class leave training. Stage 1 trains on the rest,

    L(θ) = (1 − w) · BCE(labels, σ(ẑ)) + w · BCE(σ(ẑ_old / T), σ(ẑ / T)),   w = old / (old + new),

the second term over the classes known before, from the network as it was. Stage 2 freezes it and
fits, on the samples that left, one scale and one shift for the new classes, ẑ = α z + β, by the
same BCE. Corrections of earlier tasks stay in force for their classes. T = 2 in the paper; a tenth
of 20 exemplars a class leaves training, and as many of every new class.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.continual.base import (
    Batch,
    Epoch,
    Learner,
    Outputs,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.continual.evaluation import predict_samples
from everlight.continual.icarl import herd_task
from everlight.continual.lwf import Teacher, freeze_teacher, no_teacher
from everlight.continual.memory import (
    add_random_exemplars,
    empty_buffer,
    merge_buffer,
)
from everlight.continual.multilabel_objective import binary_cross_entropy, multi_hot
from everlight.continual.naive import batch_outputs, naive, weighted_mean


class Correction(NamedTuple):
    """Of each class's logit: scale · z + shift."""

    scale: Float[Array, "c"]
    shift: Float[Array, "c"]

    def __call__(self, logits: Float[Array, "*b c"]) -> Float[Array, "*b c"]:
        """The corrected logits."""
        return self.scale * logits + self.shift


class BiasMemory(NamedTuple):
    """BiC's memory."""

    buffer: Samples
    held_out: Samples
    """The samples that left training for stage 2, as many slots for every class."""
    teacher: Teacher
    correction: Correction


def bic(
    setup: Setup,
    per_class: int = 20,
    labels: int = 1,
    temperature: float = 2.0,
    ridge: float = 1e-3,
) -> Strategy:
    """BiC.

    Args:
      setup: what is static; the losses above stand in for its objective's.
      per_class: exemplars of every class; a tenth, at least one, leaves training.
      labels: labels per sample in the sequence.
      temperature: T above.
      ridge: pulls α to 1 and β to 0, for classes that the samples separate.
    """
    left = max(1, per_class // 10)
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> BiasMemory:
        classes = learner.seen.shape[0]
        buffer, held_out = (empty_buffer(count * classes, labels) for count in (per_class, left))
        return BiasMemory(
            buffer, held_out, no_teacher(learner), Correction(jnp.ones(classes), jnp.zeros(classes))
        )

    def begin_task(
        memory: BiasMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[BiasMemory, Learner]:
        teacher = freeze_teacher(learner, task)
        every = merge_buffer(task.train, memory.buffer).samples
        # Nothing is corrected before there is something old.
        needed = learner.seen & jnp.any(teacher.known)
        held_out = add_random_exemplars(memory.held_out, every, learner.seen, key)
        held_out = held_out._replace(mask=held_out.mask & jnp.repeat(needed, left))
        return memory._replace(teacher=teacher, held_out=held_out), learner

    def epoch_data(memory: BiasMemory, task: Task) -> Epoch:
        epoch = merge_buffer(task.train, memory.buffer)
        stays = epoch.samples.mask & ~_among(epoch.samples, memory.held_out)
        return epoch._replace(samples=epoch.samples._replace(mask=stays))

    def grads(
        memory: BiasMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        teacher, correct = memory.teacher, memory.correction
        old_share = jnp.sum(teacher.known) / jnp.maximum(jnp.sum(learner.seen), 1)

        def loss(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            inputs, outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
            old, _ = setup.apply(teacher.params, teacher.batch_stats, inputs, False, None)
            logits, soft = correct(outputs.logits), correct(old.logits) / temperature
            own = multi_hot(batch.labels, learner.seen.shape[0]).astype(logits.dtype)
            new_loss = binary_cross_entropy(logits, own, learner.seen)
            kept = binary_cross_entropy(logits / temperature, jax.nn.sigmoid(soft), teacher.known)
            losses = (1 - old_share) * new_loss + old_share * kept
            return weighted_mean(losses, batch.weight), batch_stats

        (value, batch_stats), gradient = jax.value_and_grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    def end_task(
        memory: BiasMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[BiasMemory, Learner]:
        logits = predict_samples(setup, plain, (), learner, memory.held_out, 256)
        fitted = fit_correction(logits, memory.held_out, task.classes, ridge)
        correction = jax.tree.map(
            lambda new, old: jnp.where(task.classes, new, old), fitted, memory.correction
        )
        buffer = herd_task(setup, memory.buffer, learner, task)
        return memory._replace(buffer=buffer, correction=correction), learner

    def predict(
        memory: BiasMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs, _ = setup.apply(learner.params, learner.batch_stats, inputs, False, None)
        corrected = Outputs(memory.correction(outputs.logits), outputs.features)
        return setup.objective.scores(corrected)

    return plain._replace(
        init=init,
        begin_task=begin_task,
        epoch_data=epoch_data,
        grads=grads,
        end_task=end_task,
        predict=predict,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.mask),
    )


def fit_correction(
    logits: Float[Array, "n c"],
    samples: Samples,
    new: Bool[Array, "c"],
    ridge: float,
    steps: int = 30,
) -> Correction:
    """The scale and shift that minimise the samples' BCE over the new classes; 1 and 0 of none.

    The objective is convex in both, and Newton's steps are halved until they descend.

    Args:
      logits: of the samples, uncorrected, `[n, c]`.
      samples: held out.
      new: the classes that share the correction.
      ridge: weight of (α − 1)² + β².
      steps: of Newton's method.
    """
    targets = multi_hot(samples.labels, new.shape[0]).astype(logits.dtype)
    start = jnp.array([1.0, 0.0])

    def objective(pair: Float[Array, "2"]) -> Float[Array, ""]:
        losses = binary_cross_entropy(pair[0] * logits + pair[1], targets, new)
        return weighted_mean(losses, samples.mask.astype(logits.dtype)) + ridge * jnp.sum(
            (pair - start) ** 2
        )

    def newton(pair: Float[Array, "2"], _: None) -> tuple[Float[Array, "2"], None]:
        direction = jnp.linalg.solve(jax.hessian(objective)(pair), jax.grad(objective)(pair))
        tried = pair - direction * 0.5 ** jnp.arange(12)[:, None]
        values = jax.vmap(objective)(tried)
        best = jnp.argmin(values)
        return jnp.where(values[best] < objective(pair), tried[best], pair), None

    (scale, shift), _ = jax.lax.scan(newton, start, None, length=steps)
    ones = jnp.ones(new.shape)
    return Correction(scale * ones, shift * ones)


def _among(samples: Samples, others: Samples) -> Bool[Array, "n"]:
    """Whether a sample, with all its labels, is one of the others."""
    same_labels = jnp.all(samples.labels[:, None] == others.labels, axis=-1)
    same = (samples.index[:, None] == others.index) & same_labels
    return jnp.any(same & others.mask, axis=1)
