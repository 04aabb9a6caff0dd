"""Out-of-distribution scores: their unit, calibration and folds."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.feature_distribution import FeatureDistribution
from everlight.illuminant.out_of_distribution import (
    calibrate_distances,
    cross_calibrate_distances,
    out_of_distribution_score,
)

KNOWN = FeatureDistribution(jnp.zeros(9), jnp.eye(9))


def test_a_distance_is_stated_in_units_of_the_99th_percentile(rng):
    distances = rng.gamma(3, 1, 2_000)
    calibration = calibrate_distances(KNOWN, jnp.asarray(distances, jnp.float32))
    far = out_of_distribution_score(calibration, jnp.float32(25.0))
    np.testing.assert_allclose(far.distance, 25 / np.quantile(distances, 0.99), rtol=1e-5)
    assert far.p_value == 0


def test_the_share_that_is_farther_is_calibrated(rng):
    """A tenth of new distances of the same distribution is among the farthest tenth."""
    calibration = calibrate_distances(KNOWN, jnp.asarray(rng.gamma(3, 1, 2_000), jnp.float32))
    new = jnp.asarray(rng.gamma(3, 1, 1_000), jnp.float32)
    shares = np.array([out_of_distribution_score(calibration, item).p_value for item in new])
    for level in (0.1, 0.5, 0.9):
        assert np.mean(shares <= level) == pytest.approx(level, abs=0.05)


@pytest.mark.parametrize("count", [4, 30])
def test_the_share_errs_by_one_pair_and_a_percent(rng, count):
    distances = np.float32(rng.gamma(3, 1, count))
    calibration = calibrate_distances(KNOWN, jnp.asarray(distances))
    for distance in [*distances, *np.float32(rng.gamma(3, 1, 50))]:
        share = out_of_distribution_score(calibration, jnp.float32(distance)).p_value
        assert abs(share - np.mean(distances >= distance)) <= 0.01 + 1 / count + 1e-6


@pytest.mark.parametrize("distances", [[], [1.0, np.nan], [0.0, 0.0]])
def test_missing_calibration_distances_are_refused(distances):
    with pytest.raises(ValueError, match="distances"):
        calibrate_distances(KNOWN, jnp.asarray(distances, jnp.float32))


def test_each_fold_is_measured_from_the_others(rng):
    """The reference is NumPy's distances with the covariance of the other folds."""
    features = np.float32(rng.normal(size=(60, 3)) * [1, 2, 0.5])
    folds = list(rng.permutation(60).reshape(3, 20))
    result = cross_calibrate_distances(jnp.asarray(features), folds)
    np.testing.assert_allclose(result.distribution.mean, features.mean(axis=0), atol=1e-5)
    distances = []
    for fold in folds:
        others = np.delete(features, fold, axis=0)
        inverse = np.linalg.inv(np.cov(others.T, bias=True))
        away = features[fold] - others.mean(axis=0)
        distances.append(np.sqrt(np.einsum("nf,fg,ng->n", away, inverse, away)))
    expected = np.quantile(np.concatenate(distances), np.linspace(0, 1, 101))
    np.testing.assert_allclose(result.distances, expected, rtol=1e-3)


def test_re_illuminated_features_belong_to_the_distribution(rng):
    """Pairs of one fold take part neither as sources nor by their illuminants."""
    features = np.float32(rng.normal(size=(6, 6, 2)))
    folds = [np.array([0, 1, 2]), np.array([3, 4, 5])]
    result = cross_calibrate_distances(jnp.asarray(features), folds)
    full = features.reshape(-1, 2)
    np.testing.assert_allclose(result.distribution.mean, full.mean(axis=0), atol=1e-6)
    distances = []
    for part, other in (folds, folds[::-1]):
        known = features[other][:, other].reshape(-1, 2)
        away = features[part, part] - known.mean(axis=0)
        inverse = np.linalg.inv(np.cov(known.T, bias=True))
        distances.append(np.sqrt(np.einsum("nf,fg,ng->n", away, inverse, away)))
    expected = np.quantile(np.concatenate(distances), np.linspace(0, 1, 101))
    np.testing.assert_allclose(result.distances, expected, rtol=1e-3)
