"""Pictures of three channels of 16 bits, as other programs write them."""

import numpy as np
import pytest
import tifffile

from everlight_data.color.photographs import decode_picture
from everlight_data.color.photos import read_photo
from everlight_data.errors import DataError


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
        np.testing.assert_array_equal(decode_picture(path, ""), pixels)


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


def test_a_tiff_of_other_colours_is_refused(tmp_path):
    """Lab of 16 bits was read as red, green and blue."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones((24, 96, 3), np.uint16), photometric="cielab")
    with pytest.raises(DataError, match=r"a\.tif: PhotometricInterpretation is 8, not 2 .RGB"):
        read_photo(path)


def test_a_bigtiff_is_named(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones((24, 96, 3), np.uint16), photometric="rgb", bigtiff=True)
    with pytest.raises(DataError, match=r"a\.tif .*it is a BigTIFF; save it as a classic TIFF"):
        read_photo(path)
