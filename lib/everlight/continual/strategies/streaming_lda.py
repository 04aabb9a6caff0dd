"""Streaming linear discriminant analysis over features (Hayes and Kanan 2020, CVPRW).

Samples arrive one by one. The t-th sample z, of class k with current mean μ_k, gives

    Σ ← ((t − 1) Σ + Δ) / t,   Δ = (t − 1) / t · (z − μ_k)(z − μ_k)ᵀ,   then z joins μ_k
    score_k(z) = w_kᵀ z − ½ w_kᵀ μ_k,   w_k = Λ μ_k,   Λ = ((1 − ε) Σ + ε I)⁻¹,   ε = 1e-4

The result of a batch is that of its samples one by one. The mean of a class without samples is 0,
so its first sample z adds its own square to Σ, as in the authors' code. Σ therefore depends on the
position of 0: features far from 0 add large squares in their direction, which Λ then suppresses.

Features far from 0 keep their precision. Means and deviations are stored relative to one origin o,
and the first samples enter Λ as a rank-one correction. Scores are the paper's minus a term that all
classes share: z − o and μ_k − o replace z and μ_k.

The paper begins with a base: means of the first classes, and Σ by the oracle approximating
shrinkage (OAS) of Chen et al. 2010 (IEEE Trans. Signal Process.). `base_task` takes the first task
as the base.

The condition number of the inverted matrix is at most λ/ε + 1, λ being the greatest eigenvalue of
Σ. It reaches this bound with linearly dependent features. The float32 error in Σ exceeds ε where λ
exceeds about 1e3, so features should have a standard deviation of about 1.

Equal to the official code (tyler-hayes/Deep_SLDA) in the score differences between classes that
have samples, at every distance of the features from 0; differs in the score −∞ of the other classes
(in the official code 0), and in `ridge_solve` where Σ is singular in float32 (in the official code
a pseudoinverse).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Batch, Learner, Proportion, Setup, Strategy, Task
from everlight.checks import checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_first_labels,
    class_deviations,
    mask_empty_classes,
    no_means,
)
from everlight.continual.strategies.parts.covariances import oas_covariance, shrunk_solve
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width
from everlight.errors import Argument, ArgumentError
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product


class FirstSamples(NamedTuple):
    """Sums over the first sample z of each class, whose square has the weight (t − 1) / t."""

    weight: Float[Array, ""]
    """Sum of the weights."""
    total: Float[Array, "f"]
    """Weighted sum of z − o, o being the origin of the means."""


class Scatter(NamedTuple):
    """Scatter matrix t Σ, split so that features far from 0 keep their precision."""

    central: Float[Array, "f f"]
    """Scatter in which z − o replaces each first sample z."""
    first: FirstSamples
    count: Int[Array, ""]
    """Number of samples in the scatter, t."""


class Discriminant(NamedTuple):
    """Memory of streaming LDA."""

    means: ClassMeans
    scatter: Scatter
    in_base: Bool[Array, ""]
    """True if the current task is the base, whose samples are already counted."""
    kernel: Float[Array, "f c"]
    """Weights of z − o at the last evaluation, Λ (μ_k − o)."""
    bias: Float[Array, "c"]
    """Bias of each class at the last evaluation, −½ (μ_k − o)ᵀ Λ (μ_k − o)."""


@checked
def streaming_lda(
    setup: Setup,
    shrinkage: Proportion = 1e-4,
    base_task: bool = False,
    update_covariance: bool = True,
) -> Strategy:
    """Return streaming linear discriminant analysis (LDA), whose memory is `Discriminant`.

    The first label of a sample is its class. The usual network is `caffe_nets.LinearClassifier`
    over stored features. A class without samples has score −∞.

    Args:
      setup: network, objective, optimizer and data access.
      shrinkage: weight ε of the identity matrix in the regularized covariance.
      base_task: estimate means and covariance of the first task at once, from its training samples
        without augmentation; this needs boundaries between tasks.
      update_covariance: update the covariance by the samples after the base.

    Raises:
      ValueError: neither a base nor later samples estimate the covariance.
    """
    if not (base_task or update_covariance):
        raise ArgumentError(
            Argument("update_covariance", False),
            " leaves no covariance",
            remedy=("give ", Argument("base_task", True)),
        )

    def init(key: PRNGKeyArray, learner: Learner) -> Discriminant:
        classes, (width, dtype) = learner.seen.shape[0], feature_width(setup, learner)
        return Discriminant(
            no_means(classes, width, dtype),
            no_scatter(width, dtype),
            jnp.array(False),
            jnp.zeros((width, classes), dtype),
            jnp.zeros(classes, dtype),
        )

    def begin_task(
        memory: Discriminant, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Discriminant, Learner]:
        first = ~jnp.any(memory.means.count > 0)

        def task_statistics() -> tuple[ClassMeans, Scatter]:
            features = sample_features(setup, learner, task.train)
            return base_statistics(memory.means, features, task.train.labels[:, 0], task.train.mask)

        means, scatter = where_under_vmap(first, task_statistics, (memory.means, memory.scatter))
        return memory._replace(means=means, scatter=scatter, in_base=first), learner

    def accumulate(
        memory: Discriminant, features: Float[Array, "b f"], batch: Batch
    ) -> Discriminant:
        batch = batch._replace(weight=jnp.where(memory.in_base, 0, batch.weight))
        means, scatter = add_one_by_one(memory.means, memory.scatter, features, batch)
        scatter = scatter if update_covariance else memory.scatter
        return memory._replace(means=means, scatter=scatter)

    def before_evaluation(
        memory: Discriminant, learner: Learner, key: PRNGKeyArray
    ) -> tuple[Discriminant, Learner]:
        kernel = discriminant_kernel(memory.means, memory.scatter, shrinkage)
        bias = -jnp.sum(kernel * memory.means.offset.T, axis=0) / 2
        return memory._replace(kernel=kernel, bias=bias), learner

    def scores(memory: Discriminant, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        centered = features - memory.means.origin
        return mask_empty_classes(
            memory.means.count, matrix_product(centered, memory.kernel) + memory.bias
        )

    return feature_strategy(setup, init, accumulate, scores)._replace(
        begin_task=begin_task if base_task else None, before_evaluation=before_evaluation
    )


def no_scatter(width: int, dtype: DTypeLike = jnp.float32) -> Scatter:
    """Return the scatter before any sample."""
    first = FirstSamples(jnp.zeros((), dtype), jnp.zeros(width, dtype))
    return Scatter(jnp.zeros((width, width), dtype), first, jnp.int32(0))


def discriminant_kernel(
    means: ClassMeans, scatter: Scatter, shrinkage: Proportion
) -> Float[Array, "f c"]:
    """Return Λ (μ_k − o) for every class, 0 for those without samples.

    For the first samples, W is the sum of weights, s the weighted sum of z − o and m = o + s / W.
    Then t Σ = (C − s sᵀ / W) + W m mᵀ, C being `central`. The last term is one Sherman-Morrison
    update.
    """
    count = jnp.maximum(scatter.count, 1)
    weight, total = scatter.first
    mean = total / jnp.where(weight > 0, weight, 1)
    central = (scatter.central - jnp.outer(total, mean)) / count
    far = means.origin + mean
    square, direction = jnp.sum(far**2), unit_vectors(far, 0)
    right = jnp.concatenate([means.offset.T, direction[:, None]], axis=1)
    solved = shrunk_solve(central, right, shrinkage)
    plain, pull = solved[:, :-1], solved[:, -1]
    share = (1 - shrinkage) * weight * square / count
    along = (
        matrix_product(direction[None], plain)[0] * share / (1 + share * jnp.sum(direction * pull))
    )
    return plain - jnp.outer(pull, along)


def base_statistics(
    means: ClassMeans,
    features: Float[Array, "n f"],
    labels: Int[Array, "n"],
    mask: Bool[Array, "n"],
) -> tuple[ClassMeans, Scatter]:
    """Return class means and the scatter n Σ of base samples, Σ being the OAS estimate.

    Args:
      means: the means before any sample (`no_means`).
      features: the samples' features, finite.
      labels: class of each sample.
      mask: True for samples that count.
    """
    means = add_first_labels(means, features, labels, mask)
    away = features - means.origin - means.offset[labels]
    away = jnp.where(mask[:, None], away, 0)
    count = jnp.sum(mask).astype(jnp.int32)
    empirical = matrix_product(away.T, away) / jnp.maximum(count, 1)
    start = no_scatter(features.shape[1], features.dtype)
    return means, start._replace(central=count * oas_covariance(empirical, count), count=count)


def add_one_by_one(
    means: ClassMeans, scatter: Scatter, features: Float[Array, "b f"], batch: Batch
) -> tuple[ClassMeans, Scatter]:
    """Return means and scatter after adding the batch's samples in their order.

    Args:
      means: the means so far.
      scatter: the scatter so far.
      features: the batch's features; rows of weight 0 are arbitrary.
      batch: the batch; its first labels are the classes.
    """
    mask, label = batch.weight > 0, batch.labels[:, 0]
    away, known = class_deviations(means, features, batch)
    before = scatter.count + jnp.cumsum(mask) - mask
    weight = jnp.where(mask, before / (before + 1), 0).astype(away.dtype)
    weighted = away * jnp.sqrt(weight)[:, None]
    first = jnp.where(known == 0, weight, 0)
    return add_first_labels(means, features, label, mask), Scatter(
        scatter.central + matrix_product(weighted.T, weighted),
        FirstSamples(
            scatter.first.weight + jnp.sum(first),
            scatter.first.total + matrix_product(first[None], away)[0],
        ),
        (scatter.count + jnp.sum(mask)).astype(jnp.int32),
    )


METHODS = (
    Method(
        "streaming LDA",
        streaming_lda,
        Publication("Hayes and Kanan", 2020, "CVPRW", ("statistics",)),
        "streaming linear discriminant analysis (SLDA)",
        tunes="shrinkage",
        hyperparameters=(1e-4, 1e-3, 1e-2, 1e-1, 0.5),
        trains="head",
        requirements=OTHER_WEIGHTS,
        published=1e-4,
        authors={"shrinkage": 1e-4, "features": "a pretrained network's"},
    ),
)
