"""Homographies of users' files, and what is refused with its reason."""

import json

import numpy as np
import pytest

from everlight_data.color.pairs.view_pairs import read_homography
from everlight_data.errors import DataError

ALIGNMENT = np.array([[0.9, -0.02, 25.0], [0.015, 0.91, -4.0], [2e-5, -1e-5, 1.0]])


def test_a_homography_file_may_hold_the_matrix(tmp_path):
    path = tmp_path / "phone.json"
    path.write_text(json.dumps({"matrix": (2 * ALIGNMENT).tolist()}))
    np.testing.assert_allclose(read_homography(path), ALIGNMENT, rtol=1e-6)


LINE = [[0, 0], [10, 10], [20, 20], [30, 30]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged or not the expected file .*matrix"),
        ("[1, 2]", "does not hold a homography"),
        ('{"matrix": [[1, 2], [3]]}', "does not hold a homography"),
        ('{"matrix": "unit"}', "does not hold a homography"),
        ('{"matrix": [[1, 0, NaN], [0, 1, 0], [0, 0, 1]]}', "not finite; write it as"),
        ('{"H": [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}', r"has the keys \['H'\]; write it as"),
        ('{"matrix": [[1, 0], [0, 1]]}', "invertible 3×3"),
        ('{"matrix": [[1, 0, 0], [1, 0, 0], [0, 0, 1]]}', "invertible 3×3"),
        ('{"matrix": [[1, 0, 1], [0, 1, 0], [1, 0, 0]]}', "lower right not 0"),
        (json.dumps({"main": LINE[:3], "second": LINE[:3]}), "at least 4"),
        (json.dumps({"main": LINE, "second": LINE[:3]}), "the same number"),
        (json.dumps({"main": LINE, "second": LINE}), "give no homography"),
    ],
)
def test_a_bad_homography_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"bad\.json.*{message}"):
        read_homography(path)
