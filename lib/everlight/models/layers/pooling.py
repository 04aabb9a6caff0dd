"""Max pooling whose gradient has no scatter on a GPU."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.models.layers.convolution import Padding, window_positions


def max_pool_even(maps: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    """Return the maximum of each 2x2 block of maps with even sides.

    A reshape and a maximum compile to faster CPU code than a window.
    """
    batch, height, width, channels = maps.shape
    return jnp.max(maps.reshape(batch, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def max_pool(
    images: Float[Array, "b h w c"], window: int, stride: int, padding: Padding
) -> Float[Array, "b h2 w2 c"]:
    """Return the maximum of each window; of equal maxima the first one has the gradient.

    On a GPU the gradient is a sum of shifted arrays, since XLA computes its own one there by atomic
    additions, whose order varies. Elsewhere it is XLA's, which takes less time on a CPU and less
    memory on a TPU.

    Args:
      images: images, `[b, h, w, c]`.
      window: side of the square windows.
      stride: stride in both directions.
      padding: places around the images that are never a maximum.
    """
    return nn.max_pool(images, (window, window), (stride, stride), padding)


def _forward(images: Array, window: int, stride: int, padding: Padding) -> tuple[Array, Array]:
    return max_pool(images, window, stride, padding), images


def _backward(
    window: int, stride: int, padding: Padding, images: Array, gradient: Array
) -> tuple[Array]:
    by_xla, by_shifts = (
        partial(form, window, stride, padding) for form in (_gradient_by_xla, _gradient_by_shifts)
    )
    return (
        jax.lax.platform_dependent(
            images, gradient, cuda=by_shifts, rocm=by_shifts, default=by_xla
        ),
    )


def _gradient_by_xla(
    window: int, stride: int, padding: Padding, images: Array, gradient: Array
) -> Array:
    def pool(images: Array) -> Array:
        return nn.max_pool(images, (window, window), (stride, stride), padding)

    return jax.vjp(pool, images)[1](gradient)[0]


def _gradient_by_shifts(
    window: int, stride: int, padding: Padding, images: Array, gradient: Array
) -> Array:
    def positions(images: Array, outside: float) -> list[Array]:
        padded = jnp.pad(images, ((0, 0), *padding, (0, 0)), constant_values=outside)
        return window_positions(padded, window, stride)

    largest, *others = positions(images, -jnp.inf)
    position = jnp.zeros(gradient.shape, jnp.int32)
    for number, values in enumerate(others, 1):
        is_larger = values > largest
        largest = jnp.where(is_larger, values, largest)
        position = jnp.where(is_larger, number, position)
    parts = [jnp.where(position == number, gradient, 0) for number in range(window**2)]
    return jax.linear_transpose(partial(positions, outside=0), images)(parts)[0]


max_pool.defvjp(_forward, _backward)
