"""Colours of patches that an image shows."""

import numpy as np

from everlight_data.color.charts.chart_colors import read_chart
from everlight_data.color.charts.chart_geometry import CENTERS
from tests.data_pipelines.color.charts.drawn_charts import TILTED, drawn, pixels


def test_saturated_patches_are_reported():
    image, _ = drawn(TILTED)
    saturated = np.zeros(image.shape[:2], bool)
    x, y = pixels(TILTED, CENTERS[[18]])[0].round().astype(int)
    saturated[y, x] = True
    assert np.flatnonzero(~read_chart(image, saturated, TILTED).usable).tolist() == [18]
