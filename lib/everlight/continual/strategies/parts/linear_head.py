"""The network's linear head, by which strategies compute logits of features in memory."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from everlight.errors import ArgumentError
from everlight.models.heads import head_layer
from everlight.precision import matrix_product


def linear_head(params: PyTree, method: str) -> PyTree:
    """Return the parameters of the layer named head.

    Args:
      params: parameters of a network.
      method: name of the method that needs a linear head, for the error.

    Raises:
      ValueError: there is no such layer, or it computes cosines.
    """
    head = head_layer(params)
    if "scale" in head:
        raise ArgumentError(f"the head computes cosines; {method} needs a linear layer named head")
    return head


def linear_logits(head: PyTree, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
    """Return a linear head's logits of features, in full precision."""
    return matrix_product(features, head["kernel"]) + head.get("bias", 0.0)


def align_head(
    kernel: Float[Array, "f c"], new: Bool[Array, "c"], known: Bool[Array, "c"]
) -> Float[Array, "f c"]:
    """Return a head's weights, those of new classes scaled to the old ones' mean length.

    Args:
      kernel: weights of the head.
      new: classes that are scaled, by a common factor.
      known: old classes; without any, or without new ones, the weights stay unchanged.
    """
    lengths = jnp.linalg.norm(kernel, axis=0)
    old_norm, new_norm = (
        jnp.sum(lengths, where=classes) / jnp.maximum(jnp.sum(classes), 1)
        for classes in (known, new)
    )
    scaled = new & jnp.any(known) & (new_norm > 0)
    return jnp.where(scaled, kernel * old_norm / jnp.where(new_norm > 0, new_norm, 1), kernel)
