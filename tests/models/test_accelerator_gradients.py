"""Gradients on accelerators: of grouped convolutions, against float64, and in exported programs."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.models import ReducedResNet
from everlight.models.layers import convolution
from everlight.models.layers.normalization import _moments_in_one_pass, normalize
from tests.models.exported_programs import convolutions
from tests.models.layers.xla_convolution import xlas_convolution

SIDES = 9, 8
RUNS = 8
CONVOLUTIONS_3X3 = 7
"""In a residual network of one block per stage; its two shortcuts are matrix products."""


def gradients_in_float64(images, kernel, gradient, stride, padding, groups=1):
    """Return the output and gradients of the sum of gradient * convolution, by kernel positions."""
    size, (rows, columns) = len(kernel), gradient.shape[1:3]
    beyond = [(before, after + size) for before, after in padding]
    padded = np.pad(np.float64(images), [(0, 0), *beyond, (0, 0)])
    of_padded, of_kernel = np.zeros_like(padded), np.zeros(kernel.shape)
    output = np.zeros(gradient.shape)
    by_group = np.float64(gradient).reshape(*gradient.shape[:3], groups, -1)
    for row in range(size):
        for column in range(size):
            down = slice(row, row + rows * stride, stride)
            right = slice(column, column + columns * stride, stride)
            window = padded[:, down, right]
            window = window.reshape(*window.shape[:3], groups, -1)
            weights = np.float64(kernel[row, column]).reshape(kernel.shape[2], groups, -1)
            output += np.einsum("bhwgc,cgf->bhwgf", window, weights).reshape(output.shape)
            product = np.einsum("bhwgc,bhwgf->cgf", window, by_group)
            of_kernel[row, column] = product.reshape(kernel.shape[2:])
            product = np.einsum("bhwgf,cgf->bhwgc", by_group, weights)
            of_padded[:, down, right] += product.reshape(*product.shape[:3], -1)
    (top, _), (left, _) = padding
    height, width = images.shape[1:3]
    return output, of_padded[:, top : top + height, left : left + width], of_kernel


@pytest.mark.parametrize("size", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("shared", ["", "images", "kernel"])
def test_gradients_of_groups_are_those_of_float64_for_runs_of_runs(size, stride, shared, rng):
    """Two levels of `vmap` have six runs in three and two, of which some share an array."""
    images = rng.normal(size=(3, 2, 2, *SIDES, 3)).astype(np.float32)
    kernel = rng.normal(size=(3, 2, size, size, 3, 4)).astype(np.float32)
    rows, columns = (-(-side // stride) for side in SIDES)
    gradient = rng.normal(size=(3, 2, 2, rows, columns, 4)).astype(np.float32)
    if shared:
        one = {"images": images, "kernel": kernel}[shared]
        one[:] = one[:1, :1].copy()
    image_axes = None if shared == "images" else 0
    kernel_axes = None if shared == "kernel" else 0
    first_images = images[0, 0] if shared == "images" else images
    first_kernel = kernel[0, 0] if shared == "kernel" else kernel

    def of_runs(function, axes):
        return jax.jit(jax.vmap(jax.vmap(function, in_axes=axes), in_axes=axes))

    padding = (((size - 1) // 2,) * 2,) * 2
    geometry = convolution._Geometry(stride, padding)
    by_images = of_runs(convolution._image_gradient_in_groups(geometry, SIDES), (kernel_axes, 0))
    by_kernel = of_runs(convolution._kernel_gradient_in_groups(geometry, size), (image_axes, 0))
    of_images, of_kernel = by_images(first_kernel, gradient), by_kernel(first_images, gradient)
    for place in np.ndindex(3, 2):
        arrays = images[place], kernel[place], gradient[place]
        _, *expected = gradients_in_float64(*arrays, stride, padding)
        np.testing.assert_allclose(of_images[place], expected[0], atol=1e-4)
        np.testing.assert_allclose(of_kernel[place], expected[1], atol=2e-4)


@pytest.fixture(params=["cpu", "accelerator"])
def device(request, monkeypatch):
    """Return the name of the branch of `platform_dependent` that is computed."""
    if request.param == "accelerator":
        chosen = lambda *arrays, cpu, default: default(*arrays)  # noqa: E731
        monkeypatch.setattr(jax.lax, "platform_dependent", chosen)
    return request.param


HALF_3, HALF_5, SAME_3, SAME_5 = (((n, m), (n, m)) for n, m in ((1, 1), (2, 2), (0, 1), (1, 2)))
NONE = (0, 0), (0, 0)
KINDS = [
    *((size, stride, half, 4, 4) for size, half in ((3, HALF_3), (5, HALF_5)) for stride in (1, 2)),
    (3, 2, SAME_3, 4, 4),
    (5, 2, SAME_5, 4, 4),
    (3, 2, SAME_3, 1, 6),
    (2, 1, NONE, 1, 6),
    (5, 2, NONE, 1, 6),
    (5, 1, HALF_5, 2, 6),
    (3, 1, HALF_3, 2, 6),
    (3, 1, HALF_3, 4, 8),
    (7, 4, NONE, 2, 6),
]
"""Size, stride, padding, groups and outputs for four input channels; the first are depthwise."""


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(("size", "stride", "padding", "groups", "features"), KINDS)
def test_groups_and_paddings_of_several_runs_are_those_of_float64(
    size, stride, padding, groups, features, rng
):
    images = rng.normal(size=(3, 2, *SIDES, 4)).astype(np.float32)
    kernel = rng.normal(size=(3, size, size, 4 // groups, features)).astype(np.float32)
    rows, columns = (
        (side + sum(zeros) - size) // stride + 1 for side, zeros in zip(SIDES, padding, strict=True)
    )
    gradient = rng.normal(size=(3, 2, rows, columns, features)).astype(np.float32)

    def of_run(images, kernel, gradient):
        form = lambda *arrays: convolution.convolve(*arrays, stride, padding, groups)  # noqa: E731
        output, backward = jax.vjp(form, images, kernel)
        return output, *backward(gradient)

    together = jax.jit(jax.vmap(of_run))(images, kernel, gradient)
    single = jax.jit(of_run)(images[0], kernel[0], gradient[0])
    for run in range(3):
        arrays = images[run], kernel[run], gradient[run]
        expected = gradients_in_float64(*arrays, stride, padding, groups)
        for results, right in zip(together, expected, strict=True):
            np.testing.assert_allclose(results[run], right, atol=2e-4)
        if run == 0:
            for result, right in zip(single, expected, strict=True):
                np.testing.assert_allclose(result, right, atol=2e-4)


def test_a_depthwise_sum_of_low_precision_on_an_accelerator_is_rounded_once(rng, device):
    images = jnp.asarray(rng.normal(size=(1, 9, 9, 4)), jnp.bfloat16)
    kernel = jnp.asarray(rng.normal(size=(5, 5, 1, 4)), jnp.bfloat16)
    result = convolution.convolve(images, kernel, 1, HALF_5, 4)
    wide = (np.float64(array) for array in (images, kernel))
    expected, _, _ = gradients_in_float64(*wide, np.zeros((1, 9, 9, 4)), 1, HALF_5, 4)
    error = np.max(np.abs(np.float64(result) - expected) / np.maximum(np.abs(expected), 1))
    assert result.dtype == jnp.bfloat16
    assert error < (2**-8 if device == "accelerator" else 2**-4)


def test_second_derivatives_are_those_of_xlas_convolution(rng):
    images = jnp.asarray(rng.normal(size=(2, *SIDES, 3)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 3, 4)), jnp.float32)

    def second(form):
        def first(images, kernel):
            return jax.grad(lambda *arrays: jnp.sum(jnp.sin(form(*arrays, 2))), (0, 1))(
                images, kernel
            )

        def slopes(images, kernel):
            return sum(jnp.sum(jnp.cos(leaf)) for leaf in first(images, kernel))

        return jax.grad(slopes, (0, 1))(images, kernel)

    for actual, reference in zip(
        second(convolution.convolve), second(xlas_convolution), strict=True
    ):
        np.testing.assert_allclose(actual, reference, atol=2e-4)


@pytest.mark.parametrize("ratio", [0, 1, 10])
def test_moments_of_one_pass_lose_few_digits(ratio, rng):
    inputs = rng.normal(ratio, 1, size=(64, 8, 8, 5)).astype(np.float32)
    mean, variance = jax.jit(_moments_in_one_pass)(inputs)
    wide = np.float64(inputs)
    np.testing.assert_allclose(mean, wide.mean((0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(variance, wide.var((0, 1, 2)), rtol=3e-5)


def exported_step(runs):
    """Return the text of a GPU's program for a training step of several runs at once."""
    net, optimizer = ReducedResNet(10, 1), optax.sgd(0.1, momentum=0.9)
    images = jax.ShapeDtypeStruct((4, 32, 32, 3), jnp.float32)

    def begin(key):
        variables = net.init(key, jnp.zeros(images.shape), False)
        return variables, optimizer.init(variables["params"])

    def step(state, images):
        variables, moments = state

        def loss(params):
            inputs = {**variables, "params": params}
            outputs, changed = net.apply(inputs, images, True, mutable=["batch_stats"])
            return jnp.mean(outputs.logits**2), changed

        gradient, changed = jax.grad(loss, has_aux=True)(variables["params"])
        updates, moments = optimizer.update(gradient, moments)
        return {**changed, "params": optax.apply_updates(variables["params"], updates)}, moments

    def loop(state, images):
        return jax.lax.fori_loop(0, 5, lambda _, state: step(state, images), state)

    if runs == 1:
        state = jax.eval_shape(begin, jax.random.key(0))
        program = jax.jit(loop)
    else:
        state = jax.eval_shape(jax.vmap(begin), jax.random.split(jax.random.key(0), runs))
        images = jax.ShapeDtypeStruct((runs, *images.shape), images.dtype)
        program = jax.jit(jax.vmap(loop))
    return jax.export.export(program, platforms=["cuda"])(state, images).mlir_module()


