"""Pictures of three channels of 16 bits, as other programs write them."""

import struct

import imagecodecs
import numpy as np
import pytest
import tifffile

from everlight_data.color.photographs.linear_pictures import read_picture
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.photos import read_photo
from everlight_data.errors import DataError
from tests.data_pipelines.color.photographs.orientations import UPRIGHT
from tests.data_pipelines.images.user_files.user_folders import png_chunk


@pytest.mark.parametrize("shape", [(24, 96), (3, 3), (3, 7), (40, 3)])
@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("options", [{}, {"tile": (16, 16)}, {"compression": "deflate"}])
def test_a_tiff_in_planes_is_the_same_picture(tmp_path, rng, shape, byteorder, options):
    pixels = rng.integers(0, 65536, (*shape, 3)).astype(np.uint16)
    planes = np.moveaxis(pixels, -1, 0)
    for name, stored, layout in (("a", planes, "separate"), ("b", pixels, "contig")):
        path = tmp_path / f"{name}.tif"
        tifffile.imwrite(
            path, stored, photometric="rgb", planarconfig=layout, byteorder=byteorder, **options
        )
        np.testing.assert_array_equal(read_picture(path, ""), pixels)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("i2", "has 3 channels of 16 bits with sign, not 3 of 16 without sign"),
        ("f4", r"has 3 channels of 32 bits \(floats\), not 3 of 16"),
        ("f2", r"has 3 channels of 16 bits \(floats\), not 3 of 16"),
        ("u1", "has 3 channels of 8 bits, not 3 of 16"),
        ("u4", "has 3 channels of 32 bits, not 3 of 16"),
    ],
)
@pytest.mark.parametrize("layout", ["separate", "contig"])
def test_other_numbers_are_named(tmp_path, dtype, message, layout):
    shape = (3, 24, 96) if layout == "separate" else (24, 96, 3)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones(shape, dtype), photometric="rgb", planarconfig=layout)
    with pytest.raises(DataError, match=rf"a\.tif {message}"):
        read_photo(path)


def test_a_tiff_of_other_colors_is_refused(tmp_path):
    """Lab of 16 bits was read as red, green and blue."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones((24, 96, 3), np.uint16), photometric="cielab")
    with pytest.raises(DataError, match=r"a\.tif: PhotometricInterpretation is 8, not 2 .RGB"):
        read_photo(path)


def add_exif(content, orientation):
    """Insert a chunk eXIf with one directory of one tag after a PNG's header."""
    body = struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 274, 3, 1, orientation, 0, 0)
    return content[:33] + png_chunk(b"eXIf", body) + content[33:]


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("kind", ["tif", "png"])
def test_a_picture_is_turned_upright(tmp_path, rng, orientation, kind):
    """The orientation was not read, so that a picture lay beside its raw file's."""
    stored = rng.integers(1, 65536, (24, 96, 3)).astype(np.uint16)
    path = tmp_path / f"a.{kind}"
    if kind == "tif":
        tag = (274, 3, 1, orientation, True)
        tifffile.imwrite(path, stored, photometric="rgb", extratags=[tag])
    else:
        path.write_bytes(add_exif(imagecodecs.png_encode(stored), orientation))
    photo = read_photo(path, LevelArguments(0, 65535))
    expected = UPRIGHT[orientation](stored) / 65535
    np.testing.assert_allclose(photo.image, expected, rtol=1e-6)
    assert photo.saturated.shape == photo.image.shape[:2]
    assert photo.flip == {1: 0, 3: 3, 6: 6, 8: 5}.get(orientation, photo.flip)
    np.testing.assert_array_equal(read_picture(path, ""), stored)


