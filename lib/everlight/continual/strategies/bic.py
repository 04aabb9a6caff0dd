"""Bias correction (Wu et al. 2019, CVPR): softmax as published, or many labels a sample in IIRC.

Before a task some samples of every seen class leave training. Stage 1 trains on the rest,

    L(θ) = (1 − w) · CE(labels, π(ẑ)) + w · CE(π(ẑ_old / T), π(ẑ / T)),   w = old / (old + new),

the second term over the classes known before, from the network as it was. Stage 2 freezes it and
fits, on the samples that left, one scale and one shift for the new classes, ẑ = α z + β, by the
same CE. Corrections of earlier tasks stay in force for their classes. T = 2 in the paper; a tenth
of 20 exemplars a class leaves training, and as many of every new class.

With softmax π runs over the seen classes, in the second term over those known before. Abdelsalam et
al. 2021 put the logistic function and binary cross-entropy, a mean over these classes, in its
place. There 1 − w starves the labels of new classes as old ones become many, and since a new class
stands for few of the samples that left, the fit puts hard ones below the threshold of ½; with
`weigh_labels` and `fit` both can be had otherwise.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Count, NotNegative, Positive, checked
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
from everlight.continual.engine.evaluation import predict_samples
from everlight.continual.objectives.many_labels import binary_cross_entropy, multi_hot
from everlight.continual.strategies.icarl import Loss, herd_task
from everlight.continual.strategies.lwf import Teacher, freeze_teacher, no_teacher
from everlight.continual.strategies.memory import (
    add_random_exemplars,
    empty_buffer,
    merge_buffer,
)
from everlight.continual.strategies.naive import batch_outputs, naive, weighted_mean

Fit = Literal["entropy", "even entropy", "goodness"]
"""What stage 2 makes of the samples that left."""


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


@checked
def bic(
    setup: Setup,
    per_class: Count = 20,
    labels: Count = 1,
    temperature: Positive = 2.0,
    ridge: NotNegative = 1e-3,
    loss: Loss = "binary",
    weigh_labels: bool = True,
    fit: Fit = "entropy",
) -> Strategy:
    """BiC.

    Args:
      setup: what is static; the losses above stand in for its objective's.
      per_class: exemplars of every class; a tenth, at least one, leaves training.
      labels: labels per sample in the sequence.
      temperature: T above.
      ridge: pulls α to 1 and β to 0, for classes that the samples separate.
      loss: "softmax" for one label per sample (Wu et al.), "binary" for many (IIRC).
      weigh_labels: whether the labels' loss weighs 1 − w; otherwise 1.
      fit: by what α and β are chosen: the cross-entropy; that with labels that hold weighing as
        much as those that do not ("even entropy"); or, with α = 1, the objective's goodness.

    Raises:
      ValueError: a loss or a fit that there is not, or of one for the other.
    """
    if loss == "softmax" and fit != "entropy":
        raise ValueError(f"fit={fit!r} is for loss='binary'; choose fit='entropy'")
    left = max(1, per_class // 10)
    plain = naive(setup)
    entropy_of_labels = label_softmax if loss == "softmax" else label_entropy
    entropy_of_teacher = soft_softmax if loss == "softmax" else soft_entropy

    def fitted_pair(
        logits: Float[Array, "n c"],
        memory: BiasMemory,
        new: Bool[Array, "c"],
        seen: Bool[Array, "c"],
    ) -> Float[Array, "2"]:
        samples = memory.held_out
        if fit == "goodness":
            goodness = setup.objective.goodness
            return best_threshold(logits, samples, memory.correction, new, seen, goodness)

        def cross_entropy(pair: Float[Array, "2"]) -> Float[Array, ""]:
            corrected = correct_classes(memory.correction, pair, new)(logits)
            if fit == "even entropy":
                return even_entropy(corrected, samples, new)
            # Of binary cross-entropy only the new classes' part depends on the pair.
            among = seen if loss == "softmax" else new
            losses = entropy_of_labels(corrected, samples.labels, among)
            return weighted_mean(losses, samples.mask.astype(logits.dtype))

        return fit_pair(cross_entropy, ridge)

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
        label_share = 1 - old_share if weigh_labels else 1.0

        def total(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
            old, _ = setup.apply(teacher.params, teacher.batch_stats, batch.inputs, False, None)
            logits, soft = correct(outputs.logits), correct(old.logits) / temperature
            own = entropy_of_labels(logits, batch.labels, learner.seen)
            kept = entropy_of_teacher(logits / temperature, soft, teacher.known)
            losses = label_share * own + old_share * kept
            return weighted_mean(losses, batch.weight), batch_stats

        (value, batch_stats), gradient = jax.value_and_grad(total, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    def end_task(
        memory: BiasMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[BiasMemory, Learner]:
        logits = predict_samples(setup, plain, (), learner, memory.held_out, 256)
        fitted = fitted_pair(logits, memory, task.classes, learner.seen)
        correction = correct_classes(memory.correction, fitted, task.classes)
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


def correct_classes(
    correction: Correction, pair: Float[Array, "2"], classes: Bool[Array, "c"]
) -> Correction:
    """The correction with one scale and shift for some classes."""
    return Correction(
        *(jnp.where(classes, one, every) for one, every in zip(pair, correction, strict=True))
    )


def label_entropy(
    logits: Float[Array, "b c"], labels: Int[Array, "b k"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Binary cross-entropy of each sample's labels, a mean over some classes."""
    own = multi_hot(labels, among.shape[0]).astype(logits.dtype)
    return binary_cross_entropy(logits, own, among)


