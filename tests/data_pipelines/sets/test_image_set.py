"""Splits of labelled images, worked out by hand."""

import numpy as np
import pytest

from everlight_data.sets.image_set import ImageSet, every_nth, some_classes, split_off

LABELS = np.array([1, 0, 1, 1, 0, 1, 1, 1, 2])
IMAGES = np.arange(9, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)


@pytest.mark.parametrize(
    ("interval", "chosen"),
    # Class 1 has places 0, 2, 3, 5, 6, 7; class 0 places 1, 4; class 2 only place 8.
    [(2, [2, 4, 5, 7, 8]), (3, [3, 4, 7, 8]), (7, [4, 7, 8])],
)
def test_every_nth_of_a_class_is_chosen_and_of_fewer_the_last(interval, chosen):
    np.testing.assert_array_equal(np.flatnonzero(every_nth(LABELS, interval)), chosen)


def test_the_test_images_come_last_in_their_order():
    images = split_off("x", IMAGES, LABELS, every_nth(LABELS, 3), ("a", "b", "c"))
    np.testing.assert_array_equal(images.images[:, 0, 0, 0], [0, 1, 2, 5, 6, 3, 4, 7, 8])
    np.testing.assert_array_equal(images.train_labels, [1, 0, 1, 1, 1])
    np.testing.assert_array_equal(images.test_labels, [1, 0, 1, 2])


def test_the_first_classes_keep_their_images():
    images = ImageSet("x", IMAGES, LABELS[:5], LABELS[5:], ("a", "b", "c"))
    first = some_classes(images, 0, 1)
    np.testing.assert_array_equal(first.images[:, 0, 0, 0], [1, 4])
    np.testing.assert_array_equal(first.train_labels, [0, 0])
    assert first.test_labels.size == 0
    assert first.class_names == ("a",)
    assert some_classes(images, 0, 9).class_names == ("a", "b", "c")