def test_a_step_of_several_runs_has_grouped_gradients_on_a_gpu():
    result = convolutions(exported_step(RUNS))
    assert len(result) == 3 * CONVOLUTIONS_3X3 - 1  # The images have no gradient.
    by_kernel = [groups for groups, _, _ in result if groups == RUNS]
    assert len(by_kernel) == CONVOLUTIONS_3X3
    # A gradient by a grouped kernel has the output's gradient as its kernel.
    others = [sides for groups, _, sides in result if groups == 1]
    assert all(sides == [3, 3] for sides in others), others
    assert all(groups == RUNS for batch, groups, _ in result if batch == 1)


def test_one_run_has_plain_gradients_on_a_gpu():
    result = convolutions(exported_step(1))
    assert len(result) == 3 * CONVOLUTIONS_3X3 - 1
    assert {(batch, features) for batch, features, _ in result} == {(1, 1)}


def test_a_gpu_sums_batch_norm_once_per_direction():
    """One reduction forward gives mean and variance, one backward gives both sums."""
    inputs = jax.ShapeDtypeStruct((4, 8, 8, 16), jnp.float32)
    channels = jax.ShapeDtypeStruct((16,), jnp.float32)

    def gradient(*arguments):
        return jax.grad(lambda *all: jnp.sum(jnp.sin(normalize(*all)[0])), (0, 1, 2))(*arguments)

    def reductions(platform):
        exported = jax.export.export(jax.jit(gradient), platforms=[platform])
        text = exported(inputs, channels, channels).mlir_module()
        return len(re.findall(r"stablehlo\.reduce\(", text))

    assert (reductions("cuda"), reductions("cpu")) == (2, 4)
