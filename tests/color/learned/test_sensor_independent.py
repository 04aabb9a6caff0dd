"""SIIE: histograms against NumPy, the way back from the working space, and a world it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.learned.parts.observed_image import ObservedImage
from everlight.color.learned.sensor_independent import (
    SENSOR_PAPER_SIZE,
    SPAN,
    SensorIndependentNet,
    chroma_kernels,
    fit_sensor_independent,
    sensor_independent_estimate,
)
from everlight.metrics.angular import angular_error

GAIN, WIDTH = np.array([2.0, 3.0, 5.0]), np.array([0.1, 0.2, 0.4])
kernels_of = jax.jit(chroma_kernels)


def by_hand(pixels, gain, width, bins=33):
    """Compute the histogram pixel by pixel in float64."""
    places = np.linspace(-SPAN, SPAN, bins)
    histograms = np.zeros((bins, bins, 3))
    for r, g, b in pixels:
        ratios = [(r / g, r / b), (g / r, g / b), (b / r, b / g)]
        for channel, (first, second) in enumerate(ratios):
            across = np.exp(-np.abs(np.log(first) - places) / width[channel])
            down = np.exp(-np.abs(np.log(second) - places) / width[channel])
            histograms[..., channel] += np.sqrt(r**2 + g**2 + b**2) * np.outer(across, down)
    return gain * np.sqrt(histograms / histograms.sum(axis=(0, 1)))


def test_histograms_are_those_of_the_formula(rng):
    pixels = rng.uniform(0.1, 1, (40, 3))
    weights = np.ones(40)
    weights[30:] = 0
    spoilt = np.where(weights[:, None] > 0, pixels, -7)
    spoilt[:30][3] = [0.4, 0.0, 0.3]
    stored = np.delete(pixels[:30], 3, axis=0)
    actual = kernels_of(*map(jnp.float32, (spoilt, weights, GAIN, WIDTH)))
    np.testing.assert_allclose(actual, by_hand(stored, GAIN, WIDTH), rtol=2e-4, atol=1e-6)
    large = chroma_kernels(*map(jnp.float32, (pixels, np.ones(40), GAIN, WIDTH)), 61)
    np.testing.assert_allclose(large, by_hand(pixels, GAIN, WIDTH, 61), rtol=2e-4, atol=1e-6)


def test_a_dark_image_keeps_its_histogram_beside_a_nan(rng):
    """The darkest pixels that count are a fraction of the image's largest value, NaN or not."""
    pixels = 1e-4 * rng.uniform(0.1, 1, (40, 3))
    spoilt = np.vstack([pixels, [[np.nan, 1, 1]]])
    actual = kernels_of(*map(jnp.float32, (spoilt, np.ones(41), GAIN, WIDTH)))
    np.testing.assert_allclose(actual, by_hand(pixels, GAIN, WIDTH), rtol=2e-4, atol=1e-6)


def test_the_papers_size_has_its_layers():
    """Layers have sides of 61, 29, 14 and 13 bins, and 128, 256 and 512 channels."""
    inputs = jax.ShapeDtypeStruct((1, 4, 3), jnp.float32), jax.ShapeDtypeStruct((1, 4), jnp.float32)
    shapes = jax.eval_shape(
        SensorIndependentNet(SENSOR_PAPER_SIZE).init, jax.random.key(0), *inputs
    )
    counted = 2 * ((3 * 25 + 1) * 128 + (128 * 9 + 1) * 256 + (256 * 4 + 1) * 512 + 3 + 3) + (
        13 * 13 * 512 + 1
    ) * (9 + 3)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == counted


def test_the_illuminant_comes_back_through_the_matrix(rng):
    """The second net, whose last layer is 0, returns (1, 1, 1) in the working space."""
    net = SensorIndependentNet()
    pixels, weights = jnp.float32(rng.uniform(0.1, 1, (5, 30, 3))), jnp.ones((5, 30))
    params = net.init(jax.random.key(0), pixels, weights)
    params = jax.tree.map(
        lambda leaf: leaf + 0.01 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape), params
    )
    last = params["params"]["illuminant"]["Dense_0"]
    params["params"]["illuminant"]["Dense_0"] = jax.tree.map(jnp.zeros_like, last)
    predicted = jax.jit(net.apply)(params, pixels, weights)
    mapping = np.float64(predicted.mapping)
    assert np.abs(mapping - np.eye(3)).max() > 0.01
    assert (mapping >= 0).all()
    np.testing.assert_allclose(mapping.sum(axis=1).max(axis=1), 1, rtol=1e-5)
    expected = np.linalg.solve(mapping.swapaxes(1, 2), np.ones((5, 3, 1)))[..., 0]
    ratio = np.asarray(predicted.illuminant) / expected
    np.testing.assert_allclose(ratio, ratio[:, :1].repeat(3, 1), rtol=1e-4)
    assert (ratio > 0).all()


def test_gradients_are_finite_where_colors_are_flat_black_or_masked():
    net = SensorIndependentNet()
    images = jnp.stack([jnp.full((16, 3), 0.3), jnp.zeros((16, 3)), jnp.ones((16, 3))])
    weights = jnp.ones((3, 16)).at[2].set(0)
    params = net.init(jax.random.key(0), images, weights)

    def loss(params, images):
        predicted = net.apply(params, images, weights).illuminant
        return jnp.sum(jax.vmap(angular_error)(predicted, jnp.ones((3, 3))))

    for leaf in jax.tree.leaves(jax.jit(jax.grad(loss, (0, 1)))(params, images)):
        assert np.isfinite(leaf).all()


@pytest.mark.slow
def test_a_world_whose_mean_is_not_gray_is_learned(rng):
    """Surfaces are reddish on average, which misleads Gray World and not the learned estimate."""
    illuminants = rng.uniform(0.4, 1, (120, 3)).astype(np.float32)
    surfaces = rng.uniform(0.05, 1, (120, 6, 6, 3)) * [1.0, 0.6, 0.5]
    images = jnp.asarray(surfaces * illuminants[:, None, None], jnp.float32)
    masks = jnp.ones(images.shape[:3])
    taught = ObservedImage(images[:90], masks[:90])
    tested = ObservedImage(images[90:], masks[90:])
    known, key = jnp.asarray(illuminants[:90]), jax.random.key(0)
    model = fit_sensor_independent(taught, known, key=key, steps=200)
    predicted = jax.jit(jax.vmap(sensor_independent_estimate, (None, 0)))(model, tested)
    errors = jax.vmap(angular_error)(predicted, jnp.asarray(illuminants[90:]))
    gray = jax.vmap(angular_error)(images[90:].mean((1, 2)), jnp.asarray(illuminants[90:]))
    assert gray.mean() > 10
    assert errors.mean() < 7