def soft_entropy(
    logits: Float[Array, "b c"], old: Float[Array, "b c"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Binary cross-entropy with the probabilities of other logits, a mean over some classes."""
    return binary_cross_entropy(logits, jax.nn.sigmoid(old), among)


def label_softmax(
    logits: Float[Array, "b c"], labels: Int[Array, "b k"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Cross-entropy of each sample's first label, softmax running over some classes."""
    rows = _log_softmax(logits, among)
    return -jnp.take_along_axis(rows, labels[:, :1], axis=1)[:, 0]


def soft_softmax(
    logits: Float[Array, "b c"], old: Float[Array, "b c"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Cross-entropy with other logits' softmax, both over some classes; 0 over none."""
    soft = jnp.where(among, jnp.exp(_log_softmax(old, among)), 0)
    return -jnp.sum(soft * _log_softmax(logits, among), axis=-1)


def _log_softmax(logits: Float[Array, "b c"], among: Bool[Array, "c"]) -> Float[Array, "b c"]:
    # A finite floor: minus infinity in both branches would make the gradient NaN.
    return jax.nn.log_softmax(jnp.where(among, logits, -1e9))


def even_entropy(
    logits: Float[Array, "n c"], samples: Samples, among: Bool[Array, "c"]
) -> Float[Array, ""]:
    """Binary cross-entropy over some classes, all that hold weighing as much as all that do not."""
    own = multi_hot(samples.labels, among.shape[0])
    losses = optax.sigmoid_binary_cross_entropy(logits, own.astype(logits.dtype))
    counted = samples.mask[:, None] & among
    parts = [
        jnp.sum(losses, where=part) / jnp.maximum(jnp.sum(part), 1)
        for part in (counted & own, counted & ~own)
    ]
    return sum(parts) / 2


def fit_pair(
    loss: Callable[[Float[Array, "2"]], Float[Array, ""]], ridge: float, steps: int = 30
) -> Float[Array, "2"]:
    """The scale and shift that minimise a convex loss of both; Newton's steps, halved to descend.

    Args:
      loss: of `[scale, shift]`.
      ridge: weight of (α − 1)² + β², which alone leaves 1 and 0.
      steps: of Newton's method.
    """
    start = jnp.array([1.0, 0.0])

    def objective(pair: Float[Array, "2"]) -> Float[Array, ""]:
        return loss(pair) + ridge * jnp.sum((pair - start) ** 2)

    def newton(pair: Float[Array, "2"], _: None) -> tuple[Float[Array, "2"], None]:
        direction = jnp.linalg.solve(jax.hessian(objective)(pair), jax.grad(objective)(pair))
        tried = pair - direction * 0.5 ** jnp.arange(12)[:, None]
        values = jax.vmap(objective)(tried)
        best = jnp.argmin(values)
        return jnp.where(values[best] < objective(pair), tried[best], pair), None

    return jax.lax.scan(newton, start, None, length=steps)[0]


def best_threshold(
    logits: Float[Array, "n c"],
    samples: Samples,
    correction: Correction,
    new: Bool[Array, "c"],
    seen: Bool[Array, "c"],
    goodness: Callable[
        [Float[Array, "n c"], Int[Array, "n k"], Bool[Array, "c"]], Float[Array, "n"]
    ],
) -> Float[Array, "2"]:
    """Scale 1 and the shift of the new classes by which the samples' goodness is greatest.

    Where labels are predicted above 0 and a prediction too many never helps, the best threshold
    lies right below the logit of a label that holds: all these are tried, and of equals the one
    that moves least is taken, halfway to the next logit below. [1, 0] where no label holds.

    Args:
      logits: of the samples, uncorrected, `[n, c]`.
      samples: held out.
      correction: of the other classes.
      new: the classes that share the shift.
      seen: the classes that are judged.
      goodness: the objective's.
    """
    counted = samples.mask[:, None] & new
    holds = (multi_hot(samples.labels, new.shape[0]) & counted).ravel()
    values, others = logits.ravel(), jnp.where(counted, logits, -jnp.inf).ravel()
    # As many as there are labels: a slot of the flat logits for each.
    tried = jnp.argsort(~holds, stable=True)[: samples.labels.size]

    def judged(place: Int[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        below = jnp.max(jnp.where(others < values[place], others, -jnp.inf))
        threshold = jnp.where(below > -jnp.inf, (values[place] + below) / 2, values[place] - 1)
        pair = jnp.stack([jnp.ones(()), -threshold])
        good = goodness(correct_classes(correction, pair, new)(logits), samples.labels, seen)
        return weighted_mean(good, samples.mask.astype(logits.dtype)), threshold

    means, thresholds = jax.lax.map(judged, tried)
    means = jnp.where(holds[tried], means, -jnp.inf)
    equal = means >= jnp.max(means) - 1e-6
    least = jnp.min(jnp.where(equal, jnp.abs(thresholds), jnp.inf))
    chosen = jnp.argmax(equal & (jnp.abs(thresholds) == least))
    return jnp.array([1.0, 0.0]).at[1].set(jnp.where(jnp.any(holds), -thresholds[chosen], 0.0))


def _among(samples: Samples, others: Samples) -> Bool[Array, "n"]:
    """Whether a sample, with all its labels, is one of the others."""
    same_labels = jnp.all(samples.labels[:, None] == others.labels, axis=-1)
    same = (samples.index[:, None] == others.index) & same_labels
    return jnp.any(same & others.mask, axis=1)
