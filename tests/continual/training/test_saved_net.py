"""Images that a trained network refuses, since its stored type does not hold their values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import naive, train
from everlight.continual.engine import StoredImages, flax_setup
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives import softmax_objective
from everlight.continual.training.saved_net import SavedNet
from everlight.models import MLP
from tests.continual.small_net import small_setup
from tests.refusals import refused


def saved_net(dtype):
    """Return an untrained network of images of 2x2 pixels, stored with this dtype."""
    stored = StoredImages.of(np.zeros((1, 2, 2, 1), dtype), jnp.zeros(1), jnp.ones(1))

    def build(data):
        setup = flax_setup(MLP(2, ()), data, softmax_objective(), small_setup().optimizer)
        return setup, naive(setup)

    learner = init_learner(build(stored)[0], 2, jax.random.key(0))
    learner = learner._replace(seen=jnp.ones(2, bool))
    return SavedNet((), np.ones((1, 2), bool), learner, (), build, stored, 4)


def test_a_saved_network_takes_integers_of_its_own_type_alone(rng):
    """The scores of images in uint16, 256 above, would be those of the images in uint8."""
    net, images = saved_net(np.uint8), rng.integers(0, 256, (3, 2, 2, 1)).astype(np.uint8)
    params = jax.tree.map(np.float64, net.learner.params)["head"]
    expected = images.reshape(3, 4) @ params["kernel"] + params["bias"]
    np.testing.assert_allclose(net.predict(images), expected, rtol=1e-5)
    refused(
        r"^images have dtype uint16 and shape \(3, 2, 2, 1\); this network takes uint8",
        lambda: net.predict(images.astype(np.uint16) + 256),
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "^images holds 1 values that are not finite"),
        (1e39, r"^images holds 1e\+39; scale it to at most 1e\+37$"),
    ],
)
def test_features_without_a_score_are_refused(rng, value, message):
    features = rng.random((4, 2, 2, 1))
    features[1, 0, 1, 0] = value
    refused(message, lambda: saved_net(np.float32).predict(features))
    images, labels = rng.random((8, 2, 2, 1)), np.arange(8) % 2
    network = train(MLP(2, ()), images, labels, naive, tasks=2, seeds=1, epochs=1)
    refused(message, lambda: network.predict(features))
