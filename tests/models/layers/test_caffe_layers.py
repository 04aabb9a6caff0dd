"""Caffe's layers against loops in float64 and, where it is installed, PyTorch."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.models.layers.caffe_layers import ceil_max_pool, local_response_normalization
from everlight.models.layers.convolution import Convolution

# Convolutions of both nets: size, stride, padding, groups.
KINDS = [(11, 4, 0, 1), (7, 2, 0, 1), (5, 1, 2, 2), (5, 2, 1, 1), (3, 1, 1, 1), (3, 1, 1, 2)]


def looped_convolution(images, kernel, bias, stride, padding, groups):
    images = np.pad(images, [(0, 0), (padding, padding), (padding, padding), (0, 0)])
    size, _, depth, features = kernel.shape
    rows, columns = ((side - size) // stride + 1 for side in images.shape[1:3])
    result = np.zeros((len(images), rows, columns, features))
    for row, column, feature in np.ndindex(rows, columns, features):
        group = feature // (features // groups)
        down, right = (slice(item * stride, item * stride + size) for item in (row, column))
        window = images[:, down, right, group * depth : (group + 1) * depth]
        result[:, row, column, feature] = (window * kernel[..., feature]).sum(axis=(1, 2, 3))
    return result + bias


@pytest.mark.parametrize(("size", "stride", "padding", "groups"), KINDS)
@pytest.mark.parametrize("height", [15, 18])
def test_convolution_is_the_loops_and_pytorchs(size, stride, padding, groups, height, rng):
    images = rng.normal(size=(2, height, 16, 4))
    kernel = rng.normal(size=(size, size, 4 // groups, 6)) / size
    bias = rng.normal(size=6)
    margin = ((padding, padding), (padding, padding))
    layer = Convolution(6, size, stride, padding=margin, groups=groups)
    params = {"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.asarray(bias, jnp.float32)}
    shapes = jax.eval_shape(layer.init, jax.random.key(0), jnp.ones(images.shape))["params"]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    result = layer.apply({"params": params}, jnp.asarray(images, jnp.float32))
    expected = looped_convolution(images, kernel, bias, stride, padding, groups)
    np.testing.assert_allclose(result, expected, atol=2e-5)
    torch = pytest.importorskip("torch")
    arrays = images.transpose(0, 3, 1, 2), kernel.transpose(3, 2, 0, 1), bias
    inputs = (torch.tensor(array) for array in arrays)
    reference = torch.nn.functional.conv2d(*inputs, stride, padding, groups=groups)
    np.testing.assert_allclose(result, reference.permute(0, 2, 3, 1), atol=2e-5)


def looped_pool(images, window, stride):
    """Pool with loops: a window follows while the last ends inside, if it begins inside."""

    def starts(side):
        begins = [0]
        while begins[-1] + window < side and begins[-1] + stride < side:
            begins.append(begins[-1] + stride)
        return begins

    rows, columns = starts(images.shape[1]), starts(images.shape[2])
    result = np.zeros((len(images), len(rows), len(columns), images.shape[3]))
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        part = images[:, row : row + window, column : column + window]
        result[:, i, j] = part.max(axis=(1, 2))
    return result


@settings(max_examples=25)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4), st.integers(1, 5))
def test_pooling_is_the_loops_and_pytorchs(more_rows, more_columns, window, stride):
    shape = (2, window + more_rows, window + more_columns, 3)
    images = np.random.default_rng(0).normal(size=shape).astype(np.float32) - 5
    result = ceil_max_pool(jnp.asarray(images), window, stride)
    np.testing.assert_array_equal(result, looped_pool(images, window, stride))
    torch = pytest.importorskip("torch")
    planes = torch.tensor(images.transpose(0, 3, 1, 2))
    reference = torch.nn.functional.max_pool2d(planes, window, stride, ceil_mode=True)
    np.testing.assert_array_equal(result, reference.permute(0, 2, 3, 1))


def test_a_last_window_begins_inside_the_image():
    """In four pixels at stride 2, the third window of one pixel would begin at 4."""
    ramp = jnp.arange(4.0).reshape(1, 4, 1, 1) * jnp.ones((1, 4, 4, 1))
    assert ceil_max_pool(ramp, 1, 2)[0, :, 0, 0].tolist() == [0, 2]
    assert ceil_max_pool(ramp, 3, 2)[0, :, 0, 0].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("size", "alpha", "beta", "k"), [(5, 1e-4, 0.75, 1.0), (5, 5e-4, 0.75, 2.0), (3, 0.6, 0.5, 1.0)]
)
def test_response_normalization_is_the_loops_and_pytorchs(size, alpha, beta, k, rng):
    images = rng.normal(size=(2, 3, 4, 7)) * 80
    expected = np.empty_like(images)
    for channel in range(7):
        around = images[..., max(0, channel - size // 2) : channel + size // 2 + 1]
        scale = k + alpha / size * (around**2).sum(axis=-1)
        expected[..., channel] = images[..., channel] / scale**beta
    result = local_response_normalization(jnp.asarray(images, jnp.float32), size, alpha, beta, k)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    torch = pytest.importorskip("torch")
    planes = torch.tensor(images.transpose(0, 3, 1, 2))
    reference = torch.nn.functional.local_response_norm(planes, size, alpha, beta, k)
    np.testing.assert_allclose(result, reference.permute(0, 2, 3, 1), rtol=1e-5)
