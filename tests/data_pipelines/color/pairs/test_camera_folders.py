"""Folders of photos with illuminants, and files of thumbnails, as sets of one camera."""

import zlib

import imagecodecs
import numpy as np
import pytest

from everlight_data.color.pairs.camera_folders import camera_set
from everlight_data.errors import DataError, MissingDataError
from tests.dng_writer import write_dng


@pytest.fixture
def folder(tmp_path, rng):
    """Write three PNGs, the last one's file as TIFF, and their illuminants in another order."""
    pixels = rng.integers(100, 60_000, (3, 6, 8, 3), dtype=np.uint16)
    pixels[:, 2, 3] = 0
    for name, image in zip(("a.png", "b.png"), pixels, strict=False):
        (tmp_path / name).write_bytes(imagecodecs.png_encode(image))
    (tmp_path / "c.tif").write_bytes(imagecodecs.tiff_encode(pixels[2], photometric="rgb"))
    rows = ["file,red,green,blue", "c.tif,3,4,5", "a.png,1,2,1.5", "b.png,2,2,1"]
    (tmp_path / "illuminants.csv").write_text("\n".join(rows))
    return tmp_path, pixels


def test_photos_have_the_illuminants_of_their_rows(folder):
    path, pixels = folder
    photographs = camera_set(path)
    assert photographs.names == ("a", "b", "c")
    np.testing.assert_allclose(photographs.illuminants, [[1, 2, 1.5], [2, 2, 1], [3, 4, 5]])
    for row in range(3):
        photo = photographs.read_image(row)
        white = 2**16 - 1  # no value is clipped, so white is that of the 16 bits
        np.testing.assert_allclose(photo.image, pixels[row] / white, rtol=1e-5)
        usable = (pixels[row].max(axis=-1) > 0) & (pixels[row].max(axis=-1) < 0.95 * white)
        np.testing.assert_array_equal(photo.mask, usable)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a.png,1,2,1\nb.png,2,2,1", r"illuminants.csv has no illuminant of c\.tif"),
        (
            "a.png,1,2,1\nb.png,2,2,1\nc.tif,1,1,1\nd.png,1,1,1",
            r"illuminants of photos that are not there: d\.png",
        ),
        ("a.png,1,2,1\na.png,2,2,1\nb.png,1,1,1\nc.tif,1,1,1", r"has a\.png twice"),
        ("a.png,1,2,1\nb.png,2,0,1\nc.tif,1,1,1", "not above 0"),
        ("a.png,1,2,1\nb.png,2,x,1\nc.tif,1,1,1", "could not convert"),
    ],
)
def test_illuminants_that_do_not_fit_the_photos_are_refused(folder, rows, message):
    path, _ = folder
    (path / "illuminants.csv").write_text(f"file,red,green,blue\n{rows}\n")
    with pytest.raises(DataError, match=message):
        camera_set(path)


def test_a_folder_without_illuminants_says_how_to_write_them(folder):
    path, _ = folder
    (path / "illuminants.csv").unlink()
    with pytest.raises(MissingDataError, match=r"illuminants\.csv.*columns file, red, green, blue"):
        camera_set(path)


def test_two_photos_of_one_name_are_refused(folder):
    path, _ = folder
    (path / "a.tif").write_bytes((path / "c.tif").read_bytes())
    with pytest.raises(DataError, match="several photos named a"):
        camera_set(path)


def test_hidden_files_are_no_photos(folder):
    """macOS writes ._a.png beside a.png on other file systems."""
    path, _ = folder
    (path / "._a.png").write_bytes(b"attributes")
    assert camera_set(path).names == ("a", "b", "c")


def test_photos_of_two_cameras_are_refused(tmp_path, rng):
    for name, model in (("a", "Nikon D5200"), ("b", "Canon EOS 600D")):
        write_dng(tmp_path / f"{name}.dng", rng.uniform(0.1, 0.9, (22, 22, 3)), model=model)
    (tmp_path / "illuminants.csv").write_text("file,red,green,blue\na.dng,1,2,1\nb.dng,1,2,1\n")
    with pytest.raises(DataError, match=r"b\.dng is by Canon EOS 600D, and a\.dng by Nikon D5200"):
        camera_set(tmp_path)
    write_dng(tmp_path / "b.dng", rng.uniform(0.1, 0.9, (22, 22, 3)), model="NIKON NIKON D5200")
    assert camera_set(tmp_path).names == ("a", "b")


def test_the_first_photo_that_states_an_encoding_is_warned_of(folder, capsys):
    path, pixels = folder
    photographs = camera_set(path)
    photographs.read_image(0)
    assert "WARNING" not in capsys.readouterr().err
    srgb = b"\0\0\0\1sRGB\0" + zlib.crc32(b"sRGB\0").to_bytes(4)
    for name in ("a.png", "b.png"):
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[:33] + srgb + content[33:])
    for index in (0, 1, 0):
        image = photographs.read_image(index).image
        np.testing.assert_array_equal(image > 0, pixels[index] > 0)
    printed = capsys.readouterr().err
    assert "a.png: the file states a sRGB encoding, so its values" in printed
    assert printed.count("WARNING") == 1


def test_a_file_of_thumbnails_is_one_camera(tmp_path, rng):
    images = rng.uniform(0.1, 1, (4, 5, 6, 3))
    illuminants, names = rng.uniform(0.5, 1, (4, 3)), np.array(["A_1", "A_2", "B_1", "B_2"])
    np.savez(tmp_path / "cam.npz", images=images, illuminant_rgb=illuminants, names=names)
    photographs = camera_set(tmp_path / "cam.npz")
    assert photographs.names == ("A_1", "A_2", "B_1", "B_2")
    np.testing.assert_allclose(photographs.read_image(2).image, images[2], rtol=1e-6)


@pytest.mark.parametrize(("name", "message"), [("none", "does not exist"), ("a.txt", "neither")])
def test_other_sources_are_refused(tmp_path, name, message):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match=message):
        camera_set(tmp_path / name)
