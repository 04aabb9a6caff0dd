"""Handwritten digits at 8x8, as scikit-learn ships them (Alpaydin and Kaynak 1998)."""

import numpy as np

from data_pipelines.image_set import ImageSet

TEST_EVERY = 5
"""Of every class each fifth image is a test image."""


def load_digits() -> ImageSet:
    """1,797 images of ten digits, values 0 to 255 in three equal channels."""
    # Slow to import, and not needed by other runs.
    from sklearn.datasets import load_digits as shipped

    values, labels = shipped(return_X_y=True)
    place = np.zeros(len(labels), int)
    for label in range(10):
        members = labels == label
        place[members] = np.arange(members.sum())
    test = place % TEST_EVERY == TEST_EVERY - 1
    order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])
    grey = np.rint(values[order] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return ImageSet(
        "handwritten digits (scikit-learn)",
        np.repeat(grey, 3, axis=3),
        labels[~test],
        labels[test],
        tuple("0123456789"),
    )
