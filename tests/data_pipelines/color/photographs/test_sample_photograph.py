"""The photograph of the demo, and the illuminant that it is shown under."""

import numpy as np
from sklearn.datasets import load_sample_image

from everlight.color.rendering import encode_srgb
from everlight_data.color.photographs.sample_photograph import (
    INCANDESCENT,
    illuminant_in_srgb,
    load_sample_photograph,
)


def test_the_photograph_is_linear():
    """Encoding it again gives the file's bytes."""
    linear = load_sample_photograph()
    assert linear.dtype == np.float32
    assert (linear.min(), linear.max()) == (0, 1)
    again = np.rint(255 * np.asarray(encode_srgb(linear)))
    np.testing.assert_array_equal(again, load_sample_image("china.jpg"))


def test_white_is_the_white_of_srgb():
    """D65 has the chromaticity (0.3127, 0.3290)."""
    np.testing.assert_allclose(illuminant_in_srgb((0.3127, 0.3290)), 1, atol=1e-3)


def test_an_incandescent_lamp_is_orange():
    """The same numbers by the inverse matrix that IEC 61966-2-1 prints."""
    x, y = INCANDESCENT
    inverse = np.array(
        [[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]]
    )
    expected = inverse @ [x / y, 1, (1 - x - y) / y]
    np.testing.assert_allclose(
        illuminant_in_srgb(INCANDESCENT), expected / expected.max(), atol=2e-3
    )
