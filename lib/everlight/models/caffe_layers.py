"""Caffe's layers: grouped convolution, ceil-mode pooling, local response normalisation."""

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.convolution import convolve


class CaffeConvolution(nn.Module):
    """Square grouped convolution with bias, NHWC, with any padding up to half its kernel.

    With g groups, the first 1/g of the outputs read the first 1/g of the input channels, and so on.

    Attributes:
      features: output channels.
      size: side of the kernel, odd.
      stride: stride in both directions.
      padding: zeros on every side, at most (size - 1) / 2.
      groups: number of groups; it divides the channels of inputs and outputs.
      dtype: dtype of the computation and output; parameters are float32.
    """

    features: int
    size: int
    stride: int = 1
    padding: int = 0
    groups: int = 1
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 f"]:
        """Return the convolved images, of side floor((h + 2 padding - size) / stride) + 1."""
        shape = (self.size, self.size, inputs.shape[-1] // self.groups, self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape)
        bias = self.param("bias", nn.initializers.zeros, (self.features,))
        # Groups are computed one by one: a grouped convolution is slow on CPU.
        parts = [
            _convolve(*part, self.stride, self.padding)
            for part in zip(
                jnp.split(inputs.astype(self.dtype), self.groups, axis=-1),
                jnp.split(kernel.astype(self.dtype), self.groups, axis=-1),
                strict=True,
            )
        ]
        return jnp.concatenate(parts, axis=-1) + bias.astype(self.dtype)


def _convolve(
    images: Float[Array, "b h w c"], kernel: Float[Array, "s s c f"], stride: int, padding: int
) -> Float[Array, "b h2 w2 f"]:
    """Convolve by `convolve`, padded by half the kernel, without the first windows.

    Zeros in front align the window that begins `padding` before the image with its stride.
    """
    size = kernel.shape[0]
    too_far = (size - 1) // 2 - padding
    skipped = -(-too_far // stride)
    front = skipped * stride - too_far
    moved = jnp.pad(images, [(0, 0), (front, 0), (front, 0), (0, 0)])
    rows, columns = ((side + 2 * padding - size) // stride + 1 for side in images.shape[1:3])
    result = convolve(moved, kernel, stride)
    return result[:, skipped : skipped + rows, skipped : skipped + columns]


def ceil_max_pool(
    images: Float[Array, "b h w c"], window: int, stride: int
) -> Float[Array, "b h2 w2 c"]:
    """Max pooling whose last windows may extend beyond the image, `[b, h2, w2, c]`.

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

    paddings = [padding(side) for side in images.shape[1:3]]
    return nn.max_pool(images, (window, window), (stride, stride), paddings)


def local_response_normalization(
    images: Float[Array, "*b c"],
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
) -> Float[Array, "*b c"]:
    """Return x / (k + alpha / size · Σ x'²)^beta, summed over the `size` channels around each.

    Krizhevsky et al. 2012, section 3.3, in Caffe's form, which divides alpha by the size. Channels
    out of range count as 0. Low-precision images are normalised in float32, and the output has the
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
    total = sum(squares[..., place : place + channels] for place in range(size))
    return (images * (k + alpha / size * total) ** -beta).astype(images.dtype)
