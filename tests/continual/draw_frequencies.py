"""Equal chances of draws, by a chi-square test."""

import numpy as np
from scipy.stats import chi2


def assert_equal_chances(counts, draws, share):
    """Check how often each of some members was among a share of them that is drawn many times.

    The sum of (count - n p)² / (n p (1 - p)), times (m - 1) / m since the counts of the m members
    add up to a constant, is chi-square with m - 1 degrees of freedom.
    """
    counts, mean = np.asarray(counts), draws * share
    assert counts.sum() == round(mean * len(counts))
    free = len(counts) - 1
    statistic = np.sum((counts - mean) ** 2) / (mean * (1 - share)) * free / len(counts)
    assert chi2.ppf(1e-4, free) < statistic < chi2.ppf(1 - 1e-4, free)
