"""Streaming linear discriminant analysis over features (Hayes and Kanan 2020, CVPRW).

One sample after another, the t-th after t − 1 others, z of class k with mean μ_k so far:

    Σ ← ((t − 1) Σ + Δ) / t,   Δ = (t − 1) / t · (z − μ_k)(z − μ_k)ᵀ,   then z joins μ_k
    score_k(z) = w_kᵀ z − ½ w_kᵀ μ_k,   w_k = Λ μ_k,   Λ = ((1 − ε) Σ + ε I)⁻¹,   ε = 1e-4

A batch is added as its samples one after another would be. The mean of a class without samples is
0, so its first sample z adds its own square to Σ, as in the authors' code. Σ therefore depends on
where 0 lies: the squares of features far from 0 leave out the direction towards them.

Features far from 0 keep their digits. Means and deviations are held relative to one origin o, and
the first samples enter Λ as a correction of rank one. Scores are the paper's minus a term that all
classes share: with z − o and μ_k − o in place of z and μ_k.

The paper begins with a base: means of the first classes, and Σ by the shrinkage of Chen et al.
2010 (IEEE Trans. Signal Process.), OAS. `base_task` takes the first task as the base.

The condition number of what is inverted is at most λ/ε + 1, λ the greatest eigenvalue of Σ. With
features that depend on each other it reaches that, and float32's error in Σ passes ε where λ passes
some 1e3: features should have a deviation of about 1.

Equal to the official code (tyler-hayes/Deep_SLDA) at every distance of the features from 0 in the
differences between classes that have samples; differs in the score −∞ of the others (there 0), and
in `ridge_solve` where Σ is singular to float32 (there a pseudoinverse).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.checks import checked
from everlight.continual.base import Batch, Coefficient, Learner, Setup, Strategy, Task
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.strategies.frozen import (
    feature_width,
    over_features,
    product,
    ridge_solve,
    where_needed,
)
from everlight.continual.strategies.nearest_mean import (
    ClassMeans,
    add_to_means,
    no_means,
    of_met,
    origin_after,
)
from everlight.models.heads import unit


class FirstSamples(NamedTuple):
    """The first samples z of their classes, each with the weight (t − 1) / t of its square."""

    weight: Float[Array, ""]
    """The sum of the weights."""
    total: Float[Array, "f"]
    """The weighted sum of z − o, o being the origin of the means."""


class Scatter(NamedTuple):
    """The scatter t Σ, split so that features far from 0 keep their digits."""

    central: Float[Array, "f f"]
    """The scatter with z − o for each first sample z in place of z."""
    first: FirstSamples
    count: Int[Array, ""]
    """Samples in the scatter: t."""


class Discriminant(NamedTuple):
    """Streaming LDA's memory."""

    means: ClassMeans
    scatter: Scatter
    in_base: Bool[Array, ""]
    """Whether the present task is the base, whose samples count already."""
    kernel: Float[Array, "f c"]
    """Λ (μ_k − o) at the last evaluation: the weights of z − o."""
    bias: Float[Array, "c"]
    """Each class's −½ (μ_k − o)ᵀ Λ (μ_k − o) at the last evaluation."""


@checked
def streaming_lda(
    setup: Setup,
    shrinkage: Coefficient = 1e-4,
    base_task: bool = False,
    update_covariance: bool = True,
) -> Strategy:
    """Streaming LDA, its memory being `Discriminant`; the first label of a sample is its class.

    The usual network is `caffe_nets.LinearClassifier` over stored features. A class without samples
    has score −∞.

    Args:
      setup: what is static.
      shrinkage: ε above.
      base_task: whether the first task gives means and covariance at once, from its training
        samples without augmentation; this needs boundaries between tasks.
      update_covariance: whether samples after the base change the covariance.

    Raises:
      ValueError: a covariance that no sample gives, neither in a base nor after it.
    """
    if not (base_task or update_covariance):
        raise ValueError("update_covariance=False leaves no covariance; give base_task=True")

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

        def of_task() -> tuple[ClassMeans, Scatter]:
            features = sample_features(setup, learner, task.train)
            return base_of(memory.means, features, task.train.labels[:, 0], task.train.mask)

        means, scatter = where_needed(first, of_task, (memory.means, memory.scatter))
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
        centred = features - memory.means.origin
        return of_met(memory.means.count, product(centred, memory.kernel) + memory.bias)

    return over_features(setup, init, accumulate, scores)._replace(
        begin_task=begin_task if base_task else None, before_evaluation=before_evaluation
    )


def no_scatter(width: int, dtype: DTypeLike = jnp.float32) -> Scatter:
    """Return the scatter before any sample."""
    first = FirstSamples(jnp.zeros((), dtype), jnp.zeros(width, dtype))
    return Scatter(jnp.zeros((width, width), dtype), first, jnp.int32(0))


