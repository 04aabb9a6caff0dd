"""Mean, covariance and distance of features against float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.feature_distribution import (
    FeatureDistribution,
    feature_distance,
    fit_feature_distribution,
)


@pytest.mark.parametrize("width", [2, 18])
def test_mean_covariance_and_distance_against_float64(rng, width):
    features = rng.normal(size=(200, width)) @ rng.normal(size=(width, width)) + 3
    features[5] = 1e3
    valid = np.arange(200) != 5
    learned = fit_feature_distribution(jnp.asarray(features, jnp.float32), jnp.asarray(valid))
    stored = features[valid]
    np.testing.assert_allclose(learned.mean, stored.mean(0), rtol=1e-4, atol=1e-4)
    away = rng.normal(size=width)
    # NumPy has a covariance; the learned precision is compared through the distance it gives.
    covariance = np.cov(stored.T, bias=True)
    expected = np.sqrt(away @ np.linalg.solve(covariance, away))
    actual = feature_distance(learned, jnp.asarray(stored.mean(0) + away, jnp.float32))
    np.testing.assert_allclose(actual, expected, rtol=2e-2)


def test_a_direction_in_which_nothing_differs_has_a_finite_distance(rng):
    """Moments are divided by their mean, so one direction of nine is empty."""
    features = jnp.asarray(rng.uniform(size=(50, 3)), jnp.float32).at[:, 2].set(0.5)
    learned = fit_feature_distribution(features, jnp.ones(50, bool))
    largest = np.linalg.eigvalsh(np.cov(np.float64(features).T, bias=True)).max()
    off = feature_distance(learned, learned.mean + jnp.array([0, 0, 0.01]))
    np.testing.assert_allclose(off, 0.01 / np.sqrt(1e-6 * largest), rtol=1e-2)


def test_features_of_another_number_are_refused():
    known = FeatureDistribution(jnp.zeros(9), jnp.eye(9))
    with pytest.raises(ValueError, match="features"):
        feature_distance(known, jnp.zeros(18))
