"""Features of inputs without parameters, from which a gate chooses an expert."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def flattened(inputs: Float[Array, "b *shape"]) -> Float[Array, "b f"]:
    """Return flattened inputs."""
    return inputs.reshape(inputs.shape[0], -1)


def block_means(inputs: Float[Array, "b *shape"], side: int) -> Float[Array, "b f"]:
    """Return images as means of `side` blocks per side, for the gate; features are unchanged.

    Args:
      inputs: square images, `[b, h, w, c]`, whose height is a multiple of `side`; or features,
        `[b, f]`.
      side: number of blocks per side.
    """
    if inputs.ndim == 2:
        return inputs
    batch, height, _, channels = inputs.shape
    block = height // side
    blocks = inputs.reshape(batch, side, block, side, block, channels)
    return jnp.mean(blocks, axis=(2, 4)).reshape(batch, -1)