def discriminant_kernel(
    means: ClassMeans, scatter: Scatter, shrinkage: Coefficient
) -> Float[Array, "f c"]:
    """Return Λ (μ_k − o) for every class, 0 for those without samples.

    With weights of sum W, a sum s of the weighted z − o and m = o + s / W of the first samples,
    t Σ = (C − s sᵀ / W) + W m mᵀ, C being `central`; the last term is one step of Sherman and
    Morrison's formula.
    """
    count = jnp.maximum(scatter.count, 1)
    weight, total = scatter.first
    mean = total / jnp.where(weight > 0, weight, 1)
    central = (scatter.central - jnp.outer(total, mean)) / count
    far = means.origin + mean
    square, direction = jnp.sum(far**2), unit(far, 0)
    right = jnp.concatenate([means.offset.T, direction[:, None]], axis=1)
    solved = shrunk_solve(central, right, shrinkage)
    plain, pull = solved[:, :-1], solved[:, -1]
    share = (1 - shrinkage) * weight * square / count
    along = product(direction[None], plain)[0] * share / (1 + share * jnp.sum(direction * pull))
    return plain - jnp.outer(pull, along)


def shrunk_solve(
    covariance: Float[Array, "f f"], right: Float[Array, "f c"], shrinkage: Coefficient
) -> Float[Array, "f c"]:
    """Return ((1 − ε) Σ + ε I)⁻¹ B; it is finite for dependent features.

    Args:
      covariance: Σ.
      right: B.
      shrinkage: ε.
    """
    return ridge_solve((1 - shrinkage) * covariance, right, shrinkage)


def base_of(
    means: ClassMeans,
    features: Float[Array, "n f"],
    labels: Int[Array, "n"],
    mask: Bool[Array, "n"],
) -> tuple[ClassMeans, Scatter]:
    """Return class means and the scatter n Σ of base samples, Σ being the OAS estimate.

    Args:
      means: those before any sample.
      features: the samples' features, finite.
      labels: their classes.
      mask: which of them count.
    """
    member = mask[:, None] & (labels[:, None] == jnp.arange(means.count.shape[0]))
    means = add_to_means(means, jnp.where(mask[:, None], features, 0), member)
    away = features - means.origin - means.offset[labels]
    away = jnp.where(mask[:, None], away, 0)
    count = jnp.sum(mask).astype(jnp.int32)
    empirical = product(away.T, away) / jnp.maximum(count, 1)
    start = no_scatter(features.shape[1], features.dtype)
    return means, start._replace(central=count * oas_covariance(empirical, count), count=count)


def oas_covariance(empirical: Float[Array, "f f"], count: Int[Array, ""]) -> Float[Array, "f f"]:
    """Return the oracle approximating shrinkage (OAS) of a covariance, as scikit-learn's `OAS`.

    Args:
      empirical: the covariance of the samples, divided by their number.
      count: n, their number.
    """
    width = empirical.shape[0]
    level = jnp.trace(empirical) / width
    spread = jnp.mean(empirical**2)
    noise = (count + 1) * (spread - level**2 / width)
    share = jnp.where(noise > 0, (spread + level**2) / jnp.where(noise > 0, noise, 1), 1)
    share = jnp.minimum(share, 1)
    return (1 - share) * empirical + share * level * jnp.eye(width, dtype=empirical.dtype)


def add_one_by_one(
    means: ClassMeans, scatter: Scatter, features: Float[Array, "b f"], batch: Batch
) -> tuple[ClassMeans, Scatter]:
    """Return means and scatter after the batch's samples in their order.

    Args:
      means: the means so far.
      scatter: the scatter so far.
      features: the batch's features; rows of weight 0 may be anything.
      batch: the batch, whose first labels are the classes.
    """
    here, label = batch.weight > 0, batch.labels[:, 0]
    rows = jnp.where(here[:, None], features - origin_after(means, features, here), 0)
    away = jnp.where(here[:, None], rows - means.offset[label], 0)
    member = here[:, None] & (label[:, None] == jnp.arange(means.count.shape[0]))
    # The mean just before a sample is the batch's earlier samples of its class beyond the old one.
    earlier = jnp.tril(here & (label[:, None] == label), -1)
    known = means.count[label] + jnp.sum(earlier, axis=1)
    moved = product(earlier.astype(away.dtype), away) / jnp.maximum(known, 1)[:, None]
    before = scatter.count + jnp.cumsum(here) - here
    weight = jnp.where(here, before / (before + 1), 0).astype(away.dtype)
    ahead = (away - moved) * jnp.sqrt(weight)[:, None]
    first = jnp.where(known == 0, weight, 0)
    return add_to_means(means, jnp.where(here[:, None], features, 0), member), Scatter(
        scatter.central + product(ahead.T, ahead),
        FirstSamples(
            scatter.first.weight + jnp.sum(first),
            scatter.first.total + product(first[None], rows)[0],
        ),
        (scatter.count + jnp.sum(here)).astype(jnp.int32),
    )
