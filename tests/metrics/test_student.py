"""Student's interval, distances and ties, against SciPy and by hand."""

import numpy as np
from scipy import stats

from everlight.metrics import standard_errors_apart, student_interval, tied_candidates


def test_the_interval_is_scipys(rng):
    values = rng.normal(size=7)
    mean, half = student_interval(values, 0.9)
    low, high = stats.t.interval(0.9, 6, values.mean(), stats.sem(values))
    np.testing.assert_allclose((mean - half, mean + half), (low, high))
    assert np.isnan(student_interval(values[:1]).half)


def test_standard_errors_are_welch_s_statistic(rng):
    values = rng.normal(size=4)
    inputs = values.mean(), values.std(ddof=1), 4
    expected = stats.ttest_ind_from_stats(*inputs, 0.73, 0.02, 5, equal_var=False).statistic
    np.testing.assert_allclose(standard_errors_apart(values, 0.73, 0.02, 5), expected)
    # Without a deviation they are those of the values alone.
    single = (values.mean() - 0.7) / stats.sem(values)
    np.testing.assert_allclose(standard_errors_apart(values, 0.7), single)
    assert np.isnan(standard_errors_apart(values[:1], 0.7))


def test_equal_values_have_no_deviation():
    """The mean of three times 0.1 rounds to another number, as does their variance."""
    values = np.full(3, 0.1)
    assert standard_errors_apart(values, 0.1) == 0
    assert standard_errors_apart(values, 0.2) == -np.inf
    np.testing.assert_allclose(standard_errors_apart(values, 0.2, 0.3, 9), -1)


def test_ties_are_within_one_standard_error_of_paired_differences():
    """Differences of 0.1 and -0.06 have the mean 0.02 and the standard error 0.08; of 0.1 and 0.02
    the mean is 0.06 and the error 0.04."""
    scores = np.array([[0.6, 0.5], [0.5, 0.56], [0.5, 0.48]])
    assert tied_candidates(0, scores).tolist() == [True, True, False]
    # One sample has only equal values.
    assert tied_candidates(0, np.array([[0.4], [0.39], [0.4]])).tolist() == [True, False, True]
