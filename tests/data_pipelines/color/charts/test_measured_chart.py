"""Places of charts in charts.json that cannot be used; nothing is decoded."""

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
        read_chart_corners(tmp_path)
