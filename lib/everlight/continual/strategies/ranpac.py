"""RanPAC, random projections and pretrained features (McDonnell et al. 2023, NeurIPS), phase two.

    h = relu(zᵀ R), R normal,   G = Σ h hᵀ,   C = Σ h yᵀ,   scores = hᵀ (G + λ I)⁻¹ C

over all samples so far, y their labels as 0 and 1: ridge regression of the labels on m random
features, the same whatever the order of the samples. m = 10,000 in the paper. The paper chooses λ
anew at every task, among powers of ten from 1e-8 to 1e8, by the squared error on a fifth of the
task's samples; here it is a setting, as a stream has neither tasks nor samples to keep apart. The
condition number is at most λ₁/λ + 1, λ₁ the greatest eigenvalue of G, which grows with the samples.
While these are fewer than m it is that, and float32's scores are off by 2e-3 at λ = 1e-6 tr G, by
2e-2 at 1e-7, and nothing is solved at 1e-9; with more samples they are within 1e-3 at any of these.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.checks import Count, checked
from everlight.continual.base import Batch, Learner, Setup, Strategy, Strength
from everlight.continual.objectives.many_labels import multi_hot
from everlight.continual.strategies.frozen import feature_width, over_features, product


class RandomRidge(NamedTuple):
    """RanPAC's memory."""

    projection: Float[Array, "f m"]
    """R, the same from the beginning."""
    gram: Float[Array, "m m"]
    prototypes: Float[Array, "m c"]
    """C."""
    kernel: Float[Array, "m c"]
    """Of the scores, from Gram matrix and prototypes at the last evaluation."""


@checked
def ranpac(setup: Setup, width: Count = 10_000, ridge: Strength = 1e4) -> Strategy:
    """RanPAC, its memory being `RandomRidge`; of several labels each class counts.

    The usual network is `caffe_nets.LinearClassifier` over stored features. A class without samples
    has score 0, as the regression says.

    Args:
      setup: what is static.
      width: m above; memory holds m² numbers.
      ridge: λ above, above 0; in units of squared features, of which there are as many as samples.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> RandomRidge:
        nothing = jnp.zeros((width, learner.seen.shape[0]))
        return RandomRidge(
            jax.random.normal(key, (feature_width(setup, learner), width)),
            jnp.zeros((width, width)),
            nothing,
            nothing,
        )

    def project(memory: RandomRidge, features: Float[Array, "b f"]) -> Float[Array, "b m"]:
        return jax.nn.relu(product(features, memory.projection))

    def accumulate(memory: RandomRidge, features: Float[Array, "b f"], batch: Batch) -> RandomRidge:
        rows = jnp.where((batch.weight > 0)[:, None], project(memory, features), 0)
        targets = multi_hot(batch.labels, memory.kernel.shape[1]).astype(rows.dtype)
        return memory._replace(
            gram=memory.gram + product(rows.T, rows),
            prototypes=memory.prototypes + product(rows.T, targets),
        )

    def before_evaluation(
        memory: RandomRidge, learner: Learner, key: PRNGKeyArray
    ) -> tuple[RandomRidge, Learner]:
        regular = memory.gram + ridge * jnp.eye(width)
        kernel = jax.scipy.linalg.solve(regular, memory.prototypes, assume_a="pos")
        return memory._replace(kernel=kernel), learner

    def scores(memory: RandomRidge, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        return product(project(memory, features), memory.kernel)

    return over_features(setup, init, accumulate, scores)._replace(
        before_evaluation=before_evaluation
    )
