"""Max pooling and both forms of its gradient against loops, and its program for a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.layers.pooling import _gradient_by_shifts, max_pool

KINDS = [
    (3, 2, ((1, 1), (1, 1))),
    (3, 2, ((0, 0), (0, 1))),
    (2, 2, ((0, 1), (0, 0))),
    (3, 1, ((1, 1), (1, 1))),
]


def looped(images, gradient, window, stride, padding):
    """Return maxima, and the gradient of the first maximum of each window, rows first."""
    (top, _), (left, _) = padding
    height, width = images.shape[1:3]
    largest, of_images = np.zeros(gradient.shape), np.zeros(images.shape)
    for image, row, column, channel in np.ndindex(gradient.shape):
        places = [
            (r, c)
            for r in range(row * stride - top, row * stride - top + window)
            for c in range(column * stride - left, column * stride - left + window)
            if 0 <= r < height and 0 <= c < width
        ]
        values = [images[image, r, c, channel] for r, c in places]
        largest[image, row, column, channel] = max(values)
        first = places[int(np.argmax(values))]
        of_images[image, *first, channel] += gradient[image, row, column, channel]
    return largest, of_images


@pytest.mark.parametrize(("window", "stride", "padding"), KINDS)
@pytest.mark.parametrize("levels", [3, 1000])
def test_poolings_equal_loops_with_and_without_ties(window, stride, padding, levels, rng):
    """Few levels of values have ties in most windows, as after a ReLU."""
    images = rng.integers(-levels // 2, levels // 2, size=(2, 7, 6, 3)).astype(np.float32)
    rows, columns = (
        (side + sum(zeros) - window) // stride + 1
        for side, zeros in zip((7, 6), padding, strict=True)
    )
    gradient = rng.normal(size=(2, rows, columns, 3)).astype(np.float32)
    largest, of_images = looped(images, gradient, window, stride, padding)
    output, backward = jax.vjp(lambda x: max_pool(x, window, stride, padding), jnp.asarray(images))
    np.testing.assert_array_equal(output, largest)
    shifted = jax.jit(lambda *arrays: _gradient_by_shifts(window, stride, padding, *arrays))
    for result in (backward(jnp.asarray(gradient))[0], shifted(images, gradient)):
        np.testing.assert_allclose(result, of_images, atol=1e-6)


def test_on_a_gpu_alone_the_gradient_has_no_scatter():
    def gradient(images):
        return jax.grad(lambda x: jnp.sum(max_pool(x, 3, 2, ((1, 1), (1, 1))) ** 2))(images)

    def is_scattered(platform):
        images = jax.ShapeDtypeStruct((4, 2, 8, 8, 3), jnp.float32)
        exported = jax.export.export(jax.jit(jax.vmap(gradient)), platforms=[platform])
        return "stablehlo.select_and_scatter" in exported(images).mlir_module()

    assert [is_scattered(platform) for platform in ("cuda", "cpu", "tpu")] == [False, True, True]
