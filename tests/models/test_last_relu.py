"""ResNet-50 without the ReLU after its last block, against the net with it."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.models.resnet import ResNet50


def test_without_the_last_relu_features_are_the_mean_of_the_last_blocks_sum():
    """Same parameters, same last sum; only the ReLU on it is missing."""
    nets = ResNet50(2), ResNet50(2, last_relu=False)
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(2, 32, 32, 3)), jnp.float32)
    shapes = jax.eval_shape(lambda: nets[0].init(jax.random.key(0), images, False))

    def drawn(leaf):
        kernel = rng.normal(size=leaf.shape) / np.sqrt(np.prod(leaf.shape[:-1]))
        values = kernel if leaf.ndim > 1 else rng.uniform(0.5, 1, leaf.shape)
        return jnp.asarray(values, jnp.float32)

    variables = jax.tree.map(drawn, shapes)

    @jax.jit
    def both(variables):
        return [net.apply(variables, images, False, capture_intermediates=True) for net in nets]

    (bent, kept), (straight, again) = both(variables)
    last = kept["intermediates"]["BottleneckBlock_15"]["__call__"][0]
    np.testing.assert_array_equal(last, again["intermediates"]["BottleneckBlock_15"]["__call__"][0])
    assert float(last.min()) < 0
    expected = np.mean(np.asarray(last, float), axis=(1, 2))
    np.testing.assert_allclose(straight.features, expected, rtol=1e-5, atol=1e-6)
    rectified = np.mean(np.maximum(np.asarray(last, float), 0), axis=(1, 2))
    np.testing.assert_allclose(bent.features, rectified, rtol=1e-5, atol=1e-6)
