"""Losses of OnPro: instances attract their class, and prototypes of classes repel each other."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from everlight.models.heads import unit_vectors
from everlight.precision import full_precision

SMALL = 1e-8
"""The authors' constant added to sums and within logarithms of the instance loss."""


@full_precision
def similarities(
    z: Float[Array, "v w"], features: Float[Array, "v f"], start: Int[Array, ""]
) -> Float[Array, "v v"]:
    """Return z·z + z·f of all views, f being w features from one on, of unit features.

    Args:
      z: projections of length 1; w is at most f.
      features: features of any length.
      start: number of the first feature that counts.
    """
    part = jax.lax.dynamic_slice_in_dim(unit_vectors(features, -1), start, z.shape[1], axis=1)
    return z @ part.T + z @ z.T


def instance_losses(
    near: Float[Array, "v v"],
    ids: Int[Array, "n"],
    weight: Float[Array, "n"],
    temperature: float,
    replayed: bool,
) -> Float[Array, "v"]:
    """Return the instance loss l of each view; v = 2n, all first views and then all second ones.

    Args:
      near: similarities S of the views.
      ids: class of each sample.
      weight: 0 for padding, which is compared with no view.
      temperature: temperature τ.
      replayed: form for replayed samples, where a view counts as one of its own class; the form for
        incoming ones leaves it out, and has a term of the sample's other view.
    """
    mask, view_ids = jnp.tile(weight, 2) > 0, jnp.tile(ids, 2)
    greatest = jnp.max(near, axis=1, where=mask, initial=-jnp.inf, keepdims=True)
    # Without any view that counts the greatest similarity would be infinite.
    shift = jax.lax.stop_gradient(jnp.where(jnp.isfinite(greatest), greatest, 0))
    powers = jnp.exp((near - shift) / temperature)
    counted = mask if replayed else mask & ~jnp.eye(near.shape[0], dtype=bool)
    powers = jnp.where(counted, powers, 0)
    total = jnp.sum(powers, axis=1, keepdims=True)
    surprise = -jnp.log(powers / (total + SMALL) + SMALL)
    same = ((view_ids[:, None] == view_ids) & mask).astype(near.dtype)
    mean = jnp.sum(same * surprise, axis=1) / (jnp.sum(same, axis=1) + SMALL)
    if replayed:
        return mean
    count = ids.shape[0]
    other = jnp.concatenate([jnp.diag(surprise[:count, count:]), jnp.diag(surprise[count:])])
    return other + 2 * mean


@full_precision
def prototype_loss(
    first: Float[Array, "n w"],
    second: Float[Array, "n w"],
    labels: Int[Array, "n"],
    weight: Float[Array, "n"],
    classes: int,
    temperature: float,
) -> tuple[Float[Array, ""], Float[Array, "c w"]]:
    """Return the loss of the prototypes of a batch's classes, 0 for one class, and the mean views.

    Args:
      first: projections of the first views, of length 1.
      second: projections of the second views.
      labels: class of each sample.
      weight: 0 for padding.
      classes: number of all classes.
      temperature: temperature τ_p.

    Returns:
      The loss L_proto, and for each class the mean of its projections of both views; 0 for a class
      without samples.
    """
    member = ((labels == jnp.arange(classes)[:, None]) & (weight > 0)).astype(first.dtype)
    count = jnp.sum(member, axis=1, keepdims=True)
    means = [
        member @ jnp.where(weight[:, None] > 0, view, 0) / jnp.maximum(count, 1)
        for view in (first, second)
    ]
    prototypes = unit_vectors(jnp.concatenate(means), -1)
    mask = jnp.tile(count[:, 0] > 0, 2)
    near = prototypes @ prototypes.T / temperature
    others = mask & ~jnp.eye(2 * classes, dtype=bool)
    # A sum over nothing would have no finite gradient.
    others |= ~jnp.any(mask)
    total = jax.scipy.special.logsumexp(near, axis=1, where=others)
    pair = jnp.diag(jnp.roll(near, classes, axis=1))
    value = jnp.sum(jnp.where(mask, total - pair, 0)) / jnp.maximum(jnp.sum(mask), 1)
    return value, jax.lax.stop_gradient(sum(means) / 2)
