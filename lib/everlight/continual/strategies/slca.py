"""Slow learner with classifier alignment (SLCA; Zhang et al. 2023, ICCV, arXiv 2303.05118).

    ΔW ← s ΔW below the head; in the head, the weights of the task's classes alone learn
    μ_k, Σ_k mean and covariance of the features of class k after its task
    after a task   ẑ_k ~ N(d_k μ_k, Σ_k + ε I),   l = Wᵀ ẑ + b
                   minimize CE(labels, l / (τ n(l))) by W and b of the seen classes
    n(l) = mean over tasks i of |l_i|,   d_k = 0.9 + 0.1 (i_k + 1) / t

The loss of a task runs over its own classes; s scales the steps of a pretrained network, which then
forgets little. ε is for features of deviation about 1: in float32 it is lost beside variances of
2,048 or more. l_i are the logits of task i's classes, i_k is the task of class k, counted from 0,
and t the number of tasks so far. τ = 0.1 (0.05 on Cars), s = 0.01 and ε = 1e-4 in the authors'
code, which also has d_k. The aligned head predicts. The next task continues from the head before
alignment. Memory holds a covariance matrix per class, and no samples.

Equal to the official code (GengDavid/SLCA, `models/slca.py`) at the steps of a task, the statistics
of classes, the loss of alignment, its order of steps, and the aligned head; differs in:

- The head has all outputs from the start, with the setup's initial values. In the official code a
  task adds its own, drawn normally with deviation 0.02.
- A class with one sample has covariance ε I. In the official code it is NaN.
- The optimizer of alignment is the setup's. In the official code it is SGD with momentum, as in
  training.
- d_k has the task of the class. In the official code it has the class's number divided by the size
  of the last task, which is the same for tasks of equal size.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Coefficient,
    Epoch,
    Learner,
    Outputs,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import NonNegativeInt, PositiveFloat, PositiveInt, checked
from everlight.continual.engine.epochs import shuffle, take_batch
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.engine.keys import epoch_keys, step_key
from everlight.continual.engine.updates import train_step
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive, naive_on_task_classes
from everlight.continual.strategies.parts.class_statistics import add_squares
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.linear_head import linear_head, linear_logits
from everlight.continual.strategies.parts.passes import evaluation_outputs
from everlight.models.heads import head_layer
from everlight.precision import full_precision, matrix_product

REGULAR = 1e-4
"""Multiple ε of the identity matrix that is added to every covariance."""
MIN_NORM = 1e-7
"""Value that is added to the length of a task's logits."""


class ClassGaussians(NamedTuple):
    """Memory of SLCA."""

    mean: Float[Array, "c f"]
    """Mean of each class's features after its task."""
    covariance: Float[Array, "c f f"]
    """Unbiased covariance of each class's features, plus ε I."""
    class_task: Int[Array, "c"]
    """Task of each class, counted from 0."""
    learning: Bool[Array, "c"]
    """Classes of the current task; none after it."""
    head: PyTree
    """Aligned head, which predicts between tasks."""


