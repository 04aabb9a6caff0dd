import numpy as np
import pytest

from everlight_experiments.illuminant.intervals import cross_coverage

THIRDS = np.split(np.arange(600), 3)


def test_each_fold_is_counted_with_a_calibration_that_it_has_no_part_in(rng):
    """Two folds that are off by little and one that is off by much."""
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    off = np.repeat([0.01, 0.01, 1.0], 200)[:, None]
    estimates = truth * np.exp(off * rng.normal(size=truth.shape))
    found = cross_coverage([np.float32(estimates)[None]] * 3, np.float32(truth), THIRDS)
    # The third fold by the others' width covers almost none; they, by its, all.
    assert found.share == pytest.approx(2 / 3, abs=0.02)


def test_folds_of_one_kind_are_covered_as_promised(rng):
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    estimates = truth * np.exp(0.05 * rng.normal(size=(4, *truth.shape)))
    found = cross_coverage([np.float32(estimates)] * 3, np.float32(truth), THIRDS)
    assert found.share == pytest.approx(0.9, abs=0.05)
    assert 1 < found.degrees < 6
    assert found.silent == 0


def test_intervals_of_estimates_that_know_nothing_say_nothing(rng):
    """Estimates drawn as the lights are, without regard to them: wider than the lights' own."""
    truth, told = np.float32(np.exp(rng.normal(0, 0.2, (2, 600, 2))))
    found = cross_coverage([told[None]] * 3, truth, THIRDS)
    assert found.share == pytest.approx(0.9, abs=0.05)
    assert found.silent > 0.9


def test_each_fold_is_told_by_what_is_its_own(rng):
    """Three estimators, each good on one fold only, which the other two's calibration shows."""
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    own = []
    for fold in THIRDS:
        off = np.full((600, 1), 0.5)
        off[fold] = 0.01
        own.append(np.float32(truth * np.exp(off * rng.normal(size=truth.shape)))[None])
    assert cross_coverage(own, np.float32(truth), THIRDS).share == 1
