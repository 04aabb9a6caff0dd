"""The chain of convolutions: against NumPy, its names, and sides of any length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate

from everlight.models import PlainCNN


def by_numpy(params, image, channels, last_relu):
    maps = np.asarray(image, np.float64)
    for number in range(len(channels)):
        layer = jax.tree.map(np.float64, params[f"convolution{number + 1}"])
        kernel, bias = layer["kernel"], layer["bias"]
        padded = np.pad(maps, ((1, 1), (1, 1), (0, 0)))
        out = [correlate(padded, kernel[..., o], mode="valid")[..., 0] for o in range(len(bias))]
        maps = np.maximum(np.stack(out, -1) + bias, 0)
        high, wide = maps.shape[0] // 2, maps.shape[1] // 2
        maps = maps[: 2 * high, : 2 * wide].reshape(high, 2, wide, 2, -1).max(axis=(1, 3))
    hidden = params["hidden"]
    features = maps.reshape(-1) @ hidden["kernel"] + hidden["bias"]
    features = np.maximum(features, 0) if last_relu else features
    return features @ params["head"]["kernel"] + params["head"]["bias"]


@pytest.mark.parametrize(
    ("height", "width", "last_relu"), [(8, 8, True), (7, 10, True), (8, 8, False)]
)
def test_plain_cnn_equals_its_chain_of_layers(rng, height, width, last_relu):
    net = PlainCNN(3, (2, 4), 5, last_relu=last_relu)
    images = jnp.asarray(rng.normal(size=(2, height, width, 3)), jnp.float32)
    params = net.init(jax.random.key(0), images, False)["params"]
    params = jax.tree.map(lambda leaf: jnp.float32(rng.normal(size=leaf.shape)) / 3, params)
    assert set(params) == {*net.layers, "head"}
    outputs = net.apply({"params": params}, images, False)
    expected = [by_numpy(params, image, net.channels, last_relu) for image in images]
    np.testing.assert_allclose(outputs.logits, expected, rtol=1e-4, atol=1e-4)


def test_images_that_shrink_to_nothing_are_refused():
    with pytest.raises(ValueError, match="images of 7x9 are too small for 3 blocks"):
        PlainCNN(2).init(jax.random.key(0), jnp.zeros((1, 7, 9, 3)), False)