@checked
def slca(
    setup: Setup,
    backbone_learning_rate_factor: Coefficient = 0.01,
    epochs: NonNegativeInt = 5,
    samples_per_class: PositiveInt = 256,
    temperature: PositiveFloat = 0.1,
) -> Strategy:
    """Return the slow learner with classifier alignment (SLCA), whose memory is `ClassGaussians`.

    The first label of a sample is its class. Tasks must have disjoint classes. The linear head is
    `params["head"]`. While a task is learned, the head before alignment predicts.

    Args:
      setup: network, objective, optimizer and data access.
      backbone_learning_rate_factor: factor s on the learning rate of all layers below the head.
      epochs: epochs of alignment, after every task but the first.
      samples_per_class: samples drawn per class and epoch of alignment, and samples per step.
      temperature: temperature τ of the normalized logits.

    Raises:
      ValueError: at `init`, no layer is named head, or it is not linear.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> ClassGaussians:
        head, (width, dtype) = linear_head(learner.params, "SLCA"), feature_width(setup, learner)
        classes = learner.seen.shape[0]
        return ClassGaussians(
            jnp.zeros((classes, width), dtype),
            jnp.zeros((classes, width, width), dtype),
            jnp.zeros(classes, jnp.int32),
            jnp.ones(classes, bool),
            head,
        )

    def begin_task(
        memory: ClassGaussians, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ClassGaussians, Learner]:
        class_task = jnp.where(task.classes, task.id, memory.class_task).astype(jnp.int32)
        return memory._replace(learning=task.classes, class_task=class_task), learner

    def after_step(
        memory: ClassGaussians, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[ClassGaussians, Learner]:
        change = jax.tree.map(lambda leaf: backbone_learning_rate_factor * leaf, info.update)
        # Momentum and weight decay would move weights of other classes, which have no gradient.
        change["head"] = jax.tree.map(
            lambda leaf: jnp.where(memory.learning, leaf, 0), info.update["head"]
        )
        return memory, learner._replace(params=jax.tree.map(jnp.add, info.aux, change))

    def end_task(
        memory: ClassGaussians, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ClassGaussians, Learner]:
        features = sample_features(setup, learner, task.train)
        label, mask = task.train.labels[:, 0], task.train.mask
        mean, covariance = class_gaussians(features, label, mask, memory.mean.shape[0])
        new = memory._replace(
            mean=jnp.where(task.classes[:, None], mean, memory.mean),
            covariance=jnp.where(task.classes[:, None, None], covariance, memory.covariance),
            learning=jnp.zeros_like(task.classes),
        )
        later = jnp.any(learner.seen & ~task.classes)
        aligned = align(
            setup,
            new,
            learner,
            task,
            key,
            epochs=jnp.where(later, epochs, 0),
            samples_per_class=samples_per_class,
            temperature=temperature,
        )
        return new._replace(head=aligned), learner

    def predict(
        memory: ClassGaussians, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        aligned = outputs._replace(logits=linear_logits(memory.head, outputs.features))
        return jnp.where(
            jnp.any(memory.learning),
            setup.objective.scores(outputs),
            setup.objective.scores(aligned),
        )

    return naive_on_task_classes(setup)._replace(
        init=init, begin_task=begin_task, after_step=after_step, end_task=end_task, predict=predict
    )


def align(
    setup: Setup,
    memory: ClassGaussians,
    learner: Learner,
    task: Task,
    key: PRNGKeyArray,
    *,
    epochs: Int[Array, ""],
    samples_per_class: int,
    temperature: float,
) -> PyTree:
    """Return the head after training on samples of the Gaussians of all seen classes.

    Args:
      setup: network, objective, optimizer and data access.
      memory: Gaussians of the classes.
      learner: learner at the end of the task.
      task: task that ends.
      key: random key of the samples and their order.
      epochs: number of epochs.
      samples_per_class: samples drawn per class and epoch, and samples per step.
      temperature: temperature τ of the normalized logits.
    """
    classes = memory.class_task.shape[0]
    label = jnp.repeat(jnp.arange(classes), samples_per_class)
    drawn = Samples(jnp.arange(classes * samples_per_class), label[:, None], learner.seen[label])
    of_all = Epoch(drawn, jnp.zeros_like(drawn.mask))
    roots = jnp.linalg.cholesky(memory.covariance)
    means = _mean_factors(memory, task)[:, None] * memory.mean

    def normalized(logits: Float[Array, "b c"]) -> Float[Array, "b c"]:
        return normalized_logits(logits, memory.class_task, learner.seen) / temperature

    def one_epoch(number: Int[Array, ""], learner: Learner) -> Learner:
        keys = epoch_keys(key, number)
        features = gaussian_samples(means, roots, samples_per_class, keys.evaluations)
        head_setup = setup_of_head(setup, features, normalized)
        epoch = shuffle(of_all, keys.order)
        rate = 0.5 * (1 + jnp.cos(jnp.pi * number / jnp.maximum(epochs, 1)))
        schedule = learner.schedule._replace(factor=rate.astype(jnp.float32))

        def one_step(step: Int[Array, ""], learner: Learner) -> Learner:
            batch = take_batch(epoch, step, samples_per_class)
            plain, key_update = naive(head_setup), step_key(keys.steps, step)
            return train_step(head_setup, plain, (), learner, batch, task, key_update)[1]

        learner = learner._replace(schedule=schedule)
        return jax.lax.fori_loop(0, -(-epoch.count // samples_per_class), one_step, learner)

    head = head_layer(learner.params)
    head_learner = learner._replace(params={"head": head})
    head_learner = head_learner._replace(opt_state=setup.optimizer.init(head_learner.params))
    trained = jax.lax.fori_loop(0, epochs, one_epoch, head_learner).params["head"]
    return jax.tree.map(lambda new, old: jnp.where(learner.seen, new, old), trained, head)


def setup_of_head(
    setup: Setup,
    features: Float[Array, "n f"],
    normalized: Callable[[Float[Array, "b c"]], Float[Array, "b c"]],
) -> Setup:
    """Return the setup whose network is the head alone, on features and with normalized logits."""

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        features: Float[Array, "b f"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        return Outputs(normalized(linear_logits(params["head"], features)), features), batch_stats

    return setup._replace(
        apply=apply, gather=lambda index, key: features[index], trainable=None, measure=None
    )


def class_gaussians(
    features: Float[Array, "n f"], label: Int[Array, "n"], mask: Bool[Array, "n"], classes: int
) -> tuple[Float[Array, "c f"], Float[Array, "c f f"]]:
    """Return mean and unbiased covariance plus ε I of each class; 0 and ε I without samples.

    Args:
      features: features of the samples.
      label: class of each sample.
      mask: True for samples that count.
      classes: number of classes.
    """
    member = mask[:, None] & (label[:, None] == jnp.arange(classes))
    count = jnp.sum(member, axis=0)
    masked = jnp.where(mask[:, None], features, 0)
    total = matrix_product(member.T.astype(features.dtype), masked)
    mean = total / jnp.maximum(count, 1)[:, None]
    away = jnp.where(mask[:, None], masked - mean[label], 0)
    width = features.shape[1]
    scatter = add_squares(jnp.zeros((classes, width, width), features.dtype), away, member)
    covariance = scatter / jnp.maximum(count - 1, 1)[:, None, None]
    return mean, covariance + REGULAR * jnp.eye(width, dtype=features.dtype)


@full_precision
def gaussian_samples(
    means: Float[Array, "c f"], roots: Float[Array, "c f f"], count: int, key: PRNGKeyArray
) -> Float[Array, "n f"]:
    """Return samples of each class in turn, drawn from normal distributions.

    Args:
      means: mean of each class.
      roots: Cholesky factor of each class's covariance.
      count: samples per class.
      key: random key.
    """
    classes, width = means.shape
    noise = jax.random.normal(key, (classes, count, width), means.dtype)
    drawn = means[:, None] + jnp.einsum("cnf,cgf->cng", noise, roots)
    return drawn.reshape(-1, width)


def normalized_logits(
    logits: Float[Array, "b c"], class_task: Int[Array, "c"], seen: Bool[Array, "c"]
) -> Float[Array, "b c"]:
    """Return logits divided by the mean length of each task's logits.

    Args:
      logits: logits of all classes.
      class_task: task of each class.
      seen: classes whose logits have a length; a task without any does not count.
    """
    member = (class_task[:, None] == jnp.arange(seen.shape[0])) & seen[:, None]
    squares = matrix_product(logits**2, member.astype(logits.dtype))
    # The gradient of a root at 0 is infinite.
    nonzero = squares > 0
    lengths = jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, squares, 1)), 0) + MIN_NORM
    tasks = jnp.any(member, axis=0)
    mean = jnp.sum(lengths, axis=1, where=tasks) / jnp.maximum(jnp.sum(tasks), 1)
    return logits / mean[:, None]


def _mean_factors(memory: ClassGaussians, task: Task) -> Float[Array, "c"]:
    """Return the factor d_k of each class's mean."""
    return 0.9 + 0.1 * (memory.class_task + 1) / (task.id + 1)


METHODS = (
    Method(
        "SLCA",
        slca,
        Publication("Zhang et al.", 2023, "ICCV", ("statistics",)),
        "the slow learner with classifier alignment (SLCA)",
        tunes="backbone_learning_rate_factor",
        hyperparameters=(1e-3, 1e-2, 1e-1, 1),
        published=1e-2,
        requirements=(*OTHER_WEIGHTS, "disjoint classes", "named head"),
        authors={
            "backbone_learning_rate_factor": 0.01,
            "epochs": 5,
            "samples_per_class": 256,
            "temperature": 0.1,
            "batch size": 128,
            "epochs per task": 20,
            "network": "pretrained",
        },
    ),
)
