"""Names under which a run's folder keeps the charts of a pair."""

import numpy as np

from everlight_data.color.charts.chart_pairs import PairCharts
from everlight_data.color.charts.measured_chart import MeasuredChart


def test_charts_come_back_from_their_stored_arrays(rng):
    main, second = (
        MeasuredChart(
            homography=rng.normal(size=(3, 3)),
            colors=rng.normal(size=(24, 3)),
            usable=rng.random(24) < 0.5,
            shape=shape,
            flip=flip,
            camera=camera,
        )
        for shape, flip, camera in (((360, 480), 0, "S20"), ((200, 300), 6, "S20 wide"))
    )
    arrays = PairCharts(main=main, second=second).to_arrays()
    # Runs of earlier versions have these names.
    assert list(arrays) == ["charts", "colors", "usable", "shapes", "flips", "cameras"]
    assert arrays["charts"].shape == (2, 3, 3)
    assert arrays["charts"][1].tolist() == second.homography.tolist()
    assert arrays["usable"].dtype == bool
    assert arrays["shapes"].tolist() == [[360, 480], [200, 300]]
    assert arrays["flips"].tolist() == [0, 6]
    assert arrays["cameras"].tolist() == ["S20", "S20 wide"]
    again = PairCharts.from_arrays(dict(reversed(arrays.items())))
    for chart, stored in ((again.main, main), (again.second, second)):
        for field, value, expected in zip(MeasuredChart._fields, chart, stored, strict=True):
            assert type(value) is type(expected), field
            np.testing.assert_array_equal(value, expected)
