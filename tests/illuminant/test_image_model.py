"""Models of one image without training: pixels that they leave out, images without an estimate."""

import numpy as np
import pytest

from everlight.illuminant.image_model import UnsuitableImageError, untrained_model


def test_nan_counts_as_masked(rng):
    image = rng.uniform(0.1, 0.9, (60, 60, 3)).astype(np.float32)
    mask = np.ones((60, 60), bool)
    mask[3, 3] = False
    # The greatest value is masked as saturated.
    image[9, 9], mask[9, 9] = 1, False
    expected = untrained_model("SoG")(image, mask & (image.max(axis=2) < 0.95))
    image[3, 3, 0] = np.nan
    np.testing.assert_allclose(untrained_model("SoG")(image), expected, rtol=1e-6)


def test_an_image_whose_edges_are_masked_has_no_estimate(rng):
    image = rng.uniform(0.1, 0.9, (40, 60, 3)).astype(np.float32)
    image[::4, ::4] = 1
    with pytest.raises(UnsuitableImageError, match="GE-1 determines no illuminant of the image"):
        untrained_model("GE-1")(image)
