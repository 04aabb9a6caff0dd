"""Convolution whose gradients are fast inside compiled loops on CPU and under `vmap` elsewhere.

On CPU the gradients are written in the layout that XLA computes fast in a loop. On other devices
the gradients of several runs at once are those of one grouped convolution, for which there are fast
kernels. `vmap` alone would make a convolution of them whose kernels are the images. The choice is
made when a program is lowered: a program exported for a GPU on a CPU machine is the GPU's.
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
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
    return _grouped(images, kernel, stride, 1)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _image_gradient(kernel: Array, gradient: Array, stride: int, sides: tuple[int, int]) -> Array:
    """Return the gradient by the images, which have these sides, from that by the output."""
    return jax.lax.platform_dependent(
        kernel,
        gradient,
        cpu=partial(_image_gradient_in_fast_layout, stride, sides),
        default=_image_gradient_in_groups(stride, sides, 1),
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _kernel_gradient(images: Array, gradient: Array, stride: int, size: int) -> Array:
    """Return the gradient by the kernel, which has this side, from that by the output."""
    return jax.lax.platform_dependent(
        images,
        gradient,
        cpu=partial(_kernel_gradient_in_fast_layout, stride, size),
        default=_kernel_gradient_in_groups(stride, size, 1),
    )


# The three are linear in both of their arguments, and the gradients of any one are the other two.
def _of_convolution(stride: int, saved: tuple[Array, Array], gradient: Array) -> tuple:
    images, kernel = saved
    return (
        _image_gradient(kernel, gradient, stride, images.shape[1:3]),
        _kernel_gradient(images, gradient, stride, kernel.shape[0]),
    )


def _of_image_gradient(stride: int, sides: tuple[int, int], saved: tuple, images: Array) -> tuple:
    kernel, gradient = saved
    return (
        _kernel_gradient(images, gradient, stride, kernel.shape[0]),
        _convolve(images, kernel, stride),
    )


def _of_kernel_gradient(stride: int, size: int, saved: tuple, kernel: Array) -> tuple:
    images, gradient = saved
    return (
        _image_gradient(kernel, gradient, stride, images.shape[1:3]),
        _convolve(images, kernel, stride),
    )


for _function, _gradients in (
    (_convolve, _of_convolution),
    (_image_gradient, _of_image_gradient),
    (_kernel_gradient, _of_kernel_gradient),
):
    _function.defvjp(lambda *inputs, of=_function: (of(*inputs), inputs[:2]), _gradients)


def _grouped(images: Array, kernel: Array, stride: int, groups: int) -> Array:
    """XLA's convolution of images `[b, h, w, g c]` and kernel `[s, s, c, g f]` of g groups."""
    margin = (kernel.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(
        images,
        kernel,
        (stride, stride),
        [(margin, margin)] * 2,
        dimension_numbers=DIMENSIONS,
        feature_group_count=groups,
    )


def _image_gradient_in_groups(
    stride: int, sides: tuple[int, int], groups: int
) -> Callable[[Array, Array], Array]:
    @custom_vmap
    def of_groups(kernel: Array, gradient: Array) -> Array:
        shape = (gradient.shape[0], *sides, kernel.shape[2] * groups)
        convolved = partial(_grouped, kernel=kernel, stride=stride, groups=groups)
        transposed = jax.linear_transpose(convolved, jax.ShapeDtypeStruct(shape, kernel.dtype))
        return transposed(gradient)[0]

    @of_groups.def_vmap
    def of_runs(runs: int, batched: list[bool], kernel: Array, gradient: Array):
        if batched[0]:
            of_all = _image_gradient_in_groups(stride, sides, groups * runs)
            stacked = of_all(*_stacked(runs, batched, kernel, gradient))
            return _unstacked(runs, stacked), True
        # Runs that share a kernel are one larger batch.
        images = of_groups(kernel, gradient.reshape(-1, *gradient.shape[2:]))
        return images.reshape(runs, -1, *images.shape[1:]), True

    return of_groups


def _kernel_gradient_in_groups(
    stride: int, size: int, groups: int
) -> Callable[[Array, Array], Array]:
    @custom_vmap
    def of_groups(images: Array, gradient: Array) -> Array:
        shape = (size, size, images.shape[3] // groups, gradient.shape[3])
        convolved = partial(_grouped, images, stride=stride, groups=groups)
        transposed = jax.linear_transpose(convolved, jax.ShapeDtypeStruct(shape, images.dtype))
        return transposed(gradient)[0]

    @of_groups.def_vmap
    def of_runs(runs: int, batched: list[bool], images: Array, gradient: Array):
        of_all = _kernel_gradient_in_groups(stride, size, groups * runs)
        stacked = of_all(*_stacked(runs, batched, images, gradient))
        return _unstacked(runs, stacked), True

    return of_groups


def _stacked(runs: int, batched: list[bool], *arrays: Array) -> list[Array]:
    """Move the runs of all arrays, `[runs, ..., c]`, into their channels, `[..., runs c]`."""

    def stack(array: Array, is_batched: bool) -> Array:
        if not is_batched:
            return jnp.tile(array, runs)
        return jnp.moveaxis(array, 0, -2).reshape(*array.shape[1:-1], -1)

    return list(map(stack, arrays, batched))


def _unstacked(runs: int, array: Array) -> Array:
    return jnp.moveaxis(array.reshape(*array.shape[:-1], runs, -1), -2, 0)


def _image_gradient_in_fast_layout(
    stride: int, sides: tuple[int, int], kernel: Array, gradient: Array
) -> Array:
    """Return the gradient as a convolution in the layout NHWC, HWIO, with the bits of XLA's own.

    XLA for CPU has a fast convolution for that layout only. It assigns the gradients this layout in
    a program's outermost computation but not in the body of a loop, where they ran 20 to 40 times
    slower.
    """
    margin = (kernel.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(
        gradient,
        jnp.flip(kernel, (0, 1)).swapaxes(2, 3),
        (1, 1),
        [(margin, margin + rest) for rest in _beyond_last_stride(stride, sides, gradient)],
        lhs_dilation=(stride, stride),
        dimension_numbers=DIMENSIONS,
    )


def _kernel_gradient_in_fast_layout(
    stride: int, size: int, images: Array, gradient: Array
) -> Array:
    """Return the gradient in that layout: channels of the images are the batch."""
    margin = (size - 1) // 2
    beyond = _beyond_last_stride(stride, images.shape[1:3], gradient)
    kernel = jax.lax.conv_general_dilated(
        images.transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        [(margin, margin - rest) for rest in beyond],
        rhs_dilation=(stride, stride),
        dimension_numbers=DIMENSIONS,
    )
    return kernel.transpose(1, 2, 0, 3)


def _beyond_last_stride(stride: int, sides: tuple[int, int], gradient: Array) -> list[int]:
    """Return the pixels at the far sides of the images beyond the last stride."""
    return [
        length - (strides - 1) * stride - 1
        for length, strides in zip(sides, gradient.shape[1:3], strict=True)
    ]
