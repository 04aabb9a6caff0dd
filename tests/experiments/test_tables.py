"""Tables of errors: deviations, intervals and what is invalid."""

import numpy as np
import pytest

from experiments.common.report import PAPER
from experiments.two_camera.tables import Resampled, error_table, spread


def cells(table, method):
    (row,) = [row for row in table.rows if row[0] == method]
    named = zip(table.columns, row, strict=True)
    return {column.name: cell for column, cell in named if column.group != PAPER}


def test_the_deviation_is_the_samples():
    """Of 1 and 3 it is the root of 2; the population's would be 1."""
    assert spread(np.array([1.0, 3.0])) == "2.00 ± 1.41"
    assert spread(np.array([2.0])) == "2.00"
    errors = {"A": np.array([1.0, 3.0])[:, None, None] * np.ones((2, 3, 4))}
    table = error_table("", errors, {}, "seeds")
    assert cells(table, "A")["Mean"] == "2.00 ± 1.41"
    assert "± is their sample deviation" in table.caption


def test_an_interval_over_lights_is_wider_than_one_over_their_scenes(rng):
    lights = np.repeat(np.arange(20), 50)
    values = (rng.gamma(2, 1, 20)[lights] + 0.1 * rng.normal(size=1_000))[None, None]
    by_scene = error_table("", {"A": values}, {}, "pairs")
    by_light = error_table("", {"A": values}, {}, "pairs", Resampled("lights", lights[None]))
    widths = []
    for table in (by_scene, by_light):
        low, high = map(float, cells(table, "A")["95% interval"].split("–"))
        widths.append(high - low)
    # Fifty scenes count as one: the interval is about the root of fifty times as wide.
    assert widths[1] / widths[0] == pytest.approx(np.sqrt(50), rel=0.3)
    assert "bootstrap over lights" in by_light.caption
    assert "bootstrap over images" in by_scene.caption


def test_what_is_invalid_is_counted_and_the_paper_stands_beside():
    values = np.array([1.0, np.nan, 3.0, np.inf])[None, None]
    table = error_table("", {"A": values, "B": np.ones_like(values)}, {"A": (9.0, 8.0)}, "pairs")
    row = cells(table, "A")
    assert row["Invalid"] == "2"
    assert row["Max"] == "3.00"
    assert table.rows[0][-6:] == ["9.00", "8.00", "–", "–", "–", "–"]
    assert table.strong_rows == {1}
