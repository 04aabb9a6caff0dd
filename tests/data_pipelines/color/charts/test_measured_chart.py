"""Places of charts in charts.json that cannot be used; nothing is decoded."""

import json

import numpy as np
import pytest

from everlight_data.color.charts.measured_chart import read_chart_corners
from everlight_data.errors import DataError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"charts\.json is damaged"),
        ("[]", r"charts\.json holds no charts"),
        ('{"main/IMG_0.dng": "here"}', r"main/IMG_0\.dng has no corners"),
        ('{"main/IMG_0.dng": [[0, 0], [1, 0]]}', r"main/IMG_0\.dng has no four corners"),
        ('{"main/IMG_0.dng": [[0, 0], [1, 1], [2, 2], [3, 3]]}', r"no four corners"),
        ('{"main/x.dng": [[0, 0], [9, 0], [9, 9], [0, 9]]}', r"there is no .*x\.dng"),
    ],
)
def test_charts_that_are_none_are_refused(tmp_path, content, message):
    (tmp_path / "main").mkdir()
    (tmp_path / "main" / "IMG_0.dng").write_bytes(b"no raw file")
    (tmp_path / "charts.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_chart_corners(tmp_path, ("main", "second"))


CORNERS = [[0, 0], [9, 0], [9, 9], [0, 9]]


def test_places_are_found_by_the_name_however_it_is_written(tmp_path):
    """{"./a.dng": ...} was accepted, and the chart was searched instead."""
    (tmp_path / "main").mkdir()
    for name in ("a.dng", "main/b.dng"):
        (tmp_path / name).write_bytes(b"")
    for name, views in (("a.dng", ()), ("main/b.dng", ("main",))):
        (tmp_path / "charts.json").write_text(json.dumps({f"./{name}": CORNERS}))
        ((key, corners),) = read_chart_corners(tmp_path, views).items()
        assert key == name
        np.testing.assert_array_equal(corners, CORNERS)


@pytest.mark.parametrize(
    ("names", "views", "message"),
    [
        (["{folder}/a.dng"], (), r"there is no file .*a\.dng directly in its folder"),
        (["main/b.dng"], (), r"there is no file main/b\.dng directly in its folder"),
        (["a.dng"], ("main", "second"), r"there is no file a\.dng in main or second"),
        (["a.dng", "./a.dng"], (), r"two charts of a\.dng; remove one"),
    ],
)
def test_places_of_charts_that_no_photograph_takes_are_refused(tmp_path, names, views, message):
    (tmp_path / "main").mkdir()
    for name in ("a.dng", "main/b.dng"):
        (tmp_path / name).write_bytes(b"")
    places = {name.format(folder=tmp_path): CORNERS for name in names}
    (tmp_path / "charts.json").write_text(json.dumps(places))
    with pytest.raises(DataError, match=rf"charts\.json.*{message}"):
        read_chart_corners(tmp_path, views)
