"""Loss of OnPro's prototypes: those of different classes repel each other."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from everlight.models.heads import unit_vectors
from everlight.precision import full_precision


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
