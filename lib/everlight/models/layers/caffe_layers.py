"""Caffe's layers: ceil-mode pooling and local response normalization."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.models.layers.pooling import max_pool


def ceil_max_pool(
    images: Float[Array, "b h w c"], window: int, stride: int
) -> Float[Array, "b h2 w2 c"]:
    """Pool by maximum over windows that may extend beyond the image, `[b, h2, w2, c]`.

    Caffe's rule for a side h: ceil((h - window) / stride) + 1 windows, minus one that would begin
    outside the image.

    Args:
      images: images, `[b, h, w, c]`.
      window: side of the square window.
      stride: stride in both directions.
    """

    def padding(side: int) -> tuple[int, int]:
        last = min(-(-(side - window) // stride) * stride, (side - 1) // stride * stride)
        return 0, max(0, last + window - side)

    height, width = images.shape[1:3]
    return max_pool(images, window, stride, (padding(height), padding(width)))


def local_response_normalization(
    images: Float[Array, "*b c"],
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
) -> Float[Array, "*b c"]:
    """Return x / (k + alpha / size · Σ x'²)^beta, summed over the `size` channels around each.

    Krizhevsky et al. 2012, section 3.3, in Caffe's form, which divides alpha by the size. Channels
    out of range count as 0. Low-precision images are normalized in float32, and the output has the
    input's dtype.

    Args:
      images: images, `[..., c]`.
      size: number of channels in the sum, odd.
      alpha: weight of their mean square.
      beta: exponent.
      k: additive constant.
    """
    channels = images.shape[-1]
    squares = jnp.pad(
        images.astype(jnp.float32) ** 2, [(0, 0)] * (images.ndim - 1) + [(size // 2, size // 2)]
    )
    total = sum(squares[..., position : position + channels] for position in range(size))
    return (images * (k + alpha / size * total) ** -beta).astype(images.dtype)
