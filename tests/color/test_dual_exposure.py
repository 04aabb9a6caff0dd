"""Two exposures of one scene, and the matrix between their chromaticities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.dual_exposure import dual_exposure_feature
from everlight.color.radiometry import (
    DualExposure,
    Sensor,
    ambient_readings,
    take_exposures,
    take_photograph,
)


def test_the_long_frame_is_the_short_one_longer_and_clipped(rng):
    colors = jnp.asarray(rng.uniform(0.02, 1, (24, 3)), jnp.float32)
    quiet = Sensor(read_noise=1e-4, full_well=1e9, bits=14)
    key = jax.random.key(3)
    frames = take_exposures(key, colors, quiet, ratio=16.0)
    np.testing.assert_array_equal(frames.short, take_photograph(key, colors, quiet))
    expected = np.minimum(16 * np.asarray(frames.short, float), 1)
    np.testing.assert_allclose(frames.long, expected, atol=1e-2)
    assert 0.05 < np.mean(frames.long == 1) < 0.95


def test_the_feature_is_numpys_least_squares_of_chromaticities(rng):
    colors = jnp.asarray(rng.uniform(0.02, 1, (24, 3)), jnp.float32)
    frames = take_exposures(jax.random.key(0), colors, Sensor(read_noise=0.02))
    shares = []
    for frame in frames:
        pixels = np.maximum(np.asarray(frame, float).reshape(-1, 3), 0)
        shares.append(pixels / np.maximum(pixels.sum(1, keepdims=True), 1e-6))
    expected = np.linalg.lstsq(*shares)[0]
    result = dual_exposure_feature(frames)
    assert result.valid
    np.testing.assert_allclose(result.transform, expected, atol=2e-4)
    # Clipping and noise move it far from the identity that two equal frames have.
    assert np.abs(expected - np.eye(3)).max() > 0.1
    same = dual_exposure_feature(DualExposure(frames.short, 0.5 * frames.short))
    np.testing.assert_allclose(same.transform, np.eye(3), atol=1e-4)


@pytest.mark.parametrize("stored", [1, 2])
def test_too_few_colors_determine_nothing(rng, stored):
    image = jnp.asarray(rng.uniform(0.1, 1, (stored, 3)), jnp.float32)
    frame = jnp.tile(image, (12 // stored, 1)).reshape(3, 4, 3)
    assert not dual_exposure_feature(DualExposure(frame, frame)).valid


def test_a_reading_is_the_sum_of_illuminant_reflectance_and_sensitivity(rng):
    illuminant, surface, channel = (rng.uniform(0, 1, (count, 7)) for count in (2, 3, 4))
    result = ambient_readings(
        *(jnp.asarray(item, jnp.float32) for item in (illuminant, surface, channel))
    )
    for i, r, c in np.ndindex(2, 3, 4):
        expected = sum(illuminant[i, w] * surface[r, w] * channel[c, w] for w in range(7))
        np.testing.assert_allclose(result[i, r, c], expected, rtol=1e-5)
