"""Raw files against their own mosaics, on a real photo and on small files written here."""

import numpy as np
import pytest
import rawpy
import tifffile
from PIL import Image

from everlight_data.color.raw_files.dng import mosaic_rggb
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from tests.data_pipelines.color.photographs.orientations import UPRIGHT
from tests.dng_writer import write_dng

MATRIX = np.array([[0.9, -0.3, -0.1], [-0.4, 1.2, 0.2], [-0.1, 0.3, 0.6]])
COLOR = np.array([0.2, 0.5, 0.3])
CHART = "raw_samples/colorchart.dng"
WHITE_PATCH = np.s_[910:950, 680:720]


@pytest.fixture
def flat():
    return np.broadcast_to(COLOR, (40, 60, 3))


def photosite_means(path, region, black, white):
    """Return the means of R, G, B and G2 in a region of the mosaic, 0 at black and 1 at white."""
    with rawpy.imread(str(path)) as raw:
        mosaic = raw.raw_image_visible[region].astype(float)
        colors = raw.raw_colors_visible[region]
    means = np.array([mosaic[colors == k].mean() for k in range(4)])
    return (means - black) / (white - black)


def test_a_real_patch_keeps_its_mosaics_mean(real_data):
    path = real_data(CHART)
    red, green, blue, second = photosite_means(path, WHITE_PATCH, 2056, 15000)
    photo = read_raw(path)
    assert photo.image.dtype == np.float32
    assert photo.image.shape == (1156, 1734, 3)
    patch = photo.image[WHITE_PATCH].mean((0, 1))
    np.testing.assert_allclose(patch, [red, (green + second) / 2, blue], rtol=2e-3)


def test_half_size_averages_the_greens_of_each_block(real_data):
    path = real_data(CHART)
    half = read_raw(path, half_size=True)
    assert half.image.shape == (578, 867, 3)
    assert half.saturated.shape == (578, 867)
    with rawpy.imread(str(path)) as raw:
        mosaic = (raw.raw_image_visible.astype(float) - 2056) / (15000 - 2056)
    green = (mosaic[::2, 1::2] + mosaic[1::2, ::2]) / 2
    expected = np.stack([mosaic[::2, ::2], green, mosaic[1::2, 1::2]], axis=-1)
    np.testing.assert_allclose(half.image, expected, atol=1e-4)


def test_a_real_files_records_are_those_of_its_tags(real_data):
    photo = read_raw(real_data(CHART))
    assert photo.black_level.tolist() == [2056] * 4
    assert photo.white_level == 15000
    assert photo.camera == "Canon EOS Kiss X4"
    assert not photo.saturated.any()
    neutral = np.array([1 / 1, 1 / 2.477, 1 / 1.462])
    np.testing.assert_allclose(1 / photo.as_shot_neutral, neutral / neutral[1], rtol=1e-5)
    matrix = [[6461, -1164, -857], [-3825, 11597, 2534], [-416, 1540, 6039]]
    np.testing.assert_allclose(photo.xyz_to_camera * 1e4, matrix, atol=1)


def test_the_writers_file_comes_back(tmp_path, flat):
    black = [60, 64, 72, 80]  # of the places R, G, G, B
    path = write_dng(tmp_path / "a.dng", flat, black, 4095, MATRIX, [0.5, 1, 0.7], "Two Eyes")
    photo = read_raw(path)
    # 12 bits resolve 1/4000; the two greens differ by their ranges' share, 0.1%.
    np.testing.assert_allclose(photo.image, flat, atol=7e-4)
    assert photo.black_level.tolist() == [60, 64, 80, 72]
    assert photo.white_level == 4095
    np.testing.assert_allclose(photo.xyz_to_camera, MATRIX, atol=2e-4)
    np.testing.assert_allclose(photo.as_shot_neutral, [0.5, 1, 0.7], atol=1e-5)
    assert photo.camera == "Two Eyes"
    assert photo.path == path


def test_a_smooth_image_survives_mosaic_and_demosaicing(tmp_path):
    y, x = np.mgrid[:48, :64] / 64
    image = np.stack([0.2 + 0.5 * x, 0.8 - 0.6 * y, 0.3 + 0.2 * (x + y)], axis=-1)
    path = write_dng(tmp_path / "ramp.dng", image, 256, 65535)
    # Bilinear interpolation is exact on a ramp, but for one-sided borders.
    inner = np.s_[2:-2, 2:-2]
    np.testing.assert_allclose(read_raw(path).image[inner], image[inner], atol=2e-4)


def test_dim_images_are_not_brightened(tmp_path):
    """LibRaw stretches an image whose maximum is above 3/4 of white, and rescales dim ones."""
    for level in (0.04, 0.8):
        path = write_dng(tmp_path / f"{level}.dng", np.full((24, 24, 3), level))
        np.testing.assert_allclose(read_raw(path).image, level, atol=2e-4)


