"""C5: what may change nothing, frames in closed form, and a camera that took no teaching image."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.baselines.cross_camera import (
    CrossCameraModel,
    GeneratorNet,
    cross_camera_estimate,
    fit_cross_camera,
)
from everlight.color.baselines.fourier_constancy import BIN_WIDTH, log_chroma_histograms
from everlight.metrics.angular import angular_error

estimate = jax.jit(cross_camera_estimate)
histograms_of = jax.jit(jax.vmap(log_chroma_histograms))


def drawn_model(origin):
    coarse = jnp.ones((1, 32, 32, 2)), jnp.ones((1, 3, 32, 32, 2))
    return CrossCameraModel(GeneratorNet().init(jax.random.key(1), *coarse), jnp.float32([*origin]))


def images(rng, count, gains=(1.0, 1.0, 1.0)):
    """Four surfaces of any colour each, under much the same light, and the lights."""
    lights = rng.uniform(0.9, 1, (count, 3)) * gains
    seen = rng.uniform(0.1, 1, (count, 2, 2, 3)) * lights[:, None, None]
    seen /= seen.max(axis=(1, 2, 3), keepdims=True)
    return histograms_of(jnp.float32(seen), jnp.ones((count, 2, 2))), jnp.float32(lights)


def test_the_other_images_matter_and_their_order_does_not(rng):
    histograms, _ = images(rng, 8)
    model = drawn_model((-32, -32))
    own, others = histograms[0], histograms[1:4]
    told = estimate(model, own, others)
    np.testing.assert_allclose(estimate(model, own, others[::-1]), told, rtol=1e-5)
    assert np.abs(estimate(model, own, histograms[4:7]) - told).max() > 1e-4


def test_a_camera_with_other_gains_moves_the_light_by_them(rng):
    """By whole bins, with all that belongs to the camera moved alike, its origin too."""
    histograms, _ = images(rng, 4)
    moved = jnp.roll(histograms, (6, 2), axis=(2, 3))
    before = np.asarray(estimate(drawn_model((-32, -32)), histograms[0], histograms[1:]), float)
    after = np.asarray(estimate(drawn_model((-26, -30)), moved[0], moved[1:]), float)
    expected = before * np.exp([-6 * BIN_WIDTH, 0, -2 * BIN_WIDTH])
    np.testing.assert_allclose(after, expected / np.linalg.norm(expected), rtol=1e-4)


def test_spoilt_images_beside_one_count_as_empty(rng):
    histograms, _ = images(rng, 4)
    model = drawn_model((-32, -32))
    spoilt = histograms[1:].at[1].set(jnp.nan)
    told = estimate(model, histograms[0], spoilt)
    assert np.isfinite(told).all()
    empty = histograms[1:].at[1].set(0)
    np.testing.assert_array_equal(told, estimate(model, histograms[0], empty))


def test_empty_histograms_spoil_no_training(rng):
    histograms, lights = images(rng, 5)
    histograms = histograms.at[1].set(0).at[3].set(jnp.nan)
    fit = jax.jit(fit_cross_camera, static_argnums=4)
    model = fit(jax.random.key(0), histograms, lights, jnp.array([0, 0, 1, 1, 2]), 2)
    for leaf in jax.tree.leaves(model):
        assert np.isfinite(leaf).all()


@pytest.mark.slow
def test_it_learns_to_ask_the_camera_by_its_other_images():
    """Cameras of different gains teach; of one that did not, its other images tell them."""
    rng = np.random.default_rng(0)
    gains = np.exp(rng.uniform(-0.3, 0.3, (9, 3)))
    parts = [images(rng, 24, own) for own in gains]
    histograms, lights = (jnp.concatenate(each) for each in zip(*parts[:8], strict=True))
    fit = jax.jit(fit_cross_camera, static_argnums=4)
    model = fit(jax.random.key(0), histograms, lights, jnp.arange(8).repeat(24), 150)
    asked, truth = parts[8]
    told = jax.jit(jax.vmap(cross_camera_estimate, (None, 0, 0)))

    def error_beside(pool):
        others = jnp.stack([jnp.roll(pool, -place, 0)[1:4] for place in range(len(asked))])
        return np.mean(jax.vmap(angular_error)(told(model, asked, others), truth))

    taught = jnp.broadcast_to(lights.mean(axis=0), truth.shape)
    own = error_beside(asked)
    assert own < np.mean(jax.vmap(angular_error)(taught, truth)) - 0.5
    assert own < error_beside(parts[3][0]) - 1
