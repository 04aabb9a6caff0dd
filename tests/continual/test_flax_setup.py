"""The setup of a Flax module: what is gathered, and when it is augmented."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual.base import Outputs
from everlight.continual.flax_setup import StoredImages, flax_setup
from everlight.continual.objective import softmax_objective

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), np.uint8)
MEAN, DEVIATION = np.array([120.0, 110, 100]), np.array([60.0, 50, 40])
STORED = StoredImages(
    jnp.asarray(IMAGES), jnp.asarray(MEAN, jnp.float32), jnp.asarray(DEVIATION, jnp.float32)
)


class Net(nn.Module):
    """Its feature is the mean of what comes in."""

    @nn.compact
    def __call__(self, images, train):
        features = jnp.mean(images, axis=(1, 2))
        return Outputs(nn.Dense(2)(features), features)


def setup_with(augment=None):
    return flax_setup(Net(), STORED, softmax_objective(), optax.sgd(0.1), augment)


def test_images_are_normalised_by_channel():
    found = setup_with().gather(jnp.array([4, 1]), jax.random.key(0))
    expected = (IMAGES[[4, 1]].astype(np.float64) - MEAN) / DEVIATION
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_training_images_alone_are_augmented_each_by_its_own_key():
    def shifted(image, key):
        return image + jax.random.randint(key, (), 1, 200).astype(jnp.uint8)

    setup, index = setup_with(shifted), jnp.array([2, 2, 2])
    plain = setup.gather(index, None)
    np.testing.assert_array_equal(plain, setup_with().gather(index, jax.random.key(1)))
    changed = np.asarray(setup.gather(index, jax.random.key(1)))
    assert len(np.unique(changed[:, 0, 0, 0])) == 3
    assert np.all(np.any(changed != plain, axis=(1, 2, 3)))


def test_a_net_without_batch_statistics_has_none():
    setup = setup_with()
    params, batch_stats = setup.init(jax.random.key(0))
    assert batch_stats == {}
    inputs = setup.gather(jnp.arange(6), None)
    for train in (True, False):
        outputs, after = setup.apply(params, batch_stats, inputs, train, jax.random.key(2))
        assert after == {}
        np.testing.assert_allclose(outputs.features, inputs.mean(axis=(1, 2)), rtol=1e-5, atol=1e-6)
