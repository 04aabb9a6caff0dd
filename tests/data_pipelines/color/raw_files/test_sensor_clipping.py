"""Sensors that clip below the stated white level, on charts whose illuminant is known."""

import numpy as np
import pytest

from everlight_data.color.charts.chart_colors import read_chart, reference_colors
from everlight_data.color.charts.chart_geometry import chart_homography
from everlight_data.color.charts.measured_chart import chart_illuminant, measure_chart
from everlight_data.color.raw_files.dng import mosaic_rggb, write_dng
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.color.raw_files.sensor_clipping import clipped_sites
from everlight_data.errors import DataError

BLACK, WHITE, SIZE = 512, 16383, 40
CORNERS = np.array([(60, 60), (260, 60), (260, 180), (60, 180)], np.float32)
# XYZ under D50 to a camera that sees a neutral as about (0.68, 1, 0.55).
CAMERA = np.array([[0.71, 0.0, -0.03], [-0.35, 1.25, 0.11], [0.02, -0.05, 0.75]])


def chart_picture(exposure):
    """Return a chart between darker tiles with this green in its white, and the greys' colour."""
    rng = np.random.default_rng(7)
    colors = np.maximum(reference_colors() @ CAMERA.T, 0.002)
    # Greys have one colour, so that the illuminant is exactly known.
    neutral = colors[18] / colors[18, 1]
    colors[18:] = neutral * colors[18:, 1:2]
    colors *= exposure / colors[18, 1]
    tiles = colors[rng.integers(0, 18, (6, 8))] * rng.uniform(0.3, 0.6, (6, 8, 1))
    image = tiles.repeat(SIZE, axis=0).repeat(SIZE, axis=1)
    image[36:204, 36:284] = colors[23]
    for patch, color in enumerate(colors):
        top, left = 60 + SIZE * (patch // 6), 60 + SIZE * (patch % 6)
        image[top - 17 : top + 17, left - 17 : left + 17] = color
    return image, neutral


def write_clipped(path, image, clip, noise, place, white=WHITE):
    """Write a sensor that clips at a fraction of white, with noise before or after it."""
    rng = np.random.default_rng(3)
    values = BLACK + mosaic_rggb(image) * (white - BLACK)
    drawn = noise * (white - BLACK) * rng.normal(size=values.shape)
    before, after = (drawn, 0) if place == "before" else (0, drawn)
    values = np.minimum(values + before, clip * white) + after
    write_dng(path, np.uint16(np.clip(np.round(values), 0, 65535)), [BLACK] * 4, white)
    return path


def measured_illuminant(path):
    seen = measure_chart(read_raw(path), CORNERS, reference_colors())
    return chart_illuminant(seen.colors, seen.usable)


NOISE = [(0.0, "before"), (0.002, "before"), (0.01, "before"), (3e-4, "after"), (0.001, "after")]


@pytest.mark.parametrize(("noise", "place"), NOISE)
@pytest.mark.parametrize("over", [1.1, 1.3, 1.7])
@pytest.mark.parametrize("clip", [0.95, 0.9, 0.8, 0.6])
def test_clipped_patches_do_not_count(tmp_path, clip, over, noise, place):
    image, neutral = chart_picture(over * clip)
    path = write_clipped(tmp_path / "a.dng", image, clip, noise, place)
    np.testing.assert_allclose(measured_illuminant(path), neutral, rtol=0.01)


def test_levels_without_a_way_out_are_refused(tmp_path):
    image, _ = chart_picture(20.0)
    path = write_clipped(tmp_path / "a.dng", image, 0.9, 0.001, "before")
    with pytest.raises(DataError, match=r"a\.dng: .*saturated; reduce|a\.dng: what lies in"):
        measured_illuminant(path)


@pytest.mark.parametrize(("noise", "place"), NOISE)
@pytest.mark.parametrize("exposure", [0.3, 0.8, 0.93])
def test_a_chart_that_is_well_exposed_keeps_its_numbers(tmp_path, exposure, noise, place):
    image, _ = chart_picture(exposure)
    path = write_clipped(tmp_path / "a.dng", image, 2.0, noise, place)
    photo = read_raw(path)
    assert not photo.saturated.any()
    colors, usable = read_chart(photo.image, photo.saturated, chart_homography(CORNERS))
    assert usable.all()
    np.testing.assert_array_equal(measured_illuminant(path), chart_illuminant(colors, usable))


@pytest.mark.parametrize("white", [255, 4095, 65535])
def test_pixels_on_a_plateau_are_masked(tmp_path, white):
    """A shaded scene clips in green alone, then in all channels."""
    y, x = np.mgrid[:120, :160] / 160
    image = np.stack([0.1 + 0.7 * x, 0.2 + 1.1 * x, 0.1 + 0.5 * y], axis=-1)
    path = tmp_path / "a.dng"
    values = np.minimum(mosaic_rggb(image) * white, round(0.85 * white))
    write_dng(path, np.uint16(np.round(values)), [0] * 4, white)
    saturated = read_raw(path).saturated
    clipped = image[..., 1] >= 0.85
    inner = np.s_[2:-2, 2:-2]
    assert saturated[clipped][2:].all()
    # Beside the plateau lie the neighbours that demosaicing touches, and one step of values.
    assert not saturated[inner][image[inner][..., 1] < 0.85 - 0.03].any()


@pytest.mark.parametrize("noise", [0, 5e-4, 0.002, 0.01])
@pytest.mark.parametrize("white", [255, 4095, 16383])
def test_scenes_below_white_have_no_plateau(white, noise):
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:270, :360] / 360
    tiles = rng.uniform(0.05, 0.9, (9, 12, 3)).repeat(30, 0).repeat(30, 1)
    gradient = np.stack([0.3 + 0.4 * x, 0.9 - 0.5 * np.hypot(x - 0.5, y - 0.4), 0.2 + 0.5 * y], -1)
    sky = np.stack([0.5 + 0.1 * y, 0.7 + 0.1 * y, 0.85 + 0.1 * y - 0.02 * x], -1)
    for image in (tiles, tiles * (0.7 + 0.3 * x)[..., None], gradient, sky):
        values = mosaic_rggb(image) * white
        values = np.round(values + noise * white * rng.normal(size=values.shape))
        values = np.uint16(np.clip(values, 0, white))
        clipped = clipped_sites(values, np.zeros(values.shape), white)
        np.testing.assert_array_equal(clipped, values >= white)


def test_defective_pixels_above_a_plateau_do_not_hide_it(tmp_path):
    image, neutral = chart_picture(1.2)
    image[5, 5], image[100, 7] = 1.5, 1.5
    values = np.minimum(BLACK + mosaic_rggb(image) * (WHITE - BLACK), 0.9 * WHITE)
    values[4, 4] = values[101, 8] = 16000
    path = tmp_path / "a.dng"
    write_dng(path, np.uint16(np.round(values)), [BLACK] * 4, WHITE)
    np.testing.assert_allclose(measured_illuminant(path), neutral, rtol=0.01)


def test_a_lamp_that_clips_all_channels_has_a_plateau():
    """No other photosite is near its value; a grey card of equal numbers below it is none."""
    values = np.random.default_rng(0).integers(600, 9000, (120, 160)).astype(np.uint16)
    values[20:40, 30:60] = 13200
    values[80:100, 30:60] = 9500
    clipped = clipped_sites(values, np.full(values.shape, 512.0), WHITE)
    np.testing.assert_array_equal(clipped, values == 13200)
