"""Convolution whose gradients run at full speed inside compiled loops on CPU."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

HE_NORMAL = nn.initializers.he_normal()
DIMENSIONS = ("NHWC", "HWIO", "NHWC")


class Convolution(nn.Module):
    """Square convolution, NHWC, padded equally on all sides by half its kernel.

    Attributes:
      features: output channels.
      size: side of the kernel, odd.
      stride: stride in both directions.
      use_bias: true adds a bias per channel.
      kernel_init: initialiser of the kernel; by default normal with variance 2 / (size² · input
        channels) (He et al. 2015, equation 10).
      dtype: dtype of the computation and output; parameters are float32.
    """

    features: int
    size: int = 3
    stride: int = 1
    use_bias: bool = True
    kernel_init: Initializer = HE_NORMAL
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 f"]:
        """Return the convolved images, `[b, ceil(h / stride), ceil(w / stride), features]`."""
        shape = (self.size, self.size, inputs.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        outputs = convolve(inputs.astype(self.dtype), kernel.astype(self.dtype), self.stride)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            outputs = outputs + bias.astype(self.dtype)
        return outputs


def convolve(
    images: Float[Array, "b h w c"], kernel: Float[Array, "s s c f"], stride: int
) -> Float[Array, "b h2 w2 f"]:
    """Convolve with equal padding of half the kernel on all sides; fast on CPU in loops too.

    Args:
      images: images, `[b, h, w, c]`.
      kernel: kernel of odd side, `[s, s, c, f]`.
      stride: stride in both directions.
    """
    if kernel.shape[0] == 1:
        # A matrix product has gradients 1.5 to 2.5 times as fast as a convolution's.
        return images[:, ::stride, ::stride] @ kernel[0, 0]
    return _convolve(images, kernel, stride)


def patches(images: Float[Array, "b h w c"], size: int, stride: int) -> Float[Array, "b h2 w2 i"]:
    """Return what a kernel `[s, s, c, f]`, as a matrix `[s s c, f]`, multiplies in `convolve`.

    Args:
      images: images, `[b, h, w, c]`.
      size: side s of the kernel, odd.
      stride: stride in both directions.
    """
    margin = (size - 1) // 2
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    shifted = [
        padded[:, down : down + height : stride, right : right + width : stride]
        for down in range(size)
        for right in range(size)
    ]
    return jnp.concatenate(shifted, axis=-1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(images: Array, kernel: Array, stride: int) -> Array:
    """XLA's convolution with gradients written in the layout NHWC, HWIO, with identical bits.

    XLA for CPU has a fast convolution for that layout only. It assigns the gradients this layout in
    a program's outermost computation but not in the body of a loop, where they ran 20 to 40 times
    slower. Gradients written in that layout avoid this.
    """
    margin = (kernel.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), [(margin, margin)] * 2, dimension_numbers=DIMENSIONS
    )


def _forward(images: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return _convolve(images, kernel, stride), (images, kernel)


def _backward(stride: int, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    images, kernel = saved
    margin = (kernel.shape[0] - 1) // 2
    # Pixels at the far side beyond the last stride.
    over = [
        length - (strides - 1) * stride - 1
        for length, strides in zip(images.shape[1:3], gradient.shape[1:3], strict=True)
    ]
    of_images = jax.lax.conv_general_dilated(
        gradient,
        jnp.flip(kernel, (0, 1)).swapaxes(2, 3),
        (1, 1),
        [(margin, margin + rest) for rest in over],
        lhs_dilation=(stride, stride),
        dimension_numbers=DIMENSIONS,
    )
    # Channels of the images become the batch, and the gradient becomes a kernel of their size.
    of_kernel = jax.lax.conv_general_dilated(
        images.transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        [(margin, margin - rest) for rest in over],
        rhs_dilation=(stride, stride),
        dimension_numbers=DIMENSIONS,
    )
    return of_images, of_kernel.transpose(1, 2, 0, 3)


_convolve.defvjp(_forward, _backward)
