"""Nearest class mean over features (Mensink et al. 2013, PAMI; Rebuffi et al. 2017, CVPR).

    score_k(z) = −|z − μ_k|²,   μ_k the mean of the features of all samples of class k so far

Rebuffi et al. compare directions: features are divided by their length before they are averaged,
and the means before they are compared. A class without samples has score −∞.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.checks import checked
from everlight.continual.base import Batch, Learner, Setup, Strategy
from everlight.continual.objectives.many_labels import multi_hot
from everlight.continual.strategies.frozen import feature_width, over_features, product
from everlight.models.heads import unit


class ClassMeans(NamedTuple):
    """The memory: running means of the features."""

    mean: Float[Array, "c f"]
    """0 without samples."""
    count: Int[Array, "c"]
    """Samples of the class so far."""


@checked
def nearest_mean(setup: Setup, directions: bool = False) -> Strategy:
    """Nearest class mean, its memory being `ClassMeans`; of several labels each class counts.

    The usual network is `caffe_nets.LinearClassifier` over stored features.

    Args:
      setup: what is static.
      directions: whether lengths are divided away, as by Rebuffi et al.
    """

    def of_unit_length(rows: Float[Array, "n f"]) -> Float[Array, "n f"]:
        return unit(rows, -1) if directions else rows

    def init(key: PRNGKeyArray, learner: Learner) -> ClassMeans:
        return no_means(learner.seen.shape[0], feature_width(setup, learner))

    def accumulate(memory: ClassMeans, features: Float[Array, "b f"], batch: Batch) -> ClassMeans:
        here = (batch.weight > 0)[:, None]
        member = multi_hot(batch.labels, memory.count.shape[0]) & here
        return add_to_means(memory, jnp.where(here, of_unit_length(features), 0), member)

    def scores(memory: ClassMeans, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        means, features = of_unit_length(memory.mean), of_unit_length(features)
        # The squares written out, so that no array [b, c, f] is made.
        squares = jnp.sum(features**2, axis=1)[:, None] + jnp.sum(means**2, axis=1)
        return of_met(memory.count, 2 * product(features, means.T) - squares)

    return over_features(setup, init, accumulate, scores)


def no_means(classes: int, width: int) -> ClassMeans:
    """Means over nothing."""
    return ClassMeans(jnp.zeros((classes, width)), jnp.zeros(classes, int))


def add_to_means(
    means: ClassMeans, features: Float[Array, "b f"], member: Bool[Array, "b c"]
) -> ClassMeans:
    """The means with a batch's features.

    Args:
      means: so far.
      features: `[b, f]`, all finite.
      member: the classes of each sample, `[b, c]`; none where it does not count.
    """
    new = jnp.sum(member, axis=0)
    count = means.count + new
    total = product(member.T.astype(features.dtype), features)
    # The change of the mean, not the sum of all features, which would outgrow float32.
    change = (total - new[:, None] * means.mean) / jnp.maximum(count, 1)[:, None]
    return ClassMeans(means.mean + change, count)


def of_met(count: Int[Array, "c"], scores: Float[Array, "b c"]) -> Float[Array, "b c"]:
    """The scores, −∞ for classes without samples."""
    return jnp.where(count > 0, scores, -jnp.inf)
