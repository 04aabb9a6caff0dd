"""Raw files written again with a light: what LibRaw reads of both is the same but for that."""

import numpy as np
import pytest
import rawpy
import tifffile

from everlight_data.color.dng import rewrite_with_illuminant, write_dng, write_linear_tiff
from everlight_data.color.raw import read_raw

MATRIX = np.array([[0.8, -0.1, 0.05], [-0.3, 1.2, 0.1], [0.02, 0.2, 0.6]])


def sensor(rng, height=26, width=30):
    return rng.integers(100, 4095, (height, width)).astype(np.uint16)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_numbers_levels_and_orientation_are_kept(tmp_path, rng, orientation):
    mosaic = sensor(rng)
    first = tmp_path / "first.dng"
    write_dng(first, mosaic, [60, 64, 80, 72], 4000, color_matrix=MATRIX, orientation=orientation)
    photo = read_raw(first)
    rewrite_with_illuminant(photo, np.array([1.2, 2.0, 0.8]), tmp_path / "again.dng")
    again = read_raw(tmp_path / "again.dng")
    np.testing.assert_array_equal(again.image, photo.image)
    np.testing.assert_array_equal(again.saturated, photo.saturated)
    np.testing.assert_array_equal(again.black_level, [60, 64, 80, 72])
    assert again.white_level == 4000
    np.testing.assert_allclose(again.as_shot_neutral, [0.6, 1, 0.4], atol=1e-5)
    np.testing.assert_allclose(again.xyz_to_camera, MATRIX, atol=1e-3)
    with rawpy.imread(str(tmp_path / "again.dng")) as raw:
        np.testing.assert_array_equal(raw.raw_image_visible, mosaic)


@pytest.mark.parametrize("pattern", [((0, 1), (3, 2)), ((2, 3), (1, 0)), ((1, 0), (2, 3))])
def test_each_place_of_the_sensor_has_its_channel_and_black_level(tmp_path, rng, pattern):
    black = [60, 64, 80, 72]
    path = tmp_path / "a.dng"
    write_dng(path, sensor(rng), black, 4000, pattern)
    with rawpy.imread(str(path)) as raw:
        colors = raw.raw_colors_visible[:2, :2]
        kind = np.where(colors == 3, 1, colors)
        np.testing.assert_array_equal(kind, np.where(np.array(pattern) == 3, 1, pattern))
        levels = np.array(raw.black_level_per_channel)[colors]
    np.testing.assert_array_equal(levels, np.array(black)[np.array(pattern)])


def test_levels_that_were_given_are_written(tmp_path, rng):
    write_dng(tmp_path / "a.dng", sensor(rng), [64] * 4, 4000)
    photo = read_raw(tmp_path / "a.dng", black_level=32, white_level=3000)
    rewrite_with_illuminant(photo, np.ones(3), tmp_path / "b.dng")
    again = read_raw(tmp_path / "b.dng")
    np.testing.assert_array_equal(again.image, photo.image)
    assert again.xyz_to_camera is None


def test_a_camera_whose_name_is_no_ascii_is_written(tmp_path, rng):
    write_dng(tmp_path / "a.dng", sensor(rng), [64] * 4, 4000, model="Objektiv für Zwei")
    assert read_raw(tmp_path / "a.dng").camera == "Objektiv f?r Zwei"


def test_a_tiff_has_linear_colours_in_16_bits(tmp_path, rng):
    linear = rng.uniform(-0.1, 1.1, (5, 7, 3)).astype(np.float32)
    write_linear_tiff(tmp_path / "a.tiff", linear, "linear sRGB")
    with tifffile.TiffFile(tmp_path / "a.tiff") as file:
        assert file.pages[0].description == "linear sRGB"
        assert file.pages[0].photometric == tifffile.PHOTOMETRIC.RGB
        pixels = file.asarray()
    np.testing.assert_allclose(pixels / 65535, np.clip(linear, 0, 1), atol=0.51 / 65535)
