"""The gain of the second camera in the report on a phone's pairs, against errors set by hand."""

import numpy as np

from everlight_data.color.pairs.camera_pairs import TRANSFORM_AND_WHITE_BALANCE, WHITE_BALANCE
from everlight_experiments.illuminant.comparison import Comparison
from everlight_experiments.illuminant.cross_validation import CHOSEN
from everlight_experiments.illuminant.phone import gain_table

WHITE = np.ones(3) / np.sqrt(3)
ACROSS = np.array([1, -1, 0]) / np.sqrt(2)


def turned(degrees):
    """Return illuminants at these angles from white."""
    angle = np.deg2rad(degrees)[..., None]
    return np.cos(angle) * WHITE + np.sin(angle) * ACROSS


def test_the_gain_is_the_mean_difference_of_errors_by_seed():
    """Two seeds, two folds of two images; a gain of 1 and of 2 degrees on every image."""
    one = np.array([[[3.0, 5.0], [4.0, 8.0]], [[4.0, 6.0], [5.0, 9.0]]])
    both = one - np.array([1.0, 2.0])[:, None, None]
    estimates = {}
    for method in ("Net", "Linear regression"):
        for value, errors in ((WHITE_BALANCE, one), (TRANSFORM_AND_WHITE_BALANCE, both)):
            estimates[f"{method} on {value}, {CHOSEN}"] = turned(errors)
            estimates[f"{method} on {value}, {CHOSEN}, ensemble"] = turned(errors[:1])
    truth = np.broadcast_to(WHITE, (2, 2, 3))
    single, ensemble, *_ = gain_table(Comparison(estimates, truth)).rows
    assert single[1:] == ["5.50 ± 0.71", "4.00 ± 0.00", "+1.50 ± 0.71", "+1.50 to +1.50"]
    assert ensemble[1:] == ["5.00", "4.00", "+1.00", "+1.00 to +1.00"]
