"""Features of the frozen trunk: enlarging, steps of one shape, and the loop that is passed."""

import numpy as np
import pytest
from PIL import Image

from everlight_data.errors import MissingDataError
from everlight_data.pretrained import trunk_features as module
from everlight_data.pretrained.efficientnet_weights import load_efficientnet_lite0
from everlight_data.pretrained.trunk_features import MIN_SIDE, trunk_features


def test_small_images_are_enlarged_for_the_trunk(rng, monkeypatch):
    """Images of 8x8 give what the same ones give when enlarged before; 17 fill up several steps."""
    try:
        load_efficientnet_lite0()
    except MissingDataError as error:
        pytest.skip(str(error))
    seen, starts = [], []

    def stand_in(weights, images):
        seen.append(images.shape)
        return np.asarray(images, np.float32).mean(axis=(1, 2))

    def watched(steps):
        starts.extend(steps)
        return steps

    monkeypatch.setattr(module, "_trunk", stand_in)
    monkeypatch.setattr(module, "BLOCK", 8)
    small = rng.integers(0, 256, (17, 8, 8, 3), dtype=np.uint8)
    result = trunk_features(small, watched)
    large = np.stack([np.asarray(Image.fromarray(item).resize((128, 128), 3)) for item in small])
    np.testing.assert_allclose(result, large.mean(axis=(1, 2)), rtol=1e-4)
    assert {shape[1:] for shape in seen} == {(MIN_SIDE, MIN_SIDE, 3)}
    assert len({shape[0] for shape in seen}) == 1
    assert len(starts) == len(seen)
