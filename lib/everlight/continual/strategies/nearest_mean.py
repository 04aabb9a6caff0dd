"""Nearest class mean over features (Mensink et al. 2013, PAMI; Rebuffi et al. 2017, CVPR).

    score_k(z) = −|z − μ_k|²,   μ_k the mean of the features of all samples of class k so far

Rebuffi et al. compare directions: they divide features by their length before averaging, and means
before comparing. A class without samples has score −∞.

Equal to the official code (srebuffi/iCaRL, its NCM) at `directions=True` over a fixed network;
differs from its CIFAR-100 script in not averaging in the mean of the mirrored images, and in the
score −∞ of classes without samples (there their mean is 0).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Batch, Learner, Setup, Strategy
from everlight.checks import checked
from everlight.continual.method import OTHER_WEIGHTS, Method, Source
from everlight.continual.objectives.many_labels import multi_hot
from everlight.continual.strategies.parts import arguments
from everlight.continual.strategies.parts.frozen import feature_width, over_features
from everlight.models.heads import unit
from everlight.precision import matrix_product


class ClassMeans(NamedTuple):
    """Running class means of the features, stored as offsets from one fixed origin.

    The offsets are as small as the spread of the features, so features far from 0 keep their
    precision.
    """

    origin: Float[Array, "f"]
    """Mean of the first batch's features; later batches do not change it."""
    offset: Float[Array, "c f"]
    """Mean of each class minus the origin; 0 for a class without samples."""
    count: Int[Array, "c"]
    """Number of samples of each class so far."""

    @property
    def mean(self) -> Float[Array, "c f"]:
        """The means of the features, 0 for classes without samples."""
        return jnp.where(self.count[..., None] > 0, self.origin[..., None, :] + self.offset, 0)


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
        here = (batch.weight > 0)[:, None]
        member = multi_hot(batch.labels, memory.count.shape[0]) & here
        rows = unit(features, -1) if directions else features
        return add_to_means(memory, jnp.where(here, rows, 0), member)

    def scores(memory: ClassMeans, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        if directions:
            means, features = unit(memory.mean, -1), unit(features, -1)
        else:
            means, features = memory.offset, features - memory.origin
        # The squares written out, so that no array [b, c, f] is made.
        squares = jnp.sum(features**2, axis=1)[:, None] + jnp.sum(means**2, axis=1)
        return of_met(memory.count, 2 * matrix_product(features, means.T) - squares)

    return over_features(setup, init, accumulate, scores)


def no_means(classes: int, width: int, dtype: DTypeLike = jnp.float32) -> ClassMeans:
    """Return the means before any sample."""
    origin, offset = jnp.zeros(width, dtype), jnp.zeros((classes, width), dtype)
    return ClassMeans(origin, offset, jnp.zeros(classes, jnp.int32))


def add_to_means(
    means: ClassMeans, features: Float[Array, "b f"], member: Bool[Array, "b c"]
) -> ClassMeans:
    """Return the means after a batch; the first batch with a counted sample sets the origin.

    Args:
      means: the means so far.
      features: the batch's features, `[b, f]`, all finite.
      member: the classes of each sample, `[b, c]`; a sample without a class does not count.
    """
    origin = origin_after(means, features, jnp.any(member, axis=1))
    new = jnp.sum(member, axis=0)
    count = (means.count + new).astype(means.count.dtype)
    rows = features - origin
    total = matrix_product(member.T.astype(rows.dtype), rows)
    # The change of the mean, not the sum of all features, which would outgrow float32.
    change = (total - new[:, None] * means.offset) / jnp.maximum(count, 1)[:, None]
    return ClassMeans(origin, means.offset + change, count)


def add_first_labels(
    means: ClassMeans,
    features: Float[Array, "n f"],
    label: Int[Array, "n"],
    mask: Bool[Array, "n"],
) -> ClassMeans:
    """Return the class means after more samples of one class each.

    Args:
      means: the means so far.
      features: features of the samples.
      label: class of each sample.
      mask: True for samples that count; the features of the others are arbitrary.
    """
    member = mask[:, None] & (label[:, None] == jnp.arange(means.count.shape[0]))
    return add_to_means(means, jnp.where(mask[:, None], features, 0), member)


def origin_after(
    means: ClassMeans, features: Float[Array, "b f"], counted: Bool[Array, "b"]
) -> Float[Array, "f"]:
    """Return the means' origin; before any sample it is the mean of the batch's counted samples."""
    rows = jnp.where(counted[:, None], features, 0)
    first = jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(counted), 1)
    return jnp.where(jnp.any(means.count > 0), means.origin, first).astype(means.origin.dtype)


def away_from_means(
    means: ClassMeans, features: Float[Array, "b f"], batch: Batch
) -> tuple[Float[Array, "b f"], Int[Array, "b"]]:
    """Return each sample minus the mean of its class just before it, and that mean's count.

    The batch's samples arrive in their order. The mean of a class without samples is the origin.

    Args:
      means: the means before the batch.
      features: the batch's features; rows of weight 0 are arbitrary, and 0 in the result.
      batch: the batch; its first labels are the classes.
    """
    here, label = batch.weight > 0, batch.labels[:, 0]
    away = features - origin_after(means, features, here) - means.offset[label]
    away = jnp.where(here[:, None], away, 0)
    # The mean just before a sample is the batch's earlier samples of its class beyond the old one.
    earlier = jnp.tril(here & (label[:, None] == label), -1)
    known = means.count[label] + jnp.sum(earlier, axis=1)
    moved = matrix_product(earlier.astype(away.dtype), away) / jnp.maximum(known, 1)[:, None]
    return jnp.where(here[:, None], away - moved, 0), known


def scatter_rows(
    means: ClassMeans, features: Float[Array, "b f"], batch: Batch
) -> Float[Array, "b f"]:
    """Return rows whose outer products add a batch to the scatter matrices of its classes.

    The scatter of a class is the sum of (z − μ)(z − μ)ᵀ over its samples, μ being their mean.
    Sample n + 1 adds n / (n + 1) times the square of its distance from the mean of the first n
    (Welford 1962). The arguments are those of `away_from_means`.
    """
    away, known = away_from_means(means, features, batch)
    return away * jnp.sqrt(known / (known + 1)).astype(away.dtype)[:, None]


def of_met(count: Int[Array, "c"], scores: Float[Array, "b c"]) -> Float[Array, "b c"]:
    """Return the scores, −∞ for classes without samples."""
    return jnp.where(count > 0, scores, -jnp.inf)


METHODS = {
    "nearest mean": Method(
        nearest_mean,
        arguments.no_arguments,
        Source("Mensink et al. 2013, PAMI", ("statistics",)),
        trains="head",
        demands=OTHER_WEIGHTS,
        authors={"directions": True, "features": "those that iCaRL trains"},
    ),
}
