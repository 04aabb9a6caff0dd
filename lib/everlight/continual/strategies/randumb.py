"""RanDumb (Prabhu et al. 2024, NeurIPS): random Fourier features and a discriminant, in one pass.

    φ(z) = sqrt(2 / m) cos(zᵀ W + b),   W normal of variance 2 γ, b uniform in [0, 2 π)
    score_k(z) = w_kᵀ φ(z) − ½ w_kᵀ μ_k,   w_k = ((1 − ε) S + ε I)⁻¹ μ_k

The inner product of φ(z) and φ(z') approximates the kernel exp(−γ |z − z'|²) (Rahimi and Recht
2007, NeurIPS). μ_k is the mean of φ in class k. S is the oracle approximating shrinkage (OAS) of
the covariance of φ about the class means, which all classes share. The highest score has the least
Mahalanobis distance. The paper takes pixels as z, and leaves out φ where z are features of a
pretrained network; that is `streaming_lda` with another estimate of the covariance.

Means and covariance are those of all samples so far, in any order and in batches of any size. A
class without samples has score −∞. The scale of γ is 1 / (f · variance of all numbers in the data)
for f features; a stream knows only its first batch, which `gamma="scale"` takes. A number that is
measured before training avoids this.

Equal to the official code (drimpossible/RanDumb, `legacy_model.py`, the model of the paper's
numbers) at the score differences between classes that have samples, given φ; differs in:

- The code's γ takes the variance of all training data.
- m is 10,000 by default, as in `main.py`; the README's command has 25,000.
- `main.py`, a later form, estimates a covariance per class and averages these, without ε. Its
  scores have a term for the frequency of a class.
- The paper also trains on mirrored images of some data sets.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from everlight.base import Batch, Learner, Proportion, Setup, Strategy
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_to_means,
    mask_empty_classes,
    no_means,
    scatter_rows,
)
from everlight.continual.strategies.parts.covariances import oas_covariance, shrunk_solve
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width
from everlight.precision import matrix_product


class FourierDiscriminant(NamedTuple):
    """Memory of RanDumb."""

    directions: Float[Array, "f m"]
    """Fixed normal directions of variance 1; W is their multiple by the square root of 2 γ."""
    phase: Float[Array, "m"]
    """Fixed phases b."""
    gamma: Float[Array, ""]
    """Coefficient γ of the kernel; 0 until the first batch sets it."""
    means: ClassMeans
    """Class means of the Fourier features."""
    scatter: Float[Array, "m m"]
    """Sum over all samples of the squares of their distance from the mean of their class."""
    kernel: Float[Array, "m c"]
    """Weights of φ − o at the last evaluation, o being the origin of the means."""
    bias: Float[Array, "c"]
    """Bias of each class at the last evaluation."""


@checked
def randumb(
    setup: Setup,
    width: PositiveInt = 10_000,
    shrinkage: Proportion = 1e-4,
    gamma: PositiveFloat | Literal["scale"] = "scale",
) -> Strategy:
    """Return RanDumb (discriminant of random features), whose memory is `FourierDiscriminant`.

    The first label of a sample is its class. The usual network is `caffe_nets.LinearClassifier`
    over pixels.

    Args:
      setup: network, objective, optimizer and data access.
      width: number m of random features; memory holds m² numbers.
      shrinkage: weight ε of the identity matrix in the regularized covariance.
      gamma: coefficient γ of the approximated kernel. "scale" is 1 / (f · variance) of the first
        batch's f features.

    Raises:
      ValueError: `gamma` is neither a number nor "scale".
    """

    def init(key: PRNGKeyArray, learner: Learner) -> FourierDiscriminant:
        classes, (inputs, dtype) = learner.seen.shape[0], feature_width(setup, learner)
        key_directions, key_phase = jax.random.split(key)
        return FourierDiscriminant(
            jax.random.normal(key_directions, (inputs, width), dtype),
            jax.random.uniform(key_phase, (width,), dtype, maxval=2 * math.pi),
            jnp.asarray(0.0 if gamma == "scale" else gamma, dtype),
            no_means(classes, width, dtype),
            jnp.zeros((width, width), dtype),
            jnp.zeros((width, classes), dtype),
            jnp.zeros(classes, dtype),
        )

    def accumulate(
        memory: FourierDiscriminant, features: Float[Array, "b f"], batch: Batch
    ) -> FourierDiscriminant:
        mask = batch.weight > 0
        if gamma == "scale":
            first = (memory.gamma == 0) & jnp.any(mask)
            chosen = jnp.where(first, scale_of(features, mask), memory.gamma)
            memory = memory._replace(gamma=chosen)
        rows = jnp.where(mask[:, None], fourier_features(memory, features), 0)
        squares = scatter_rows(memory.means, rows, batch)
        member = mask[:, None] & (batch.labels[:, :1] == jnp.arange(memory.means.count.shape[0]))
        return memory._replace(
            means=add_to_means(memory.means, rows, member),
            scatter=memory.scatter + matrix_product(squares.T, squares),
        )

    def before_evaluation(
        memory: FourierDiscriminant, learner: Learner, key: PRNGKeyArray
    ) -> tuple[FourierDiscriminant, Learner]:
        count, offset = jnp.sum(memory.means.count), memory.means.offset
        covariance = oas_covariance(memory.scatter / jnp.maximum(count, 1), count)
        kernel = shrunk_solve(covariance, offset.T, shrinkage)
        bias = -jnp.sum(kernel * offset.T, axis=0) / 2
        return memory._replace(kernel=kernel, bias=bias), learner

    def scores(memory: FourierDiscriminant, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        centered = fourier_features(memory, features) - memory.means.origin
        return mask_empty_classes(
            memory.means.count, matrix_product(centered, memory.kernel) + memory.bias
        )

    return feature_strategy(setup, init, accumulate, scores)._replace(
        before_evaluation=before_evaluation
    )


def fourier_features(
    memory: FourierDiscriminant, features: Float[Array, "b f"]
) -> Float[Array, "b m"]:
    """Return the random Fourier features φ of some features."""
    weights = jnp.sqrt(2 * memory.gamma) * memory.directions
    angles = matrix_product(features, weights) + memory.phase
    return jnp.sqrt(2 / memory.phase.shape[0]) * jnp.cos(angles)


def scale_of(features: Float[Array, "b f"], mask: Bool[Array, "b"]) -> Float[Array, ""]:
    """Return 1 / (f · variance) over all numbers of some samples; 1 if they do not differ.

    Args:
      features: the samples' features; rows that do not count are arbitrary.
      mask: True for samples that count.
    """
    width = features.shape[1]
    numbers = jnp.maximum(jnp.sum(mask) * width, 1)
    rows = jnp.where(mask[:, None], features, 0)
    away = jnp.where(mask[:, None], rows - jnp.sum(rows) / numbers, 0)
    variance = jnp.sum(away**2) / numbers
    return jnp.where(variance > 0, 1 / (width * jnp.where(variance > 0, variance, 1)), 1)


# The paper's width is 25 times as large, with 625 times the memory. A published value would be
# one at another width, so there is none.
METHODS = (
    Method(
        "RanDumb",
        randumb,
        Publication("Prabhu et al.", 2024, "NeurIPS", ("statistics",)),
        "RanDumb (discriminant of random features)",
        tunes="shrinkage",
        hyperparameters=(1e-5, 1e-4, 1e-3, 1e-2),
        fixed={"width": 1000},
        trains="head",
        requirements=OTHER_WEIGHTS,
        authors={"width": 25_000, "shrinkage": 1e-4},
    ),
)
