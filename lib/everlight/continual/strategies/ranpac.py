"""RanPAC, random projections and pretrained features (McDonnell et al. 2023, NeurIPS), phase two.

    h = relu(zᵀ R), R normal,   G = Σ h hᵀ,   C = Σ h yᵀ,   scores = hᵀ (G + λ I)⁻¹ C

over all samples so far, y being their labels as 0 and 1. This is ridge regression of the labels on
m random features; the order of the samples has no effect. m = 10,000 in the paper, whose ablation
without projection has h = z.

The paper chooses λ at every task among powers of ten from 1e-8 to 1e8. It fits the regression on
four fifths of the task's samples and takes the least squared error on the other fifth.
`ridge="validated"` does the same. Otherwise λ is an argument, since a stream has neither tasks nor
held-out samples. The best λ varies by powers of ten with the features.

`random_ridge` has the regression, which ACIL shares, and its precision in float32.

Equal to the official code (RanPAC/RanPAC) at class prototypes, projection, ridge regression and the
choice of λ; differs in raised eigenvalues where λ is within float32 rounding errors (in the
official code the system is solved without), and in leaving out the adapters that the paper trains
in the first session.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from everlight.base import Learner, PositiveCoefficient, Setup, Strategy, Task
from everlight.checks import NonNegativeInt, checked
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.parts.random_ridge import RandomRidge, expand, random_ridge
from everlight.precision import matrix_product

RIDGES = tuple(10.0**power for power in range(8, -9, -1))
"""Values of λ among which validation chooses, in descending order."""
START_RIDGE = 1e4
"""Value of λ until a task has samples on both sides of the validation split."""


@checked
def ranpac(
    setup: Setup,
    width: NonNegativeInt = 10_000,
    ridge: PositiveCoefficient | Literal["validated"] = 1e4,
) -> Strategy:
    """Return RanPAC (random projections, pretrained features), whose memory is `RandomRidge`.

    A sample with several labels counts for each of its classes. The usual network is
    `caffe_nets.LinearClassifier` over stored features. A class without samples has score 0, the
    solution of its regression.

    Args:
      setup: network, objective, optimizer and data access.
      width: number m of random features; memory holds m² numbers. 0 leaves out the projection and
        its ReLU.
      ridge: coefficient λ > 0, in units of squared features summed over samples. "validated"
        chooses it by validation at the start of a task, as in the paper, and needs task boundaries.

    Raises:
      ValueError: `ridge` is neither a number nor "validated".
    """
    if not isinstance(ridge, str):
        return random_ridge(setup, width, ridge, jax.random.normal)

    def begin_task(
        memory: RandomRidge, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[RandomRidge, Learner]:
        samples = task.train
        rows = expand(memory.projection, sample_features(setup, learner, samples))
        targets = multi_hot(samples.labels, learner.seen.shape[0]).astype(rows.dtype)
        before = memory.regression
        chosen = validated_ridge(rows, targets, samples.mask, before.ridge, key)
        return memory._replace(regression=before._replace(ridge=chosen)), learner

    strategy = random_ridge(setup, width, START_RIDGE, jax.random.normal)
    return strategy._replace(begin_task=begin_task)


def validated_ridge(
    rows: Float[Array, "n m"],
    targets: Float[Array, "n c"],
    mask: Bool[Array, "n"],
    before: Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Return the λ of `RIDGES` with the least squared error on a random fifth of the samples.

    Ties go to the greatest λ.

    Args:
      rows: features of the samples, `[n, m]`.
      targets: labels of the samples as 0 and 1, `[n, c]`.
      mask: True for samples that count.
      before: λ that is returned if a side of the split is empty.
      key: random key of the split.
    """
    order = jnp.lexsort((jax.random.uniform(key, mask.shape), ~mask))
    count = jnp.sum(mask)
    first = jnp.zeros_like(mask).at[order].set(jnp.arange(mask.shape[0]) < 4 * count // 5)
    fits, held = (mask & first)[:, None], (mask & ~first)[:, None]
    fit, labels, rest = jnp.where(fits, rows, 0), jnp.where(fits, targets, 0), rows * held
    # The same regression by the samples' inner products, where these are fewer than the features.
    if mask.shape[0] < rows.shape[1]:
        gram, right, rest = matrix_product(fit, fit.T), labels, matrix_product(rest, fit.T)
    else:
        gram, right = matrix_product(fit.T, fit), matrix_product(fit.T, labels)
    values, vectors = jnp.linalg.eigh(gram)
    values = jnp.maximum(values, jnp.finfo(gram.dtype).eps * values[-1])
    left, right = matrix_product(rest, vectors), matrix_product(vectors.T, right)

    def error(ridge: Float[Array, ""]) -> Float[Array, ""]:
        away = matrix_product(left, right / (values + ridge)[:, None]) - targets
        return jnp.sum(jnp.where(held, away, 0) ** 2)

    ridges = jnp.asarray(RIDGES, before.dtype)
    errors = jax.lax.map(error, ridges)
    best = ridges[jnp.argmin(jnp.where(jnp.isfinite(errors), errors, jnp.inf))]
    return jnp.where(jnp.any(fits) & jnp.any(held), best, before)


# The paper's width is 10 times as large, with 100 times the memory. A published value would be
# one at another width, so there is none.
METHODS = (
    Method(
        "RanPAC",
        ranpac,
        Publication("McDonnell et al.", 2023, "NeurIPS", ("statistics",)),
        "RanPAC (random projections, pretrained features)",
        tunes="ridge",
        hyperparameters=(1e2, 1e3, 1e4, 1e5, 1e6),
        fixed={"width": 1000},
        trains="head",
        requirements=OTHER_WEIGHTS,
        authors={"width": 10_000, "ridge": "validated", "features": "a pretrained network's"},
    ),
)
