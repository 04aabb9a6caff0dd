"""Ridge regression of the labels on a random expansion of frozen features.

    h = relu(zᵀ R), R random and fixed,   scores = hᵀ W,   W = (Σ h hᵀ + λ I)⁻¹ Σ h yᵀ

over all samples so far, y being their labels as 0 and 1. RanPAC and ACIL are this regression and
differ in R and λ. The sums of all samples are kept and W is solved before an evaluation, so the
order of the samples and the size of batches have no effect.

The condition number is at most λ₁/λ + 1. The greatest eigenvalue λ₁ of the Gram matrix G = Σ h hᵀ
grows with the samples. With fewer samples than random features this bound is reached: float32
scores have errors of 2e-3 at λ = 1e-6 tr G and of 2e-2 at 1e-7 tr G. Smaller λ act like about
1e-7 λ₁, since `ridge_solve` raises eigenvalues that are within float32 rounding errors.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.base import Batch, Coefficient, Learner, Setup, Strategy
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.parts.covariances import ridge_solve
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width
from everlight.precision import matrix_product


class Regression(NamedTuple):
    """Sums of a ridge regression of c targets on m features, and its solution."""

    gram: Float[Array, "m m"]
    """Gram matrix G of the features."""
    prototypes: Float[Array, "m c"]
    """Class prototypes C: sum of the features times the targets."""
    ridge: Float[Array, ""]
    """Coefficient λ."""
    kernel: Float[Array, "m c"]
    """Weights of the scores, solved at the last evaluation."""


class RandomRidge(NamedTuple):
    """Memory of ridge regression on random features."""

    projection: Float[Array, "f m"]
    """Fixed random projection R; it has no columns if there is no projection."""
    regression: Regression


def random_ridge(
    setup: Setup,
    width: int,
    ridge: Coefficient,
    draw: Callable[[PRNGKeyArray, tuple[int, int], DTypeLike], Float[Array, "f m"]],
) -> Strategy:
    """Return ridge regression on random features, whose memory is `RandomRidge`.

    A sample with several labels counts for each of its classes. A class without samples has score
    0, the solution of its regression.

    Args:
      setup: network, objective, optimizer and data access.
      width: number m of random features; 0 leaves out the projection and its ReLU.
      ridge: coefficient λ > 0, in units of squared features summed over samples.
      draw: function that draws the projection, given a key, its shape and its dtype.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> RandomRidge:
        inputs, dtype = feature_width(setup, learner)
        empty = no_regression(width or inputs, learner.seen.shape[0], ridge, dtype)
        return RandomRidge(draw(key, (inputs, width), dtype), empty)

    def accumulate(memory: RandomRidge, features: Float[Array, "b f"], batch: Batch) -> RandomRidge:
        rows, targets = expand(memory.projection, features), label_targets(memory.regression, batch)
        return memory._replace(regression=add_rows(memory.regression, rows, targets, batch))

    def before_evaluation(
        memory: RandomRidge, learner: Learner, key: PRNGKeyArray
    ) -> tuple[RandomRidge, Learner]:
        return memory._replace(regression=solve(memory.regression)), learner

    def scores(memory: RandomRidge, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        return matrix_product(expand(memory.projection, features), memory.regression.kernel)

    return feature_strategy(setup, init, accumulate, scores)._replace(
        before_evaluation=before_evaluation
    )


def no_regression(width: int, classes: int, ridge: Coefficient, dtype: DTypeLike) -> Regression:
    """Return the regression before any sample."""
    nothing = jnp.zeros((width, classes), dtype)
    return Regression(
        jnp.zeros((width, width), dtype), nothing, jnp.asarray(ridge, jnp.float32), nothing
    )


def expand(projection: Float[Array, "f m"], features: Float[Array, "b f"]) -> Float[Array, "b n"]:
    """Return the random features relu(zᵀ R); the features z if the projection has no columns."""
    return jax.nn.relu(matrix_product(features, projection)) if projection.shape[1] else features


def label_targets(regression: Regression, batch: Batch) -> Float[Array, "b c"]:
    """Return the labels of a batch as 0 and 1."""
    kernel = regression.kernel
    return multi_hot(batch.labels, kernel.shape[1]).astype(kernel.dtype)


def add_rows(
    regression: Regression, rows: Float[Array, "b m"], targets: Float[Array, "b c"], batch: Batch
) -> Regression:
    """Return the regression after adding a batch's features and targets; padding is dropped."""
    rows = jnp.where((batch.weight > 0)[:, None], rows, 0)
    return regression._replace(
        gram=regression.gram + matrix_product(rows.T, rows),
        prototypes=regression.prototypes + matrix_product(rows.T, targets),
    )


def solve(regression: Regression) -> Regression:
    """Return the regression with the weights (G + λ I)⁻¹ C."""
    kernel = ridge_solve(regression.gram, regression.prototypes, regression.ridge)
    return regression._replace(kernel=kernel)
