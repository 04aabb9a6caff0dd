"""Both forms of the convolution against SciPy, and the small net's size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from everlight.models.convolution import Convolution
from everlight.models.small_cnn import SmallCNN


@pytest.mark.parametrize("form", ["native", "shifted"])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (1, 2), (5, 1)])
def test_both_forms_are_scipys_correlation(form, size, stride, rng):
    images = rng.normal(size=(2, 9, 8, 3)).astype(np.float32)
    layer = Convolution(4, size, stride, form=form)
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


def test_the_small_net_is_that_of_zenke_2017():
    """By hand: four convolutions, 8 x 8 x 64 to 512, 512 to 100."""
    params = SmallCNN(100).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)), False)
    convolutions = 9 * (3 * 32 + 32 * 32 + 32 * 64 + 64 * 64) + 2 * (32 + 64)
    dense = 4096 * 512 + 512 + 512 * 100 + 100
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == convolutions + dense
