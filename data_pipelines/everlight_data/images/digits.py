"""Reader of scikit-learn's handwritten 8x8 digits (Alpaydin and Kaynak 1998)."""

import numpy as np

from everlight_data.optional_packages import import_package
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet, every_nth, split_off

TEST_EVERY = 5
"""Interval of test images: every fifth image of a class."""


def load_digits() -> ImageSet:
    """Load 1,797 images of ten digits, values 0 to 255 in one channel.

    Raises:
      MissingPackageError: scikit-learn is not installed.
    """
    values, labels = import_package("sklearn.datasets").load_digits(return_X_y=True)
    gray = np.rint(values * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return split_off(
        "handwritten digits (scikit-learn)",
        gray,
        labels,
        every_nth(labels, TEST_EVERY),
        tuple("0123456789"),
    )


DATA_SETS = {
    "digits": DataSet(
        "handwritten digits: 1,797 grey images of 8x8, part of scikit-learn",
        load=lambda _: load_digits(),
    )
}
