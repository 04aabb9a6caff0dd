"""The maxout network against NumPy in float64."""

import jax
import numpy as np

from everlight.models.maxout import Maxout


def test_a_unit_is_the_maximum_of_two_linear_pieces():
    net, images = Maxout(3, (5,)), np.random.default_rng(0).normal(size=(4, 2, 2, 1))
    outputs, variables = net.init_with_output(jax.random.key(0), np.float32(images), False)
    hidden, head = (variables["params"][name] for name in ("hidden1", "head"))
    pieces = images.reshape(4, -1) @ np.float64(hidden["kernel"]) + np.float64(hidden["bias"])
    features = np.maximum(pieces[:, :5], pieces[:, 5:])
    np.testing.assert_allclose(outputs.features, features, rtol=1e-5, atol=1e-6)
    logits = features @ np.float64(head["kernel"]) + np.float64(head["bias"])
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-6)
