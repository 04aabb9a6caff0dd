"""Confusion counts and the accuracies of classes, by hand."""

import numpy as np

from everlight.metrics import class_accuracies, confusion_counts, confusion_shares


def test_counts_leave_out_padding_and_what_was_not_predicted():
    labels, mask = np.array([0, 0, 1, 1, 2]), np.array([1, 1, 1, 1, 0], bool)
    predicted = np.array([[0, 1, -1, -1, 0], [0, 0, 1, 0, 2]])
    counts = confusion_counts(predicted, labels, mask, 3)
    np.testing.assert_array_equal(counts[0], [[1, 1, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(counts[1], [[2, 0, 0], [1, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(confusion_shares(counts[1])[:2], [[1, 0, 0], [0.5, 0.5, 0]])
    result = class_accuracies(counts)
    np.testing.assert_array_equal(result, [[0.5, np.nan, np.nan], [1, 0.5, np.nan]])
