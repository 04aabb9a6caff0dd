"""The small net with and without its dense layer."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.models.small_cnn import SmallCNN

IMAGES = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 8, 3)), jnp.float32)


def test_without_a_dense_layer_the_head_reads_the_last_block():
    full, bare = (SmallCNN(4, (2, 3), hidden, (0.0, 0.0, 0.0)) for hidden in (5, None))
    params = full.init(jax.random.key(0), IMAGES, False)["params"]
    head = bare.init(jax.random.key(1), IMAGES, False)["params"]["Dense_0"]
    assert head["kernel"].shape == (2 * 2 * 3, 4)
    convolutions = {name: leaf for name, leaf in params.items() if name.startswith("Conv")}
    assert len(convolutions) == 4
    outputs = bare.apply({"params": {**convolutions, "Dense_0": head}}, IMAGES, False)
    logits = outputs.features @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-6)
    # The dense layer of the whole net reads the same features.
    dense, last = params["Dense_0"], params["Dense_1"]
    hidden = np.maximum(outputs.features @ dense["kernel"] + dense["bias"], 0)
    expected = full.apply({"params": params}, IMAGES, False)
    np.testing.assert_allclose(expected.features, hidden, rtol=1e-5, atol=1e-6)
    logits = hidden @ last["kernel"] + last["bias"]
    np.testing.assert_allclose(expected.logits, logits, rtol=1e-5, atol=1e-6)


def test_the_head_may_begin_small():
    """The deviation of 2,000 weights is within 10% of the request, which is 6 standard errors."""
    net = SmallCNN(500, (2, 3), 4, (0.0, 0.0, 0.0), head_deviation=0.01)
    kernel = net.init(jax.random.key(0), IMAGES, False)["params"]["Dense_1"]["kernel"]
    assert kernel.shape == (4, 500)
    np.testing.assert_allclose(np.std(kernel), 0.01, rtol=0.1)
