"""Feature covariance-aware metric (FeCAM; Goswami et al. 2023, NeurIPS) over a frozen network.

    score_k(z) = −dᵀ R_k⁻¹ d,   d = t(z) / |t(z)| − t(μ_k) / |t(μ_k)|,   t(z) = z^β (Tukey)
    Σ ← Σ + γ₁ v I + γ₂ u (1 1ᵀ − I)   twice,   R_k[i, j] = Σ[i, j] / sqrt(Σ[i, i] Σ[j, j])

μ_k is the mean of the features z of class k. Σ begins as the covariance of t(z) in class k; v is
the mean of its diagonal and u that of its other entries. R_k is the correlation matrix, so that
distances of classes with little and with much spread compare. β = 0.5 and γ₁ = γ₂ = 1 in the paper.

With a transformer the authors (`FeCAM_vit_*.py`) leave out t (`tukey=1`) and u (γ₂ = 0), and shrink
once with γ₁ = 1; to shrink twice with γ₁ = √2 − 1 is the same. They divide features by their length
before means and covariances are taken, and leave means as they are.

Samples arrive in batches, in any order, and a class may come again: means and covariances are those
of all its samples so far. A class has score −∞ without samples, and the identity as R_k if its
samples do not differ. Memory holds two matrices per class.

Equal to the official code (dipamgoswami/FeCAM, `models/base.py` with `full_cov`, `per_class`,
`shrink`, `norm_cov` and `tukey`) at the shrunk correlation matrices and the distances; differs in:

- u averages over all entries off the diagonal. In the official code exact zeros do not count.
- An R_k that is not positive definite, possible without shrinkage and with γ₂ > γ₁, has raised
  eigenvalues. In the official code it has a pseudoinverse.
- A class whose samples do not differ has the identity, and a constant feature correlates with none.
  In the official code the matrix of the first is NaN, and without shrinkage that of the second.
- Negative features keep their sign, t(−z) = −t(z). In the official code they give NaN.
- The network is not trained on the first task, which is scored like the others. In the official
  code it has Euclidean distances between directions of features and of the head's weights.
- The variant with one covariance for all classes, a mean over tasks, is left out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.base import Batch, Coefficient, Learner, Setup, Strategy
from everlight.checks import PositiveFloat, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_squares,
    add_to_means,
    mask_empty_classes,
    no_means,
    scatter_rows,
)
from everlight.continual.strategies.parts.covariances import ridge_solve
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product


class ClassCovariances(NamedTuple):
    """Memory of FeCAM."""

    means: ClassMeans
    """Class means of the features."""
    transformed: ClassMeans
    """Class means of the transformed features, about which the scatter is."""
    scatter: Float[Array, "c f f"]
    """Scatter matrix of each class's transformed features."""
    precision: Float[Array, "c f f"]
    """Inverse of each class's shrunk correlation matrix at the last evaluation."""


@checked
def fecam(
    setup: Setup,
    variance_shrinkage: Coefficient = 1.0,
    covariance_shrinkage: Coefficient = 1.0,
    tukey: PositiveFloat = 0.5,
) -> Strategy:
    """Return the feature covariance-aware metric (FeCAM), whose memory is `ClassCovariances`.

    The first label of a sample is its class. The usual network is `caffe_nets.LinearClassifier`
    over stored features.

    Args:
      setup: network, objective, optimizer and data access.
      variance_shrinkage: weight γ₁ of the mean variance, added to the diagonal.
      covariance_shrinkage: weight γ₂ of the mean covariance, added to the other entries.
      tukey: exponent β of the features; 1 leaves them unchanged.
    """

    def transform(features: Float[Array, "*n f"]) -> Float[Array, "*n f"]:
        return jnp.sign(features) * jnp.abs(features) ** tukey

    def init(key: PRNGKeyArray, learner: Learner) -> ClassCovariances:
        classes, (width, dtype) = learner.seen.shape[0], feature_width(setup, learner)
        means, none = no_means(classes, width, dtype), jnp.zeros((classes, width, width), dtype)
        return ClassCovariances(means, means, none, none)

    def accumulate(
        memory: ClassCovariances, features: Float[Array, "b f"], batch: Batch
    ) -> ClassCovariances:
        mask = (batch.weight > 0)[:, None]
        features = jnp.where(mask, features, 0)
        member = mask & (batch.labels[:, :1] == jnp.arange(memory.means.count.shape[0]))
        transformed = transform(features)
        rows = scatter_rows(memory.transformed, transformed, batch)
        return memory._replace(
            means=add_to_means(memory.means, features, member),
            transformed=add_to_means(memory.transformed, transformed, member),
            scatter=add_squares(memory.scatter, rows, member),
        )

    def before_evaluation(
        memory: ClassCovariances, learner: Learner, key: PRNGKeyArray
    ) -> tuple[ClassCovariances, Learner]:
        identity = jnp.eye(memory.scatter.shape[-1], dtype=memory.scatter.dtype)

        def inverse(scatter: Float[Array, "f f"]) -> Float[Array, "f f"]:
            shrunk = scatter
            for _ in range(2):
                shrunk = shrink(shrunk, variance_shrinkage, covariance_shrinkage)
            return ridge_solve(correlation(shrunk), identity, 0.0)

        return memory._replace(precision=jax.lax.map(inverse, memory.scatter)), learner

    def scores(memory: ClassCovariances, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        rows = unit_vectors(transform(features), -1)
        means = unit_vectors(transform(memory.means.mean), -1)

        def distance(of_class: tuple) -> Float[Array, "b"]:
            mean, precision = of_class
            return jnp.sum(matrix_product(rows - mean, precision) * (rows - mean), axis=1)

        distances = jax.lax.map(distance, (means, memory.precision))
        return mask_empty_classes(memory.means.count, -distances.T)

    return feature_strategy(setup, init, accumulate, scores)._replace(
        before_evaluation=before_evaluation
    )


def shrink(
    covariance: Float[Array, "f f"], variance: Coefficient, other: Coefficient
) -> Float[Array, "f f"]:
    """Return a covariance plus multiples of its mean variance and of its mean covariance.

    Args:
      covariance: the covariance; with a multiple of it the result is the same multiple.
      variance: weight of the mean variance, added to the diagonal.
      other: weight of the mean covariance, added off the diagonal.
    """
    width = covariance.shape[0]
    trace = jnp.trace(covariance)
    mean = (jnp.sum(covariance) - trace) / max(1, width * (width - 1))
    diagonal = jnp.eye(width, dtype=bool)
    return covariance + jnp.where(diagonal, variance * trace / width, other * mean)


def correlation(covariance: Float[Array, "f f"]) -> Float[Array, "f f"]:
    """Return the correlation matrix of a covariance; a constant feature correlates with none."""
    variance = jnp.diagonal(covariance)
    deviation = jnp.sqrt(jnp.where(variance > 0, variance, 1))
    scaled = covariance / deviation[:, None] / deviation
    return jnp.where(jnp.eye(variance.shape[0], dtype=bool), 1, scaled)


METHODS = (
    Method(
        "FeCAM",
        fecam,
        Publication("Goswami et al.", 2023, "NeurIPS", ("statistics",)),
        "the feature covariance-aware metric (FeCAM)",
        tunes="variance_shrinkage",
        hyperparameters=(0.1, 1, 10),
        derived=lambda arguments: {"covariance_shrinkage": arguments.hyperparameter},
        trains="head",
        requirements=OTHER_WEIGHTS,
        published=1,
        authors={
            "variance_shrinkage": 1,
            "covariance_shrinkage": 1,
            "tukey": 0.5,
            "features": "those of the first task's network",
        },
    ),
)
