"""Places on the chart, and the mask around it."""

import numpy as np

from everlight_data.color.charts.chart_geometry import (
    CENTERS,
    CORNERS,
    chart_homography,
    chart_mask,
    map_points,
)
from tests.data_pipelines.color.charts.drawn_charts import TILTED, pixels


def test_the_mask_covers_the_chart_and_a_patch_around_it():
    square = np.array([[10.0, 0, 40], [0, 10, 30], [0, 0, 1]])
    mask = chart_mask((100, 150), square)
    # The mask reaches from a patch and a half before the first centre to as much behind the last.
    assert not mask[16:74, 26:104].any()
    assert mask[:15].all()
    assert mask[76:].all()
    assert mask[:, :25].all()
    assert mask[:, 106:].all()


def test_corners_on_a_line_are_no_chart():
    assert chart_homography(np.array([[0, 0], [1, 1], [2, 2], [3, 3]])) is None
    homography = chart_homography(pixels(TILTED, CORNERS))
    np.testing.assert_allclose(map_points(homography, CENTERS), pixels(TILTED, CENTERS), atol=0.01)
