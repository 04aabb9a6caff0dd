"""The convolution against SciPy, its gradients against JAX's own, and the small net's size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from everlight.models.layers.convolution import Convolution, convolve
from everlight.models.small_cnn import SmallCNN
from tests.models.layers.xla_convolution import xlas_convolution

each_kind = pytest.mark.parametrize(
    ("size", "stride"), [(3, 1), (3, 2), (1, 2), (5, 1), (3, 3), (7, 2)]
)


@each_kind
def test_convolution_equals_scipys_correlation(size, stride, rng):
    images = rng.normal(size=(2, 9, 8, 3)).astype(np.float32)
    layer = Convolution(4, size, stride)
    params = layer.init(jax.random.key(0), jnp.asarray(images))
    params["params"]["bias"] = jnp.arange(4.0)
    kernel = np.float64(params["params"]["kernel"])
    expected = np.zeros((2, 9, 8, 4))
    for image in range(2):
        for output in range(4):
            for channel in range(3):
                expected[image, ..., output] += scipy.signal.correlate2d(
                    np.float64(images[image, ..., channel]), kernel[..., channel, output], "same"
                )
    expected = expected[:, ::stride, ::stride] + np.arange(4)
    result = jax.jit(layer.apply)(params, jnp.asarray(images))
    np.testing.assert_allclose(result, expected, atol=2e-5)


@each_kind
def test_gradients_are_those_of_xlas_convolution(size, stride, rng):
    images = jnp.asarray(rng.normal(size=(2, 9, 8, 3)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(size, size, 3, 4)), jnp.float32)

    def gradients(form):
        return jax.grad(lambda *a: jnp.sum(jnp.sin(form(*a, stride))), (0, 1))(images, kernel)

    for actual, reference in zip(gradients(convolve), gradients(xlas_convolution), strict=True):
        np.testing.assert_allclose(actual, reference, atol=3e-5)


@pytest.mark.cpu
@each_kind
def test_in_a_compiled_loop_every_convolution_has_the_fast_layout(size, stride):
    """Other layouts run 20 to 40 times slower on CPU; the layouts are read from the program."""
    images, kernel = jnp.ones((2, 16, 16, 3)), jnp.ones((size, size, 3, 3))

    def step(_, carry):
        gradients = jax.grad(lambda *a: jnp.sum(convolve(*a, stride) ** 2), (0, 1))(*carry)
        return jax.tree.map(lambda leaf, gradient: leaf - 1e-3 * gradient, carry, gradients)

    loop = jax.jit(lambda carry: jax.lax.fori_loop(0, 7, step, carry))
    program = loop.lower((images, kernel)).compile().as_text()
    layouts = [
        line.split("dim_labels=")[1] for line in program.splitlines() if " convolution(" in line
    ]
    assert len(layouts) == (0 if size == 1 else 3)  # A kernel of one pixel is a product.
    assert all(layout.startswith("b01f_01io->b01f") for layout in layouts), layouts


def test_the_small_net_is_that_of_zenke_2017():
    """The net has four convolutions, and layers from 8 x 8 x 64 to 512 and from 512 to 100."""
    images = jnp.zeros((1, 32, 32, 3))
    params = jax.eval_shape(lambda key: SmallCNN(100).init(key, images, False), jax.random.key(0))
    convolutions = 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 2 * (32 + 64)
    dense = 4096 * 512 + 512 + 512 * 100 + 100
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == convolutions + dense
