"""The maps that residual networks return, against what their blocks return."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.resnet import BasicBlock, BottleneckBlock, ReducedResNet, ResNet50

# The network, its last block of each stage, and whether the last map is before a ReLU.
CASES = {
    "reduced": (ReducedResNet(3, 2, "cosine"), BasicBlock, [1, 3, 5], True),
    "50": (ResNet50(3), BottleneckBlock, [2, 6, 12, 15], False),
    "50, signed": (ResNet50(3, last_relu=False), BottleneckBlock, [2, 6, 12, 15], True),
}


@pytest.mark.parametrize("name", CASES)
def test_maps_are_what_follows_each_stages_last_block(name, rng):
    net, block, last, signed = CASES[name]
    images = jnp.asarray(rng.normal(size=(2, 32, 32, 3)), jnp.float32)

    @jax.jit
    def run(key):
        variables = net.init(key, images, False)
        return net.apply(
            variables, images, False, capture_intermediates=lambda module, _: type(module) is block
        )

    outputs, result = run(jax.random.key(0))
    assert [*outputs.hidden] == [f"stage{number + 1}" for number in range(len(last))]
    for number, (index, maps) in enumerate(zip(last, outputs.hidden.values(), strict=True), 1):
        (expected,) = result["intermediates"][f"{block.__name__}_{index}"]["__call__"]
        if not (signed and number == len(last)):
            assert float(expected.min()) < 0
            expected = np.maximum(expected, 0)
        np.testing.assert_array_equal(maps, expected)
    np.testing.assert_allclose(outputs.features, maps.mean(axis=(1, 2)), rtol=1e-5, atol=1e-6)


def test_maps_are_float32_below_a_head_of_bfloat16():
    net, images = ReducedResNet(3, 1, dtype=jnp.bfloat16), jnp.zeros((1, 8, 8, 3))
    outputs, _ = jax.eval_shape(
        lambda key: net.init_with_output(key, images, False), jax.random.key(0)
    )
    assert {leaf.dtype for leaf in outputs.hidden.values()} == {jnp.dtype(jnp.float32)}
    shapes = [(1, 8, 8, 16), (1, 4, 4, 32), (1, 2, 2, 64)]
    assert [leaf.shape for leaf in outputs.hidden.values()] == shapes