def test_levels_given_win_over_the_files(tmp_path, flat):
    path = write_dng(tmp_path / "wrong.dng", flat, black=100, white=4000)
    photo = read_raw(path, LevelArguments(black_level=40, white_level=5000))
    np.testing.assert_allclose(photo.image, (100 + flat * 3900 - 40) / 4960, atol=3e-4)
    assert photo.black_level.tolist() == [40] * 4
    assert photo.white_level == 5000
    item = read_raw(path, LevelArguments(black_level=[40, 50, 60, 50], white_level=5000))
    expected = (100 + COLOR * 3900 - [40, 50, 60]) / [4960, 4950, 4940]
    np.testing.assert_allclose(item.image, np.broadcast_to(expected, flat.shape), atol=3e-4)


def test_values_are_clipped_at_white_alone(tmp_path, flat):
    path = write_dng(tmp_path / "a.dng", flat, [60, 64, 72, 80], 4095)
    photo = read_raw(path, LevelArguments(black_level=[1000, 900, 1100, 900], white_level=1500))
    red = 60 + COLOR[0] * (4095 - 60)
    np.testing.assert_allclose(photo.image[..., 0], (red - 1000) / 500, atol=3e-3)
    assert red < 1000
    assert photo.image.max() == 1


def test_a_dark_noisy_patch_keeps_its_mean(tmp_path):
    """Clipped at black, noise of 1% of white would add 0.4% of white: ten times the patch."""
    rng = np.random.default_rng(0)
    dark = 4e-4 + rng.normal(0, 0.01, (120, 120, 3))
    photo = read_raw(write_dng(tmp_path / "dark.dng", dark, 512, 16383))
    means = np.array([dark[::2, ::2, 0].mean(), mean_green(dark), dark[1::2, 1::2, 2].mean()])
    inner = photo.image[2:-2, 2:-2]
    np.testing.assert_allclose(inner.mean((0, 1)), means, atol=1e-4)
    assert inner.min() < -0.01


def mean_green(image):
    """Return the mean of the photosites that see green."""
    return (image[::2, 1::2, 1].mean() + image[1::2, ::2, 1].mean()) / 2


@pytest.mark.parametrize("half_size", [False, True])
def test_pixels_of_a_saturated_photosite_are_marked(tmp_path, half_size):
    image = np.full((31, 34, 3), 0.3)
    image[4, 6, 0] = 1.2
    path = write_dng(tmp_path / "a.dng", image, 64, 4095)
    saturated = read_raw(path, half_size=half_size).saturated
    marked = np.zeros((15, 17) if half_size else (31, 34), bool)
    marked[(2, 3) if half_size else np.s_[3:6, 5:8]] = True
    np.testing.assert_array_equal(saturated, marked)
    # Whatever the photosite changed lies in the marked part.
    changed = np.abs(read_raw(path, half_size=half_size).image - 0.3).max(-1) > 1e-3
    assert changed.any()
    assert not changed[~marked].any()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_that_of_tiff(tmp_path, orientation):
    """TIFF's orientation says where row 0 and column 0 of the stored image lie (TIFF 6.0)."""
    image = np.full((24, 34, 3), 0.1)
    image[2:6, 2:12] = 0.8
    image[14:17, 24:28] = 1.1
    path = write_dng(tmp_path / "a.dng", image, extra_tags=[(274, 3, 1, orientation)])
    upright = UPRIGHT[orientation]
    stored = read_raw(write_dng(tmp_path / "stored.dng", image))
    photo = read_raw(path)
    np.testing.assert_allclose(photo.image, upright(stored.image), atol=1e-6)
    np.testing.assert_array_equal(photo.saturated, upright(stored.saturated))
    assert photo.saturated.any()


def test_missing_metadata_are_none(tmp_path, flat):
    photo = read_raw(write_dng(tmp_path / "a.dng", flat))
    assert photo.xyz_to_camera is None
    assert photo.as_shot_neutral is None


def test_the_writer_puts_each_color_in_its_place():
    image = np.arange(24).reshape(2, 4, 3)
    np.testing.assert_array_equal(mosaic_rggb(image), [[0, 4, 6, 10], [13, 17, 19, 23]])


def write_text(path, flat):
    path.write_text("not a photo" * 100)


def write_png(path, flat):
    Image.fromarray(np.uint8(flat * 255)).save(path, format="PNG")


def write_monochrome(path, flat):
    write_dng(path, flat, extra_tags=[(50713, 3, 2, (1, 1)), (50714, 3, 1, 64)])
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[0].tags["PhotometricInterpretation"].overwrite(34892)


def write_oblong(path, flat):
    write_dng(path, flat, extra_tags=[(50718, 5, 2, (2, 1, 1, 1))])


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (write_text, "is not a raw file"),
        (write_png, "is not a raw file"),
        (write_monochrome, "Bayer"),
        (write_oblong, "aspect 2.0; give a file with square"),
    ],
)
def test_unsupported_kinds_are_named(tmp_path, flat, write, reason):
    path = tmp_path / "odd.dng"
    write(path, flat)
    with pytest.raises(DataError, match=rf"odd\.dng.*{reason}"):
        read_raw(path)


@pytest.mark.parametrize(
    ("black", "white"), [(4095, 4095), (5000, None), ([0, 0, 0, 900], 800), (-1, None)]
)
def test_a_black_level_outside_the_range_is_refused(tmp_path, flat, black, white):
    path = write_dng(tmp_path / "a.dng", flat)
    with pytest.raises(DataError, match=r"a\.dng: black level .* white level"):
        read_raw(path, LevelArguments(black_level=black, white_level=white))
