import numpy as np
import pytest

from experiments.two_camera.intervals import cross_coverage

THIRDS = np.split(np.arange(600), 3)


def test_each_fold_is_counted_with_a_calibration_that_it_has_no_part_in(rng):
    """Two folds that are off by little and one that is off by much."""
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    off = np.repeat([0.01, 0.01, 1.0], 200)[:, None]
    estimates = truth * np.exp(off * rng.normal(size=truth.shape))
    found = cross_coverage(np.float32(estimates)[None], np.float32(truth), THIRDS)
    # The third fold by the others' width covers almost none; they, by its, all.
    assert found.share == pytest.approx(2 / 3, abs=0.02)


def test_folds_of_one_kind_are_covered_as_promised(rng):
    truth = np.exp(rng.normal(0, 0.2, (600, 2)))
    estimates = truth * np.exp(0.05 * rng.normal(size=(4, *truth.shape)))
    found = cross_coverage(np.float32(estimates), np.float32(truth), THIRDS)
    assert found.share == pytest.approx(0.9, abs=0.05)
    assert 1 < found.degrees < 6
