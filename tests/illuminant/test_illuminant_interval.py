"""Intervals of illuminants: coverage, disagreement and width, by hand and by simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_interval import (
    IntervalScale,
    calibrate_interval,
    chromaticity_interval,
    cross_coverage,
    ensemble_chromaticity,
    ensemble_disagreement,
    interval_coverage,
    uninformative_interval,
)


def ensembles(rng, count, members=5, off=2.0):
    """Draw members and illuminants whose logarithms differ by multiples of a scale per pair."""
    scale = rng.gamma(2, 0.02, (count, 1))
    truth = rng.normal(0, 0.3, (count, 2))
    common = truth + off * scale * rng.normal(size=(count, 2))
    estimates = np.exp(common + scale * rng.normal(size=(members, count, 2)))
    return jnp.asarray(estimates, jnp.float32), jnp.asarray(np.exp(truth), jnp.float32)


def covered(scale, estimates, truth):
    interval = jax.vmap(chromaticity_interval, (None, 1))(scale, estimates)
    inside = (interval.low <= truth) & (truth <= interval.high)
    return np.asarray(inside.all(axis=1)), np.asarray(interval.degrees)


def test_mean_and_disagreement_by_hand():
    estimates = jnp.array([[[1.0, 8.0]], [[4.0, 0.5]]])
    np.testing.assert_allclose(ensemble_chromaticity(estimates), [[2, 2]], rtol=1e-6)
    expected = [[np.log(2), np.log(4)]]
    np.testing.assert_allclose(ensemble_disagreement(estimates), expected, rtol=1e-6)
    np.testing.assert_array_equal(ensemble_disagreement(estimates[:1]), [[0, 0]])


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_new_pairs_are_covered_as_often_as_requested(rng, coverage):
    scale = calibrate_interval(*ensembles(rng, 1_000), coverage)
    inside, degrees = covered(scale, *ensembles(rng, 300))
    # The bound is three binomial deviations of 300 and of 1,000.
    assert inside.mean() == pytest.approx(coverage, abs=0.09 if coverage < 0.9 else 0.06)
    assert np.isfinite(degrees).all()


def test_where_members_disagree_the_interval_is_wider_and_needed(rng):
    scale = calibrate_interval(*ensembles(rng, 1_000))
    estimates, truth = ensembles(rng, 200)
    _, degrees = covered(scale, estimates, truth)
    apart = np.asarray(ensemble_disagreement(estimates)).mean(axis=1)
    assert np.corrcoef(apart, degrees)[0, 1] > 0.8


def test_the_factor_is_the_rank_that_the_theorem_asks_for():
    """The one member's R/G is off by i/100 and B/G by none: i / mean(i) is needed."""
    for count in (9, 30, 69):
        off = np.arange(1, count + 1) / 100
        truth = np.ones((count, 2), np.float32)
        estimates = np.exp(np.column_stack([off, 0 * off]))[None].astype(np.float32)
        scale = calibrate_interval(jnp.asarray(estimates), jnp.asarray(truth))
        rank = -(-9 * (count + 1) // 10)
        np.testing.assert_allclose(scale.floor, [off.mean(), 0], rtol=1e-4)
        np.testing.assert_allclose(scale.factor, off[rank - 1] / off.mean(), rtol=1e-4)


def test_too_few_pairs_give_no_bound_and_one_that_failed_counts_against(rng):
    estimates, truth = ensembles(rng, 9)
    assert np.isfinite(calibrate_interval(estimates, truth).factor)
    assert np.isinf(calibrate_interval(estimates[:, :8], truth[:8]).factor)
    assert np.isinf(calibrate_interval(estimates.at[0, 3].set(jnp.nan), truth).factor)
    unbounded = IntervalScale(jnp.ones(2), jnp.float32(jnp.inf))
    unknown = chromaticity_interval(unbounded, estimates[:, 0])
    np.testing.assert_array_equal(unknown.low, [0, 0])
    assert np.isinf(unknown.high).all()
    assert np.isinf(unknown.degrees)


def test_no_illuminant_of_the_interval_is_farther_than_its_degrees(rng):
    scale = IntervalScale(jnp.array([0.05, 0.2]), jnp.float32(1.5))
    estimates = jnp.array([[0.5, 0.7], [0.6, 0.8]])
    interval = chromaticity_interval(scale, estimates)
    center = np.array([np.sqrt(0.3), 1, np.sqrt(0.56)])
    illuminants = np.ones((20_000, 3))
    illuminants[:, ::2] = rng.uniform(interval.low, interval.high, (20_000, 2))
    cosine = illuminants @ center / np.linalg.norm(illuminants, axis=1) / np.linalg.norm(center)
    farthest = np.degrees(np.arccos(cosine)).max()
    assert farthest <= interval.degrees
    np.testing.assert_allclose(interval.degrees, farthest, rtol=0.02)


def test_illuminants_alone_give_the_interval_around_their_mean_that_nine_of_ten_are_in():
    """R/G has equal logarithmic steps, B/G is 0.5; the 27th farthest of 29 is needed."""
    away = np.arange(-14, 15) * 0.05
    illuminants = np.column_stack([0.8 * np.exp(away), np.full(29, 0.5)])
    interval = uninformative_interval(jnp.asarray(illuminants, jnp.float32))
    np.testing.assert_allclose(interval.low, [0.8 * np.exp(-0.65), 0.5], rtol=1e-4)
    np.testing.assert_allclose(interval.high, [0.8 * np.exp(0.65), 0.5], rtol=1e-4)
    ends = np.array([[0.8 * np.exp(sign * 0.65), 1, 0.5] for sign in (-1, 1)])
    cosine = ends @ [0.8, 1, 0.5] / np.linalg.norm(ends, axis=1) / np.linalg.norm([0.8, 1, 0.5])
    np.testing.assert_allclose(interval.degrees, np.degrees(np.arccos(cosine)).max(), rtol=1e-4)


THIRDS = np.split(np.arange(600), 3)


def test_each_fold_is_counted_with_a_calibration_that_it_has_no_part_in(rng):
    """Two folds are off by little and one is off by much."""
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    off = np.repeat([0.01, 0.01, 1.0], 200)[:, None]
    estimates = truth * np.exp(off * rng.normal(size=truth.shape))
    result = cross_coverage([np.float32(estimates)[None]] * 3, np.float32(truth), THIRDS)
    # The third fold by the others' width covers almost none; they, by its, all.
    assert result.share == pytest.approx(2 / 3, abs=0.02)


def test_folds_of_one_kind_are_covered_as_promised(rng):
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    estimates = truth * np.exp(0.05 * rng.normal(size=(4, *truth.shape)))
    result = cross_coverage([np.float32(estimates)] * 3, np.float32(truth), THIRDS)
    assert result.share == pytest.approx(0.9, abs=0.05)
    assert 1 < result.degrees < 6
    assert result.uninformative == 0


def test_intervals_of_uninformed_estimates_are_uninformative(rng):
    """Estimates are drawn independently of the illuminants: intervals are wider than theirs."""
    truth, interval = np.float32(np.exp(rng.normal(0, 0.2, (2, 600, 2))))
    result = cross_coverage([interval[None]] * 3, truth, THIRDS)
    assert result.share == pytest.approx(0.9, abs=0.05)
    assert result.uninformative > 0.9


def test_the_coverage_of_a_fold_uses_intervals_of_the_other_folds(rng):
    """Each of three estimators is good on one fold only; calibration on the others shows it."""
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    current = []
    for fold in THIRDS:
        off = np.full((600, 1), 0.5)
        off[fold] = 0.01
        current.append(np.float32(truth * np.exp(off * rng.normal(size=truth.shape)))[None])
    assert cross_coverage(current, np.float32(truth), THIRDS).share == 1


def test_the_coverage_of_new_pairs_is_that_of_their_intervals(rng):
    scale = calibrate_interval(*ensembles(rng, 1_000))
    estimates, truth = ensembles(rng, 300)
    inside, degrees = covered(scale, estimates, truth)
    result = interval_coverage(scale, estimates, truth, jnp.float32(np.median(degrees)))
    np.testing.assert_allclose(result, [inside.mean(), degrees.mean(), 0.5], rtol=1e-3)
