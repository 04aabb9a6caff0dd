"""Cross-entropies over some of the classes, with labels or with another network's outputs."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.objectives.many_labels import binary_cross_entropy, multi_hot


def masked_log_softmax(
    logits: Float[Array, "*b c"], among: Bool[Array, "*b c"]
) -> Float[Array, "*b c"]:
    """Return the logarithm of the softmax over given classes; values of the others are arbitrary.

    Args:
      logits: logits of all classes.
      among: the classes, for all samples or for each one.
    """
    # A finite floor: minus infinity in both branches would make the gradient NaN.
    return jax.nn.log_softmax(jnp.where(among, logits, -1e9))


def label_entropy(
    logits: Float[Array, "b c"], labels: Int[Array, "b k"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Return the binary cross-entropy of each sample's labels, averaged over the given classes."""
    targets = multi_hot(labels, among.shape[0]).astype(logits.dtype)
    return binary_cross_entropy(logits, targets, among)


def soft_entropy(
    logits: Float[Array, "b c"], old: Float[Array, "b c"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Return the binary cross-entropy with the old logits' sigmoids, averaged over classes."""
    return binary_cross_entropy(logits, jax.nn.sigmoid(old), among)


def label_softmax(
    logits: Float[Array, "b c"], labels: Int[Array, "b k"], among: Bool[Array, "*b c"]
) -> Float[Array, "b"]:
    """Return the cross-entropy of each sample's first label, with softmax over given classes.

    Args:
      logits: logits of all classes.
      labels: labels of the samples.
      among: the classes, for all samples or for each one.
    """
    rows = masked_log_softmax(logits, among)
    return -jnp.take_along_axis(rows, labels[:, :1], axis=1)[:, 0]


def soft_softmax(
    logits: Float[Array, "b c"], old: Float[Array, "b c"], among: Bool[Array, "c"]
) -> Float[Array, "b"]:
    """Return the cross-entropy with the old logits' softmax over given classes; 0 without any."""
    soft = jnp.where(among, jnp.exp(masked_log_softmax(old, among)), 0)
    return -jnp.sum(soft * masked_log_softmax(logits, among), axis=-1)
