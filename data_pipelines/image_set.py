"""Labelled images as every loader of a classification set gives them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8


class ImageSet(NamedTuple):
    """Images as stored, training samples first and test samples after them."""

    name: str
    """How a report calls the set."""
    images: UInt8[np.ndarray, "n h w 3"]
    train_labels: Int[np.ndarray, "train"]
    test_labels: Int[np.ndarray, "test"]
    class_names: tuple[str, ...]
