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


@pytest.mark.parametrize("side", [20, 60])
@pytest.mark.parametrize("channels", [0, slice(None)])
def test_nan_that_is_not_masked_gives_no_estimate(rng, side, channels):
    image = rng.uniform(0.1, 0.9, (side, side, 3)).astype(np.float32)
    image[3, 3, channels] = np.nan
    with pytest.raises(UnsuitableImageError, match="an unmasked pixel is not finite"):
        untrained_model("SoG")(image, np.ones((side, side), bool))


@pytest.mark.parametrize(("value", "fault"), [(np.nan, "no pixel is"), (np.inf, "a pixel is inf")])
def test_an_image_without_finite_maximum_is_refused(value, fault):
    with pytest.raises(UnsuitableImageError, match=fault):
        untrained_model("SoG")(np.full((60, 60, 3), value))


def test_an_image_whose_edges_are_masked_has_no_estimate(rng):
    image = rng.uniform(0.1, 0.9, (40, 60, 3)).astype(np.float32)
    image[::4, ::4] = 1
    with pytest.raises(UnsuitableImageError, match="GE-1 determines no illuminant of the image"):
        untrained_model("GE-1")(image)
