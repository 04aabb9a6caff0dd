"""One convolution in two forms, and the one place that chooses between them."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Form = Literal["native", "shifted"]


def convolution_form(compiled_loop: bool) -> Form:
    """The form that is fast where the convolution will run.

    On CPU, XLA's native convolution inside a compiled loop runs 20 to 40 times slower than
    dispatched by itself, while sums of shifted matrix products do not suffer (BUILD_NOTES.md).
    Accelerators take the native form always.

    Args:
      compiled_loop: whether the network runs inside a compiled loop (`run_sequence`) or is
        dispatched step by step (`drive_sequence`).
    """
    return "shifted" if compiled_loop and jax.default_backend() == "cpu" else "native"


class Convolution(nn.Module):
    """A square convolution with SAME padding, NHWC.

    Attributes:
      features: output channels.
      size: side of the kernel, odd.
      stride: in both directions.
      use_bias: adds one per channel.
      form: "native" is XLA's convolution, "shifted" a sum of size² matrix products; the same
        numbers up to rounding.
    """

    features: int
    size: int = 3
    stride: int = 1
    use_bias: bool = True
    form: Form = "native"

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 f"]:
        """The convolved images, `[b, ceil(h / stride), ceil(w / stride), features]`."""
        shape = (self.size, self.size, inputs.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.he_normal(), shape)
        outputs = (_native if self.form == "native" else _shifted)(inputs, kernel, self.stride)
        if self.use_bias:
            outputs = outputs + self.param("bias", nn.initializers.zeros, (self.features,))
        return outputs


def _margin(size: int) -> list[tuple[int, int]]:
    # Symmetric, as the published networks pad, also where a stride would let SAME pad less.
    return [((size - 1) // 2, (size - 1) // 2)] * 2


def _native(inputs: Array, kernel: Array, stride: int) -> Array:
    return jax.lax.conv_general_dilated(
        inputs,
        kernel,
        (stride, stride),
        _margin(kernel.shape[0]),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _shifted(inputs: Array, kernel: Array, stride: int) -> Array:
    size = kernel.shape[0]
    height, width = (-(-length // stride) for length in inputs.shape[1:3])
    padded = jnp.pad(inputs, [(0, 0), *_margin(size), (0, 0)])
    total = 0
    for row in range(size):
        for column in range(size):
            window = padded[
                :,
                row : row + stride * (height - 1) + 1 : stride,
                column : column + stride * (width - 1) + 1 : stride,
            ]
            total = total + window @ kernel[row, column]
    return total
