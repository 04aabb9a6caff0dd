"""Streaming linear discriminant analysis over features (Hayes and Kanan 2020, CVPRW).

One sample after another, the t-th after t − 1 others, z of class k with mean μ_k so far:

    Σ ← ((t − 1) Σ + Δ) / t,   Δ = (t − 1) / t · (z − μ_k)(z − μ_k)ᵀ,   then z joins μ_k
    score_k(z) = w_kᵀ z − ½ w_kᵀ μ_k,   w_k = Λ μ_k,   Λ = ((1 − ε) Σ + ε I)⁻¹,   ε = 1e-4

The mean of a class without samples is 0, so that its first sample adds its own square to Σ: the
paper starts from means and covariance of some first classes, here nothing is known before. A batch
is added as its samples one after another would be. The condition number of what is inverted is at
most λ/ε + 1, λ the greatest eigenvalue of Σ; with features that depend on each other, as where they
outnumber the samples, it reaches that, and float32's own error in Σ passes ε where λ passes some
1e3: features should be of deviation about 1. Where that leaves nothing definite to invert,
eigenvalues below 0 are taken for 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.checks import checked
from everlight.continual.base import Batch, Learner, Setup, Strategy, Strength
from everlight.continual.strategies.frozen import feature_width, over_features, product
from everlight.continual.strategies.nearest_mean import (
    ClassMeans,
    add_to_means,
    no_means,
    of_met,
)


class Discriminant(NamedTuple):
    """Streaming LDA's memory."""

    means: ClassMeans
    scatter: Float[Array, "f f"]
    """t Σ."""
    kernel: Float[Array, "f c"]
    """Of the linear scores, from means and scatter at the last evaluation; w above."""
    bias: Float[Array, "c"]


@checked
def streaming_lda(setup: Setup, shrinkage: Strength = 1e-4) -> Strategy:
    """Streaming LDA, its memory being `Discriminant`; the first label of a sample is its class.

    The usual network is `caffe_nets.LinearClassifier` over stored features. A class without samples
    has score −∞.

    Args:
      setup: what is static.
      shrinkage: ε above.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Discriminant:
        classes, width = learner.seen.shape[0], feature_width(setup, learner)
        return Discriminant(
            no_means(classes, width),
            jnp.zeros((width, width)),
            jnp.zeros((width, classes)),
            jnp.zeros(classes),
        )

    def accumulate(
        memory: Discriminant, features: Float[Array, "b f"], batch: Batch
    ) -> Discriminant:
        means, scatter = add_one_by_one(memory.means, memory.scatter, features, batch)
        return memory._replace(means=means, scatter=scatter)

    def before_evaluation(
        memory: Discriminant, learner: Learner, key: PRNGKeyArray
    ) -> tuple[Discriminant, Learner]:
        covariance = memory.scatter / jnp.maximum(jnp.sum(memory.means.count), 1)
        kernel = shrunk_solve(covariance, memory.means.mean.T, shrinkage)
        bias = -jnp.sum(kernel * memory.means.mean.T, axis=0) / 2
        return memory._replace(kernel=kernel, bias=bias), learner

    def scores(memory: Discriminant, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        return of_met(memory.means.count, product(features, memory.kernel) + memory.bias)

    return over_features(setup, init, accumulate, scores)._replace(
        before_evaluation=before_evaluation
    )


def shrunk_solve(
    covariance: Float[Array, "f f"], right: Float[Array, "f c"], shrinkage: Strength
) -> Float[Array, "f c"]:
    """((1 − ε) Σ + ε I)⁻¹ times the right-hand side; finite for features that are dependent."""

    def by_eigenvalues() -> Float[Array, "f c"]:
        values, vectors = jnp.linalg.eigh(covariance)
        shrunk = (1 - shrinkage) * jnp.maximum(values, 0) + shrinkage
        return product(vectors, product(vectors.T, right) / shrunk[:, None])

    shrunk = (1 - shrinkage) * covariance + shrinkage * jnp.eye(covariance.shape[0])
    solution = jax.scipy.linalg.solve(shrunk, right, assume_a="pos")
    # Cholesky's factor takes a fifteenth of the time, and is NaN where it fails.
    return jax.lax.cond(jnp.all(jnp.isfinite(solution)), lambda: solution, by_eigenvalues)


def add_one_by_one(
    means: ClassMeans, scatter: Float[Array, "f f"], features: Float[Array, "b f"], batch: Batch
) -> tuple[ClassMeans, Float[Array, "f f"]]:
    """Means and scatter t Σ after the batch's samples in their order."""
    here, label = batch.weight > 0, batch.labels[:, 0]
    away = jnp.where(here[:, None], features - means.mean[label], 0)
    member = here[:, None] & (label[:, None] == jnp.arange(means.count.shape[0]))
    # The mean just before a sample is the batch's earlier samples of its class beyond the old one.
    earlier = jnp.tril(here & (label[:, None] == label), -1)
    known = means.count[label] + jnp.sum(earlier, axis=1)
    moved = product(earlier.astype(away.dtype), away) / jnp.maximum(known, 1)[:, None]
    before = jnp.sum(means.count) + jnp.cumsum(here) - here
    ahead = away - moved
    ahead = jnp.where(here[:, None], ahead * jnp.sqrt(before / (before + 1))[:, None], 0)
    added = jnp.where(here[:, None], features, 0)
    return add_to_means(means, added, member), scatter + product(ahead.T, ahead)
