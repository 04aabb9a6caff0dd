"""The network's linear head, by which strategies compute logits of features in memory."""

from jaxtyping import Array, Float, PyTree

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