@pytest.mark.parametrize(
    ("tag", "value", "message"),
    [
        (284, 3, r"PlanarConfiguration is 3, not 1 \(chunky\) or 2 \(planar\)"),
        (284, 0, "PlanarConfiguration is 0, not 1"),
        (274, 9, "Orientation is 9, not 1 to 8"),
        (274, 0, "Orientation is 0, not 1 to 8"),
    ],
)
def test_an_unknown_layout_is_refused(tmp_path, tag, value, message):
    path = tmp_path / "a.tif"
    pixels = np.ones((24, 96, 3), np.uint16)
    tifffile.imwrite(path, pixels, photometric="rgb", extratags=[(274, 3, 1, 1, True)])
    entry = struct.pack("<HHIH", tag, 3, 1, 1)
    content = path.read_bytes()
    assert content.count(entry) == 1
    path.write_bytes(content.replace(entry, struct.pack("<HHIH", tag, 3, 1, value)))
    with pytest.raises(DataError, match=rf"a\.tif .*{message}"):
        read_photo(path)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([1, 0], "its first page is a smaller version or a mask of another; save the full picture"),
        ([0, 0], "it has several pages; save the full picture as a file of one page"),
        ([2, 1, 2], "it has several pages"),
        ([0, 1], ""),
    ],
)
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_one_page_is_the_full_picture(tmp_path, rng, kinds, message, byteorder):
    """The first page was read: a thumbnail, or the first exposure of several."""
    path = tmp_path / "a.tif"
    pixels = rng.integers(1, 65536, (len(kinds), 24, 96, 3)).astype(np.uint16)
    with tifffile.TiffWriter(path, byteorder=byteorder) as file:
        for kind, page in zip(kinds, pixels, strict=True):
            file.write(page, photometric="rgb", subfiletype=kind)
    if message:
        with pytest.raises(DataError, match=rf"a\.tif .*{message}"):
            read_picture(path, "")
    else:
        np.testing.assert_array_equal(read_picture(path, ""), pixels[0])


def test_many_channels_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    """300 channels of 0.4 MB took 370 MB."""
    path = tmp_path / "a.tif"
    pixels = np.ones((24, 96, 300), np.uint16)
    tifffile.imwrite(path, pixels, photometric="rgb", planarconfig="contig")
    monkeypatch.setattr(imagecodecs, "tiff_decode", None)
    with pytest.raises(DataError, match=r"a\.tif has 300 channels of 16 bits, not 3 of 16"):
        read_picture(path, "")
    tifffile.imwrite(path, np.ones((24, 96, 3), "f8"), photometric="rgb")
    with pytest.raises(DataError, match=r"a\.tif has 3 channels of 64 bits \(floats\), not 3"):
        read_picture(path, "")


def test_a_bigtiff_is_named(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones((24, 96, 3), np.uint16), photometric="rgb", bigtiff=True)
    with pytest.raises(DataError, match=r"a\.tif .*it is a BigTIFF; save it as a classic TIFF"):
        read_photo(path)


def noisy_dark_picture(rng):
    """Return sensor values around a black level of 512, and the same scaled with white at 4095."""
    pixels = np.round(rng.normal(512, 30, (24, 96, 3))).astype(np.uint16)
    return pixels, (pixels.astype(float) - 512) / (4095 - 512)


@pytest.mark.parametrize("kind", ["tif", "png"])
def test_noise_below_the_black_level_stays_negative_as_in_raw_files(tmp_path, rng, kind):
    """Noise was clipped at 0, which biased the means of dark areas."""
    pixels, expected = noisy_dark_picture(rng)
    path = tmp_path / f"a.{kind}"
    encode = imagecodecs.tiff_encode if kind == "tif" else imagecodecs.png_encode
    path.write_bytes(encode(pixels))
    levels = LevelArguments(512, 4095)
    photo = read_photo(path, levels)
    np.testing.assert_allclose(photo.image, expected, rtol=1e-5, atol=1e-7)
    assert photo.image.min() < 0
    assert photo.levels == levels
    assert photo.black_level.tolist() == [512] * 4


def test_a_black_level_per_channel_is_subtracted_from_its_channel(tmp_path, rng):
    pixels, _ = noisy_dark_picture(rng)
    path = tmp_path / "a.png"
    path.write_bytes(imagecodecs.png_encode(pixels))
    photo = read_photo(path, LevelArguments([500, 512, 520, 512], 4095))
    black = np.array([500, 512, 520])
    np.testing.assert_allclose(photo.image, (pixels - black) / (4095 - black), rtol=1e-5, atol=1e-7)
    with pytest.raises(DataError, match=r"black_level is \[1, 2\]; give 1 or 4 finite numbers"):
        read_photo(path, LevelArguments([1, 2], 4095))


