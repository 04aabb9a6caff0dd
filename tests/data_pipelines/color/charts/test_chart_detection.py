"""Charts that are detected on a real photo and on made-up ones."""

import numpy as np
import pytest

from everlight_data.color.charts.chart_colors import fit_residual, read_chart, reference_colors
from everlight_data.color.charts.chart_detection import find_charts
from everlight_data.color.charts.chart_geometry import (
    CENTERS,
    CORNERS,
    chart_homography,
    map_points,
)
from everlight_data.color.charts.chart_scenes import write_chart_pairs
from everlight_data.color.charts.measured_chart import measure_chart
from everlight_data.color.raw_files.raw import RawImage, read_raw
from everlight_data.errors import DataError
from tests.data_pipelines.color.charts.drawn_charts import TILTED, drawn, pixels


def test_the_chart_is_found_on_a_real_photo(real_data):
    """A person pointed at the centres of the corner patches."""
    photo = read_raw(real_data("raw_samples/colorchart.dng"))
    (corners,) = find_charts(photo.image, reference_colors())
    expected = [[716, 626], [1251, 615], [1257, 922], [704, 930]]
    np.testing.assert_allclose(corners, expected, atol=6)
    seen = read_chart(photo.image, photo.saturated, chart_homography(corners))
    assert seen.usable.all()
    assert fit_residual(seen.colors, reference_colors()) < 0.04


@pytest.mark.parametrize("turns", range(4))
def test_a_tilted_chart_is_found_however_the_picture_is_turned(turns):
    image, colors = drawn(TILTED, turns=turns)
    (corners,) = find_charts(image, reference_colors())
    x, y = pixels(TILTED, CORNERS).T
    # Columns and rows of a picture of 300 x 200 after np.rot90.
    x, y = [(x, y), (y, 299 - x), (299 - x, 199 - y), (199 - y, x)][turns]
    np.testing.assert_allclose(corners, np.stack([x, y], axis=1), atol=1)
    read = read_chart(image, np.zeros(image.shape[:2], bool), chart_homography(corners))
    np.testing.assert_allclose(read.colors, colors, atol=0.01)


def test_no_chart_is_found_where_there_is_none(rng):
    noise = np.float32(rng.uniform(0, 1, (120, 160, 3)))
    assert find_charts(noise, reference_colors()) == []
    # The picture is a grid of patches, but of other colours.
    image, _ = drawn(TILTED)
    wrong = rng.permutation(reference_colors())
    assert find_charts(image, wrong) == []


SECOND = np.array([[14.0, 2.0, 30.0], [-2.0, 15.0, 40.0], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("illuminant", [(0.5, 1.0, 0.7), (0.9, 1.0, 0.3)])
def test_two_charts_are_both_found(illuminant):
    """The second one may be smaller and in another illuminant."""
    first, _ = drawn(np.array([[1, 0, 120], [0, 1, 90], [0, 0, 1]]) @ TILTED, (320, 460))
    second, _ = drawn(SECOND, (320, 460), illuminant)
    x, y = pixels(SECOND, CENTERS).T
    window = np.s_[: round(y.max()) + 16, : round(x.max()) + 16]
    first[window] = second[window]
    result = find_charts(first, reference_colors())
    assert len(result) == 2
    centers = np.array(sorted(item.mean(axis=0).tolist() for item in result))
    np.testing.assert_allclose(centers[0], pixels(SECOND, CORNERS).mean(axis=0), atol=1)
    none = np.zeros(first.shape[:2], bool)
    photo = RawImage(first, none, np.zeros(4, int), 1, None, None, "A", 0, "two.dng")
    message = r"^two\.dng: 2 charts found, around \[\d+, \d+\], \["
    with pytest.raises(DataError, match=message) as no:
        measure_chart(photo, None, reference_colors())
    assert "Write it into charts.json" in str(no.value)
    chosen = measure_chart(photo, result[0], reference_colors())
    np.testing.assert_allclose(map_points(chosen.homography, CORNERS), result[0], atol=1e-2)


def test_made_up_charts_are_located_and_their_grays_have_the_illuminants_color(tmp_path):
    true = write_chart_pairs(tmp_path, 2, seed=5)
    for index, name in enumerate(true.names):
        for view, moved in (("main", np.eye(3)), ("second", true.homography)):
            photo = read_raw(tmp_path / view / f"{name}.dng")
            (corners,) = find_charts(photo.image, reference_colors())
            expected = pixels(moved @ true.charts[index], CORNERS)
            np.testing.assert_allclose(corners, expected, atol=1)
            read = read_chart(photo.image, photo.saturated, chart_homography(corners))
            gray, illuminant = read.colors[18:23].sum(0), getattr(true, view)[index]
            sine = np.linalg.norm(np.cross(gray, illuminant))
            sine /= np.linalg.norm(gray) * np.linalg.norm(illuminant)
            assert np.degrees(np.arcsin(sine)) < 0.3
