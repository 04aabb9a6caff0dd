"""Convolution whose gradients are fast inside compiled loops on CPU and under `vmap` elsewhere.

On CPU the gradients are written in the layout that XLA computes fast in a loop, and groups are
computed one by one. On other devices the gradients of several runs at once are those of one grouped
convolution, for which there are fast kernels. `vmap` alone would make a convolution of them whose
kernels are the images. A depthwise convolution is a sum of shifted products: on accelerators this
is one kernel for any number of runs, as is the gradient by the images, and its gradient by the
kernel is that of a grouped convolution.

The choice is made when a program is lowered: a program exported for a GPU on a CPU machine is the
GPU's.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Shaped

HE_NORMAL = nn.initializers.he_normal()
DIMENSIONS = ("NHWC", "HWIO", "NHWC")
Padding = tuple[tuple[int, int], tuple[int, int]]
"""Zeros above and below the images, then left and right of them."""
NO_PADDING: Padding = ((0, 0), (0, 0))


class Convolution(nn.Module):
    """Square convolution, NHWC, padded by default equally on all sides by half its kernel.

    Attributes:
      features: output channels.
      size: side of the kernel, odd if the padding is None.
      stride: stride in both directions.
      use_bias: true adds a bias per channel.
      kernel_init: initializer of the kernel; by default truncated normal with variance 2 / (size² ·
        input channels) (He et al. 2015, equation 10).
      dtype: dtype of the computation and output; parameters are float32.
      padding: zeros around the images; None is half the kernel on all sides.
      groups: groups as in `convolve`; their number divides the channels of inputs and outputs.
    """

    features: int
    size: int = 3
    stride: int = 1
    use_bias: bool = True
    kernel_init: Initializer = HE_NORMAL
    dtype: DTypeLike = jnp.float32
    padding: Padding | None = None
    groups: int = 1

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 f"]:
        """Return the convolved images, by default `[b, ceil(h / stride), ceil(w / stride), f]`."""
        shape = (self.size, self.size, inputs.shape[-1] // self.groups, self.features)
        kernel = self.param("kernel", self.kernel_init, shape).astype(self.dtype)
        inputs = inputs.astype(self.dtype)
        outputs = convolve(inputs, kernel, self.stride, self.padding, self.groups)
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
            outputs = outputs + bias.astype(self.dtype)
        return outputs


def convolve(
    images: Float[Array, "b h w c"],
    kernel: Float[Array, "s s i f"],
    stride: int,
    padding: Padding | None = None,
    groups: int = 1,
) -> Float[Array, "b h2 w2 f"]:
    """Convolve, by default with equal padding of half the kernel; fast on CPU in loops too.

    With g groups, the first 1/g of the outputs read the first 1/g of the input channels, and so on.

    Args:
      images: images, `[b, h, w, c]`.
      kernel: kernel, `[s, s, c / groups, f]`; its side is odd if the padding is None.
      stride: stride in both directions.
      padding: zeros around the images; None is half the kernel on all sides.
      groups: number of groups; it divides the channels of images and outputs.
    """
    size = kernel.shape[0]
    if size == groups == 1 and padding is None:
        # A matrix product has gradients 1.5 to 2.5 times as fast as a convolution's.
        return images[:, ::stride, ::stride] @ kernel[0, 0]
    is_depthwise = 1 < groups == images.shape[-1] == kernel.shape[-1]
    geometry = _Geometry(stride, _padding(size, padding), groups, is_depthwise)
    return _convolve(images, kernel, geometry)


def patches(
    images: Float[Array, "b h w c"], size: int, stride: int, padding: Padding | None = None
) -> Float[Array, "b h2 w2 i"]:
    """Return what a kernel `[s, s, c, f]`, as a matrix `[s s c, f]`, multiplies in `convolve`.

    Args:
      images: images, `[b, h, w, c]`.
      size: side s of the kernel, odd if the padding is None.
      stride: stride in both directions.
      padding: zeros around the images; None is half the kernel on all sides.
    """
    padded = _pad_images(images, _padding(size, padding))
    return jnp.concatenate(window_positions(padded, size, stride), axis=-1)


def window_positions(
    padded: Shaped[Array, "b h w c"], size: int, stride: int
) -> list[Shaped[Array, "b h2 w2 c"]]:
    """Return an array for each position within a window, rows first: its values in all windows.

    Args:
      padded: padded images, `[b, h, w, c]`.
      size: side of the square windows.
      stride: stride in both directions.
    """
    height, width = ((side - size) // stride * stride + 1 for side in padded.shape[1:3])
    return [
        padded[:, row : row + height : stride, column : column + width : stride]
        for row in range(size)
        for column in range(size)
    ]


class _Geometry(NamedTuple):
    """Stride, padding and groups of a convolution."""

    stride: int
    padding: Padding
    groups: int = 1
    is_depthwise: bool = False
    """True for several groups, each of one input and one output channel."""


def _padding(size: int, padding: Padding | None) -> Padding:
    margin = (size - 1) // 2
    return ((margin, margin), (margin, margin)) if padding is None else padding


def _pad_images(images: Array, padding: Padding) -> Array:
    return jnp.pad(images, ((0, 0), *padding, (0, 0)))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(images: Array, kernel: Array, geometry: _Geometry) -> Array:
    if geometry.groups == 1:
        return _grouped_convolution(images, kernel, geometry)
    default = _wide_products if geometry.is_depthwise else _grouped_convolution
    return jax.lax.platform_dependent(
        images,
        kernel,
        cpu=partial(_compute_by_group, geometry, _grouped_convolution, _products),
        default=partial(default, geometry=geometry),
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _image_gradient(
    kernel: Array, gradient: Array, geometry: _Geometry, sides: tuple[int, int]
) -> Array:
    """Return the gradient by the images, which have these sides, from that by the output."""
    layout_form = partial(_image_gradient_in_fast_layout, sides=sides)
    products_form = partial(_transpose_by_images, _products, sides=sides)
    if geometry.is_depthwise:
        default = partial(_transpose_by_images, _wide_products, geometry=geometry, sides=sides)
    else:
        default = _image_gradient_in_groups(geometry, sides)
    cpu = partial(_compute_by_group, geometry, layout_form, products_form)
    return jax.lax.platform_dependent(kernel, gradient, cpu=cpu, default=default)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _kernel_gradient(images: Array, gradient: Array, geometry: _Geometry, size: int) -> Array:
    """Return the gradient by the kernel, which has this side, from that by the output."""
    layout_form = partial(_kernel_gradient_in_fast_layout, size=size)
    products_form = partial(_transpose_by_kernel, _products, size=size)
    return jax.lax.platform_dependent(
        images,
        gradient,
        cpu=partial(_compute_by_group, geometry, layout_form, products_form),
        default=_kernel_gradient_in_groups(geometry, size),
    )


# The three are linear in both of their arguments, and the gradients of any one are the other two.
def _convolution_vjp(geometry: _Geometry, saved: tuple[Array, Array], gradient: Array) -> tuple:
    images, kernel = saved
    return (
        _image_gradient(kernel, gradient, geometry, images.shape[1:3]),
        _kernel_gradient(images, gradient, geometry, kernel.shape[0]),
    )


def _image_gradient_vjp(
    geometry: _Geometry, sides: tuple[int, int], saved: tuple, images: Array
) -> tuple:
    kernel, gradient = saved
    return (
        _kernel_gradient(images, gradient, geometry, kernel.shape[0]),
        _convolve(images, kernel, geometry),
    )


def _kernel_gradient_vjp(geometry: _Geometry, size: int, saved: tuple, kernel: Array) -> tuple:
    images, gradient = saved
    return (
        _image_gradient(kernel, gradient, geometry, images.shape[1:3]),
        _convolve(images, kernel, geometry),
    )


for _function, _gradients in (
    (_convolve, _convolution_vjp),
    (_image_gradient, _image_gradient_vjp),
    (_kernel_gradient, _kernel_gradient_vjp),
):
    _function.defvjp(
        lambda *inputs, function=_function: (function(*inputs), inputs[:2]), _gradients
    )


def _grouped_convolution(images: Array, kernel: Array, geometry: _Geometry) -> Array:
    """Convolve images `[b, h, w, g c]` and a kernel `[s, s, c, g f]` of g groups by XLA."""
    return jax.lax.conv_general_dilated(
        images,
        kernel,
        (geometry.stride, geometry.stride),
        geometry.padding,
        dimension_numbers=DIMENSIONS,
        feature_group_count=geometry.groups,
    )


def _products(images: Array, kernel: Array, geometry: _Geometry) -> Array:
    """Return a depthwise convolution with a kernel `[s, s, 1, c]`, as a sum of shifted products."""
    size = kernel.shape[0]
    weights = (kernel[row, column, 0] for row in range(size) for column in range(size))
    parts = window_positions(_pad_images(images, geometry.padding), size, geometry.stride)
    return sum(weight * part for weight, part in zip(weights, parts, strict=True))


def _wide_products(images: Array, kernel: Array, geometry: _Geometry) -> Array:
    """Return `_products`, summed in float32 at least."""
    wide = jnp.promote_types(images.dtype, jnp.float32)
    return _products(images.astype(wide), kernel.astype(wide), geometry).astype(images.dtype)


Form = Callable[[Array, Array, _Geometry], Array]
"""A function of two arrays that is linear in both."""


def _compute_by_group(
    geometry: _Geometry, group_form: Form, channel_form: Form, first: Array, second: Array
) -> Array:
    """Compute group by group; a grouped convolution is 4 to 25 times as slow on CPU."""
    if geometry.groups == 1:
        return group_form(first, second, geometry)
    if geometry.is_depthwise:
        return channel_form(first, second, geometry)
    pairs = zip(*(jnp.split(array, geometry.groups, -1) for array in (first, second)), strict=True)
    parts = [group_form(*pair, geometry._replace(groups=1)) for pair in pairs]
    return jnp.concatenate(parts, axis=-1)


def _transpose_by_images(
    form: Form, kernel: Array, gradient: Array, geometry: _Geometry, sides: tuple[int, int]
) -> Array:
    shape = (gradient.shape[0], *sides, kernel.shape[2] * geometry.groups)
    convolved = partial(form, kernel=kernel, geometry=geometry)
    transposed = jax.linear_transpose(convolved, jax.ShapeDtypeStruct(shape, kernel.dtype))
    return transposed(gradient)[0]


def _transpose_by_kernel(
    form: Form, images: Array, gradient: Array, geometry: _Geometry, size: int
) -> Array:
    shape = (size, size, images.shape[3] // geometry.groups, gradient.shape[3])
    convolved = partial(form, images, geometry=geometry)
    transposed = jax.linear_transpose(convolved, jax.ShapeDtypeStruct(shape, images.dtype))
    return transposed(gradient)[0]


def _image_gradient_in_groups(
    geometry: _Geometry, sides: tuple[int, int]
) -> Callable[[Array, Array], Array]:
    @custom_vmap
    def group_gradient(kernel: Array, gradient: Array) -> Array:
        return _transpose_by_images(_grouped_convolution, kernel, gradient, geometry, sides)

    @group_gradient.def_vmap
    def runs_gradient(runs: int, batched: list[bool], kernel: Array, gradient: Array):
        if batched[0]:
            gradient_of_all = _image_gradient_in_groups(_runs_as_groups(runs, geometry), sides)
            stacked = gradient_of_all(*_merge_runs(runs, batched, kernel, gradient))
            return _split_runs(runs, stacked), True
        # Runs that share a kernel are one larger batch.
        images = group_gradient(kernel, gradient.reshape(-1, *gradient.shape[2:]))
        return images.reshape(runs, -1, *images.shape[1:]), True

    return group_gradient


def _kernel_gradient_in_groups(geometry: _Geometry, size: int) -> Callable[[Array, Array], Array]:
    @custom_vmap
    def group_gradient(images: Array, gradient: Array) -> Array:
        return _transpose_by_kernel(_grouped_convolution, images, gradient, geometry, size)

    @group_gradient.def_vmap
    def runs_gradient(runs: int, batched: list[bool], images: Array, gradient: Array):
        gradient_of_all = _kernel_gradient_in_groups(_runs_as_groups(runs, geometry), size)
        stacked = gradient_of_all(*_merge_runs(runs, batched, images, gradient))
        return _split_runs(runs, stacked), True

    return group_gradient


def _runs_as_groups(runs: int, geometry: _Geometry) -> _Geometry:
    return geometry._replace(groups=geometry.groups * runs)


def _merge_runs(runs: int, batched: list[bool], *arrays: Array) -> list[Array]:
    """Move the runs of all arrays, `[runs, ..., c]`, into their channels, `[..., runs c]`."""

    def stack(array: Array, is_batched: bool) -> Array:
        if not is_batched:
            return jnp.tile(array, runs)
        return jnp.moveaxis(array, 0, -2).reshape(*array.shape[1:-1], -1)

    return list(map(stack, arrays, batched))


def _split_runs(runs: int, array: Array) -> Array:
    return jnp.moveaxis(array.reshape(*array.shape[:-1], runs, -1), -2, 0)


def _image_gradient_in_fast_layout(
    kernel: Array, gradient: Array, geometry: _Geometry, sides: tuple[int, int]
) -> Array:
    """Return the gradient as a convolution in the layout NHWC, HWIO, with the bits of XLA's own.

    XLA for CPU has a fast convolution for that layout only. It assigns the gradients this layout in
    a program's outermost computation but not in the body of a loop, where they ran 20 to 40 times
    slower.
    """
    last = kernel.shape[0] - 1
    beyond = _unread_pixels(geometry, sides, kernel.shape[0], gradient)
    paddings = [
        (last - before, last - after + rest)
        for (before, after), rest in zip(geometry.padding, beyond, strict=True)
    ]
    return jax.lax.conv_general_dilated(
        gradient,
        jnp.flip(kernel, (0, 1)).swapaxes(2, 3),
        (1, 1),
        paddings,
        lhs_dilation=(geometry.stride, geometry.stride),
        dimension_numbers=DIMENSIONS,
    )


def _kernel_gradient_in_fast_layout(
    images: Array, gradient: Array, geometry: _Geometry, size: int
) -> Array:
    """Return the gradient in that layout: channels of the images are the batch."""
    beyond = _unread_pixels(geometry, images.shape[1:3], size, gradient)
    paddings = [
        (before, after - rest)
        for (before, after), rest in zip(geometry.padding, beyond, strict=True)
    ]
    kernel = jax.lax.conv_general_dilated(
        images.transpose(3, 1, 2, 0),
        gradient.transpose(1, 2, 0, 3),
        (1, 1),
        paddings,
        rhs_dilation=(geometry.stride, geometry.stride),
        dimension_numbers=DIMENSIONS,
    )
    return kernel.transpose(1, 2, 0, 3)


def _unread_pixels(
    geometry: _Geometry, sides: Sequence[int], size: int, gradient: Array
) -> list[int]:
    """Return the pixels at the far sides of the padded images that no window reaches."""
    return [
        side + sum(padding) - size - (outputs - 1) * geometry.stride
        for side, padding, outputs in zip(sides, geometry.padding, gradient.shape[1:3], strict=True)
    ]
