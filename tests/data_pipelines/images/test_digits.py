"""The digits against scikit-learn's own arrays."""

import numpy as np
from sklearn import datasets, neighbors

from everlight_data.images.digits import load_digits


def test_every_image_is_there_once_with_its_label():
    images = load_digits()
    official = datasets.load_digits()
    assert images.images.shape == (1797, 8, 8, 1)
    labels = np.concatenate([images.train_labels, images.test_labels])
    gray = np.rint(images.images[..., 0].astype(float) * 16 / 255).reshape(1797, 64)
    result, expected = (
        {(*row, label) for row, label in zip(rows.tolist(), numbers.tolist(), strict=True)}
        for rows, numbers in ((gray, labels), (official.data, official.target))
    )
    assert result == expected


def test_a_fifth_of_every_class_tests_and_differs_from_the_rest():
    images = load_digits()
    actual, all_of_it = np.bincount(images.test_labels), np.bincount(images.train_labels)
    np.testing.assert_array_equal(actual, (actual + all_of_it) // 5)
    rows = images.images[..., 0].reshape(1797, 64)
    train = len(images.train_labels)
    nearest = neighbors.KNeighborsClassifier(1).fit(rows[:train], images.train_labels)
    # Scikit-learn's documentation: 97 to 99% for methods of this kind.
    assert nearest.score(rows[train:], images.test_labels) > 0.95
