"""Nearest class mean over features (Mensink et al. 2013, PAMI; Rebuffi et al. 2017, CVPR).

    score_k(z) = −|z − μ_k|²,   μ_k the mean of the features of all samples of class k so far

Rebuffi et al. compare directions: they divide features by their length before averaging, and means
before comparing. A class without samples has score −∞.

Equal to the official code (srebuffi/iCaRL, its NCM) at `directions=True` over a fixed network;
differs from its CIFAR-100 script in not averaging in the mean of the mirrored images, and in the
score −∞ of classes without samples (in the official code their mean is 0).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.base import Batch, Learner, Setup, Strategy
from everlight.checks import checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_to_means,
    mask_empty_classes,
    no_means,
)
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product


@checked
def nearest_mean(setup: Setup, directions: bool = False) -> Strategy:
    """Return the nearest-class-mean classifier, whose memory is `ClassMeans`.

    A sample with several labels counts for each of its classes. The usual network is
    `caffe_nets.LinearClassifier` over stored features.

    Args:
      setup: network, objective, optimizer and data access.
      directions: divide features and means by their lengths (Rebuffi et al.). Scores then depend
        on the position of 0 in feature space.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> ClassMeans:
        return no_means(learner.seen.shape[0], *feature_width(setup, learner))

    def accumulate(memory: ClassMeans, features: Float[Array, "b f"], batch: Batch) -> ClassMeans:
        mask = (batch.weight > 0)[:, None]
        member = multi_hot(batch.labels, memory.count.shape[0]) & mask
        rows = unit_vectors(features, -1) if directions else features
        return add_to_means(memory, jnp.where(mask, rows, 0), member)

    def scores(memory: ClassMeans, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        if directions:
            means, features = unit_vectors(memory.mean, -1), unit_vectors(features, -1)
        else:
            means, features = memory.offset, features - memory.origin
        # The squares written out, so that no array [b, c, f] is made.
        squares = jnp.sum(features**2, axis=1)[:, None] + jnp.sum(means**2, axis=1)
        return mask_empty_classes(memory.count, 2 * matrix_product(features, means.T) - squares)

    return feature_strategy(setup, init, accumulate, scores)


METHODS = (
    Method(
        "nearest mean",
        nearest_mean,
        Publication("Mensink et al.", 2013, "PAMI", ("statistics",)),
        "the nearest-class-mean classifier (NCM)",
        trains="head",
        requirements=OTHER_WEIGHTS,
        authors={"directions": True, "features": "those that iCaRL trains"},
    ),
)