@pytest.mark.parametrize(
    ("kind", "black"),
    [(3, [512]), (4, [500, 512, 520]), (5, [512.5]), (5, [500.5, 512, 520])],
)
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_levels_that_a_tiff_states_are_its_levels(tmp_path, rng, kind, black, byteorder):
    """A file's BlackLevel was ignored, so that the pedestal counted as light."""
    pixels, _ = noisy_dark_picture(rng)
    path = tmp_path / "a.tif"
    values = [number for level in black for number in (int(2 * level), 2)] if kind == 5 else black
    tags = [(50714, kind, len(black), tuple(values), True), (50717, 3, 1, 4095, True)]
    tifffile.imwrite(path, pixels, photometric="rgb", byteorder=byteorder, extratags=tags)
    photo = read_photo(path)
    expected = (pixels - np.array(black)) / (4095 - np.array(black))
    np.testing.assert_allclose(photo.image, expected, rtol=1e-4, atol=1e-6)
    assert photo.white_level == 4095
    replaced = read_photo(path, LevelArguments(0, 65535))
    np.testing.assert_allclose(replaced.image, pixels / 65535, rtol=1e-6)


def test_levels_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "a.tif"
    pixels = np.ones((24, 96, 3), np.uint16)

    def write(*tags):
        tifffile.imwrite(path, pixels, photometric="rgb", extratags=tags)

    write((50714, 3, 2, (1, 2), True))
    with pytest.raises(DataError, match=r"its levels are 2 values of type 3, not 1 or 3"):
        read_photo(path)
    write((50714, 5, 1, (1, 0), True))
    with pytest.raises(DataError, match="denominator is 0"):
        read_photo(path)
    write((50717, 3, 3, (9, 8, 9), True))
    with pytest.raises(DataError, match=r"a\.tif states different white levels \(9, 8, 9\)"):
        read_photo(path)
    write((50714, 3, 1, 9, True))
    with pytest.raises(DataError, match="black level 9 does not lie between 0 and the white level"):
        read_photo(path)


@pytest.mark.parametrize(
    ("greatest", "times", "white"),
    [
        (40102, 1, 65535),
        (40102, 16, 40102),
        (16000, 15, 16383),
        (16384, 1, 32767),
        (65535, 1, 65535),
    ],
)
def test_white_of_a_picture_that_states_none(tmp_path, rng, greatest, times, white):
    """The brightest values counted as clipped, so that a picture without clipping lost them."""
    pixels = rng.integers(1, greatest // 2, (24, 96, 3)).astype(np.uint16)
    pixels.ravel()[:times] = greatest
    path = tmp_path / "a.png"
    path.write_bytes(imagecodecs.png_encode(pixels))
    photo = read_photo(path)
    assert photo.white_level == white
    assert photo.rendering == ""


def test_a_statement_of_encoded_colors_is_found(tmp_path, rng):
    pixels = rng.integers(1, 65536, (24, 96, 3)).astype(np.uint16)
    tiff, png = tmp_path / "a.tif", tmp_path / "a.png"
    tifffile.imwrite(tiff, pixels, photometric="rgb", iccprofile=b"profile")
    content = imagecodecs.png_encode(pixels)
    png.write_bytes(content[:33] + png_chunk(b"gAMA", struct.pack(">I", 45455)) + content[33:])
    assert read_photo(tiff).rendering == "colour profile"
    assert read_photo(png).rendering == "gamma"
    curve = (301, 3, 65536, tuple(range(65536)), True)
    tifffile.imwrite(tiff, pixels, photometric="rgb", extratags=[curve])
    png.write_bytes(content[:33] + png_chunk(b"cICP", b"\x09\x10\x00\x01") + content[33:])
    assert read_photo(tiff).rendering == "transfer function"
    assert read_photo(png).rendering == "video encoding"
