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


def test_a_bigtiff_is_named(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones((24, 96, 3), np.uint16), photometric="rgb", bigtiff=True)
    with pytest.raises(DataError, match=r"a\.tif .*it is a BigTIFF; save it as a classic TIFF"):
        read_photo(path)
