"""Running means and scatter matrices of the features of each class."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from everlight.base import Batch
from everlight.models.heads import unit_vectors
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
    origin = means_origin(means, features, jnp.any(member, axis=1))
    new = jnp.sum(member, axis=0)
    count = (means.count + new).astype(means.count.dtype)
    rows = features - origin
    total = matrix_product(member.T.astype(rows.dtype), rows)
    # The change of the mean, not the sum of all features, which would outgrow float32.
    change = (total - new[:, None] * means.offset) / jnp.maximum(count, 1)[:, None]
    return ClassMeans(origin, means.offset + change, count)


def add_first_labels(
    means: ClassMeans, features: Float[Array, "n f"], label: Int[Array, "n"], mask: Bool[Array, "n"]
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


def means_origin(
    means: ClassMeans, features: Float[Array, "b f"], counted: Bool[Array, "b"]
) -> Float[Array, "f"]:
    """Return the means' origin; before any sample it is the mean of the batch's counted samples."""
    rows = jnp.where(counted[:, None], features, 0)
    first = jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(counted), 1)
    return jnp.where(jnp.any(means.count > 0), means.origin, first).astype(means.origin.dtype)


def class_deviations(
    means: ClassMeans, features: Float[Array, "b f"], batch: Batch
) -> tuple[Float[Array, "b f"], Int[Array, "b"]]:
    """Return each sample minus the mean of its class just before it, and that mean's count.

    The batch's samples arrive in their order. The mean of a class without samples is the origin.

    Args:
      means: the means before the batch.
      features: the batch's features; rows of weight 0 are arbitrary, and 0 in the result.
      batch: the batch; its first labels are the classes.
    """
    mask, label = batch.weight > 0, batch.labels[:, 0]
    away = features - means_origin(means, features, mask) - means.offset[label]
    away = jnp.where(mask[:, None], away, 0)
    # The mean just before a sample is the batch's earlier samples of its class beyond the old one.
    earlier = jnp.tril(mask & (label[:, None] == label), -1)
    known = means.count[label] + jnp.sum(earlier, axis=1)
    moved = matrix_product(earlier.astype(away.dtype), away) / jnp.maximum(known, 1)[:, None]
    return jnp.where(mask[:, None], away - moved, 0), known


def scatter_rows(
    means: ClassMeans, features: Float[Array, "b f"], batch: Batch
) -> Float[Array, "b f"]:
    """Return rows whose outer products add a batch to the scatter matrices of its classes.

    The scatter of a class is the sum of (z − μ)(z − μ)ᵀ over its samples, μ being their mean.
    Sample n + 1 adds n / (n + 1) times the square of its distance from the mean of the first n
    (Welford 1962). The arguments are those of `class_deviations`.
    """
    away, known = class_deviations(means, features, batch)
    return away * jnp.sqrt(known / (known + 1)).astype(away.dtype)[:, None]


def mask_empty_classes(count: Int[Array, "c"], scores: Float[Array, "b c"]) -> Float[Array, "b c"]:
    """Return the scores, −∞ for classes without samples."""
    return jnp.where(count > 0, scores, -jnp.inf)


def add_squares(
    scatter: Float[Array, "c f f"], rows: Float[Array, "b f"], member: Bool[Array, "b c"]
) -> Float[Array, "c f f"]:
    """Return the scatter matrices after adding the outer products of each class's rows.

    Only classes that are present cost a matrix product.

    Args:
      scatter: the scatter matrices so far.
      rows: rows of all classes.
      member: the class of each row; a row without a class is not added.
    """
    present = jnp.any(member, axis=0)
    order = jnp.argsort(~present, stable=True)

    def add(position: Int[Array, ""], scatter: Float[Array, "c f f"]) -> Float[Array, "c f f"]:
        class_rows = jnp.where(member[:, order[position]][:, None], rows, 0)
        return scatter.at[order[position]].add(matrix_product(class_rows.T, class_rows))

    return jax.lax.fori_loop(0, jnp.sum(present), add, scatter)


def prototype_scores(means: ClassMeans, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
    """Return the cosines between features and class means, −∞ for classes without samples."""
    return mask_empty_classes(
        means.count, matrix_product(unit_vectors(features, -1), unit_vectors(means.mean, -1).T)
    )
