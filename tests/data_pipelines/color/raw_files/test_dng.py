"""Raw files rewritten with an illuminant, which alone differs in what LibRaw reads."""

import numpy as np
import pytest
import rawpy
import tifffile

from everlight_data.color.raw_files import dng
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.raw import read_raw

MATRIX = np.array([[0.8, -0.1, 0.05], [-0.3, 1.2, 0.1], [0.02, 0.2, 0.6]])


def sensor(rng, height=26, width=30):
    return rng.integers(100, 4095, (height, width)).astype(np.uint16)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_numbers_levels_and_orientation_are_kept(tmp_path, rng, orientation):
    mosaic = sensor(rng)
    first = tmp_path / "first.dng"
    described = dng.DngTags(color_matrix=MATRIX, orientation=orientation)
    dng.write_dng(first, mosaic, [60, 64, 80, 72], 4000, tags=described)
    photo = read_raw(first)
    dng.rewrite_with_illuminant(photo, np.array([1.2, 2.0, 0.8]), tmp_path / "again.dng")
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
    dng.write_dng(path, sensor(rng), black, 4000, pattern)
    with rawpy.imread(str(path)) as raw:
        colors = raw.raw_colors_visible[:2, :2]
        kind = np.where(colors == 3, 1, colors)
        np.testing.assert_array_equal(kind, np.where(np.array(pattern) == 3, 1, pattern))
        levels = np.array(raw.black_level_per_channel)[colors]
    np.testing.assert_array_equal(levels, np.array(black)[np.array(pattern)])


def test_a_files_own_color_tags_are_kept(tmp_path, rng):
    """LibRaw knows this make and model, and its built-in matrix is another."""
    second, calibration = MATRIX + 0.05, np.diag([1.1, 1.0, 0.9])
    tags = [
        (271, dng.ASCII, 0, "Canon"),
        (272, dng.ASCII, 0, "Canon EOS 550D"),
        (50710, dng.BYTE, 3, b"\2\1\0"),
        (50721, dng.SIGNED_RATIONAL, 9, dng.rationals(MATRIX)),
        (50722, dng.SIGNED_RATIONAL, 9, dng.rationals(second)),
        (50723, dng.SIGNED_RATIONAL, 9, dng.rationals(calibration)),
        (50727, dng.RATIONAL, 3, (1, 2, 1, 1, 4, 5)),
        (50778, dng.SHORT, 1, 17),
        (50779, dng.SHORT, 1, 21),
        (50931, dng.ASCII, 0, "maker"),
        (50932, dng.ASCII, 0, "maker"),
    ]
    first, again = tmp_path / "first.dng", tmp_path / "again.dng"
    described = dng.DngTags(extra=tags, model="Canon EOS 550D")
    dng.write_dng(first, sensor(rng), [64] * 4, 4000, tags=described)
    photo = read_raw(first)
    dng.rewrite_with_illuminant(photo, np.array([0.5, 1.0, 0.25]), again)
    with tifffile.TiffFile(first) as one, tifffile.TiffFile(again) as other:
        for code, *_ in tags[2:]:
            assert other.pages[0].tags[code].value == one.pages[0].tags[code].value
        neutral = np.array(other.pages[0].tags[50728].value, float).reshape(3, 2)
    # Planes are blue, green, red here.
    np.testing.assert_allclose(neutral[:, 0] / neutral[:, 1], [0.25, 1.0, 0.5])
    copy = read_raw(again)
    np.testing.assert_array_equal(copy.xyz_to_camera, photo.xyz_to_camera)
    np.testing.assert_array_equal(copy.image, photo.image)
    np.testing.assert_allclose(copy.as_shot_neutral, [0.5, 1.0, 0.25])
    expected = np.diag([0.5, 1, 0.8]) @ second
    np.testing.assert_allclose(photo.xyz_to_camera, expected[::-1], rtol=1e-5)


def test_black_levels_of_every_kind_are_kept(tmp_path, rng):
    pattern = np.array([[63.99, 64.25, 70], [80, 1 / 3, 12]])
    tags = [
        (50713, dng.SHORT, 2, pattern.shape),
        (50714, dng.RATIONAL, 6, dng.rationals(pattern)),
        (50715, dng.SIGNED_RATIONAL, 30, dng.rationals(rng.integers(-50, 50, 30) / 8)),
        (50716, dng.SIGNED_RATIONAL, 26, dng.rationals(rng.integers(0, 50, 26) / 3)),
    ]
    first, again = tmp_path / "first.dng", tmp_path / "again.dng"
    dng.write_dng(first, sensor(rng), [0] * 4, 4000, tags=dng.DngTags(extra=tags))
    photo = read_raw(first)
    dng.rewrite_with_illuminant(photo, np.ones(3), again)
    np.testing.assert_array_equal(read_raw(again).image, photo.image)


def test_levels_that_were_given_are_written(tmp_path, rng):
    dng.write_dng(tmp_path / "a.dng", sensor(rng), [64] * 4, 4000)
    photo = read_raw(tmp_path / "a.dng", LevelArguments(black_level=32, white_level=3000))
    dng.rewrite_with_illuminant(photo, np.ones(3), tmp_path / "b.dng")
    again = read_raw(tmp_path / "b.dng")
    np.testing.assert_array_equal(again.image, photo.image)
    assert again.xyz_to_camera is None


def test_a_camera_whose_name_is_no_ascii_is_written(tmp_path, rng):
    described = dng.DngTags(model="Objektiv für Zwei")
    dng.write_dng(tmp_path / "a.dng", sensor(rng), [64] * 4, 4000, tags=described)
    assert read_raw(tmp_path / "a.dng").camera == "Objektiv f?r Zwei"


def test_a_tiff_has_linear_colors_in_16_bits(tmp_path, rng):
    linear = rng.uniform(-0.1, 1.1, (5, 7, 3)).astype(np.float32)
    dng.write_linear_tiff(tmp_path / "a.tiff", linear, "linear sRGB")
    with tifffile.TiffFile(tmp_path / "a.tiff") as file:
        assert file.pages[0].description == "linear sRGB"
        assert file.pages[0].photometric == tifffile.PHOTOMETRIC.RGB
        pixels = file.asarray()
    np.testing.assert_allclose(pixels / 65535, np.clip(linear, 0, 1), atol=0.51 / 65535)
