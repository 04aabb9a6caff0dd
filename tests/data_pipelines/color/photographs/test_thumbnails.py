"""Files of thumbnails: cameras, masks and captures, and what is refused or warned of."""

import re

import numpy as np
import pytest

from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.errors import DataError

ILLUMINANTS = np.array([[0.4, 0.8, 0.5], [0.6, 0.7, 0.3], [0.5, 0.9, 0.6]])


def refused(path, message, **arrays):
    """Write a file of those arrays that are not None, and see it refused."""
    stored = {name: values for name, values in arrays.items() if values is not None}
    np.savez(path, **stored)
    with pytest.raises(DataError, match=message):
        thumbnail_set(path)


def test_thumbnails_part_into_cameras_by_name(tmp_path, rng):
    images = rng.integers(1, 60_000, (3, 4, 5, 3)).astype(np.uint16)
    images[0, 0, 0] = 0
    names = np.array(["Nikon_D5_0007", "SonyA57_0001", "Nikon_D5_0008"])
    np.savez(tmp_path / "a.npz", images_u16=images, illuminant_rgb=ILLUMINANTS, names=names)
    cameras = thumbnail_set(tmp_path / "a.npz")
    assert {camera: item.names for camera, item in cameras.items()} == {
        "Nikon_D5": ("Nikon_D5_0007", "Nikon_D5_0008"),
        "SonyA57": ("SonyA57_0001",),
    }
    nikon = cameras["Nikon_D5"]
    np.testing.assert_allclose(nikon.illuminants, ILLUMINANTS[[0, 2]], rtol=1e-6)
    for place, row in enumerate((0, 2)):
        image, usable = nikon.read_image(place)
        np.testing.assert_allclose(image, images[row] / 65535, rtol=1e-6)
        brightest = images[row].max(axis=-1)
        np.testing.assert_array_equal(
            usable, (brightest > 0) & (brightest < 0.95 * brightest.max())
        )


def test_cameras_that_are_read_from_names_are_printed(tmp_path, capsys):
    """IMG and DSC became two cameras, without a word."""
    images, path = np.ones((3, 4, 5, 3)), tmp_path / "a.npz"
    np.savez(path, images=images, illuminant_rgb=ILLUMINANTS, names=["IMG_1", "DSC_3", "7"])
    thumbnail_set(path)
    assert "a.npz: the names of the images state DSC, IMG as camera; " in capsys.readouterr().err
    thumbnail_set(path, "Canon5D")
    np.savez(path, images=images, illuminant_rgb=ILLUMINANTS, names=["SonyA57_1", "7", "b_2"])
    thumbnail_set(path)
    assert not capsys.readouterr().err


def test_a_brightest_pixel_alone_is_no_plateau(tmp_path):
    """Rows are images; the first has one pixel at its maximum, the second two, the third all."""
    brightest = np.array([[1000, 960, 500, 0], [960, 1000, 0, 1000], [700, 700, 700, 700]])
    images = (brightest[:, None, :, None] * np.array([0.5, 1, 0.7])).astype(np.uint16)
    np.savez(tmp_path / "a.npz", images_u16=images, illuminant_rgb=ILLUMINANTS)
    usable = {}
    for saturated in ("highlights", "plateaus", "none"):
        camera = thumbnail_set(tmp_path / "a.npz", saturated=saturated)["a"]
        usable[saturated] = [camera.read_image(row).mask[0].tolist() for row in range(3)]
    assert usable == {
        "highlights": [[False, False, True, False], [False] * 4, [False] * 4],
        "plateaus": [[True, True, True, False], [True, False, False, False], [False] * 4],
        "none": [[True, True, True, False], [True, True, False, True], [True] * 4],
    }


def test_a_file_without_saturated_pixels_has_none_masked_by_its_maximum(tmp_path):
    """`illuminant thumbnails` masks by the sensor's level; the brightest pixels were lost too."""
    brightest = np.array([[900, 880, 0, 500], [300, 299, 100, 300], [700, 700, 700, 700]])
    images = (brightest[:, None, :, None] * np.array([0.5, 1, 0.7])).astype(np.uint16)
    arrays = {"images_u16": images, "illuminant_rgb": ILLUMINANTS}
    np.savez(tmp_path / "a.npz", **arrays, saturated_masked=True)
    for saturated, second in (("highlights", [1, 1, 1, 1]), ("plateaus", [0, 1, 1, 0])):
        camera = thumbnail_set(tmp_path / "a.npz", saturated=saturated)["a"]
        usable = [camera.read_image(row).mask[0].tolist() for row in range(2)]
        assert usable == [[1, 1, 0, 1], second]
    message = r"saturated_masked has dtype int64 and shape \(3,\), not one bool"
    refused(tmp_path / "b.npz", message, **arrays, saturated_masked=np.ones(3, int))


HOUR = 3600
CAPTURES = {
    "time": np.array([9, 12, 20]) * HOUR,
    "sun_events": np.tile(np.array([5.5, 6, 12, 18, 18.5, 24]) * HOUR, (3, 1)),
    "iso": np.array([100, 200, 800]),
    "exposure": np.array([0.01, 0.002, 0.25]),
    "flash": np.array([0, 0, 1]),
}


def test_thumbnails_have_their_captures(tmp_path, rng):
    images = rng.uniform(0.1, 0.9, (3, 4, 5, 3))
    names = np.array(["A_1", "B_1", "A_2"])
    arrays = {"images": images, "illuminant_rgb": ILLUMINANTS, "names": names}
    np.savez(tmp_path / "a.npz", **arrays, **CAPTURES)
    cameras = thumbnail_set(tmp_path / "a.npz")
    first, last = cameras["A"].captures.values
    assert cameras["A"].captures.sources == tuple(CAPTURES)
    np.testing.assert_allclose(first[:6], 1 - np.array([3.5, 3, 3, 9, 9.5, 15]) / 24, rtol=1e-6)
    np.testing.assert_array_equal(first[6:12], [0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(last[12:], [np.log(800), np.log(0.25), 1], rtol=1e-6)
    assert cameras["B"].captures.values.shape == (1, 15)
    lux = np.array([0, 20, 5000])
    np.savez(tmp_path / "lux.npz", **arrays, lux=lux)
    brightness = thumbnail_set(tmp_path / "lux.npz")["A"].captures
    assert brightness.sources == ("lux",)
    np.testing.assert_allclose(brightness.values, np.log([[1], [5001]]), rtol=1e-6)
    np.savez(tmp_path / "all.npz", **arrays, **CAPTURES, lux=lux)
    joined = thumbnail_set(tmp_path / "all.npz")["A"].captures
    assert joined.sources == (*CAPTURES, "lux")
    np.testing.assert_array_equal(joined.values[:, :15], [first, last])
    np.testing.assert_array_equal(joined.values[:, 15:], brightness.values)
    np.savez(tmp_path / "b.npz", **arrays)
    assert thumbnail_set(tmp_path / "b.npz")["A"].captures is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iso": None, "flash": None}, "it lacks iso, flash"),
        ({"time": np.full(3, 25 * HOUR)}, "a value of time is not between 0 and 86400"),
        ({"exposure": np.zeros(3)}, "a value of exposure is not between 1e-09"),
        ({"iso": np.full(3, np.nan)}, "a value of iso is not between"),
        ({"flash": np.array(["no"] * 3)}, "flash has dtype <U2"),
        ({"sun_events": np.zeros((3, 5))}, r"sun_events has dtype float64 and shape \(3, 5\)"),
        ({"time": np.zeros(2)}, r"time has dtype float64 and shape \(2,\)"),
        ({"lux": np.array([1, 2, -1])}, "a value of lux is not between 0 and 1e"),
    ],
)
def test_captures_that_do_not_fit_are_refused(tmp_path, change, message):
    arrays = {"images": np.full((3, 4, 5, 3), 0.5), "illuminant_rgb": ILLUMINANTS} | CAPTURES
    refused(tmp_path / "a.npz", rf"a\.npz.*{message}", **arrays | change)


def test_thumbnails_of_floats_need_no_names(tmp_path, rng):
    images = rng.uniform(0, 2, (3, 4, 5, 3))
    np.savez(tmp_path / "phone.npz", images=images, illuminant_rgb=ILLUMINANTS)
    (camera, item) = thumbnail_set(tmp_path / "phone.npz").popitem()
    assert camera == "phone"
    assert item.names == ("1", "2", "3")
    np.testing.assert_allclose(item.read_image(2)[0], images[2], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"illuminant_rgb": None}, "it has images, names"),
        ({"images": None}, "it has illuminant_rgb, names"),
        ({"illuminant_rgb": ILLUMINANTS[:2]}, "3 images, 2 illuminants"),
        ({"illuminant_rgb": -ILLUMINANTS}, "not above 0"),
        # The number is more than a float32 holds.
        ({"illuminant_rgb": 1e300 * ILLUMINANTS}, "not finite"),
        # Their squares are infinite or 0 in 32 bits.
        ({"illuminant_rgb": np.full((3, 3), 3e38)}, "illuminant is not between 1e-15 and 1e.15"),
        ({"illuminant_rgb": np.full((3, 3), 1e-44)}, "illuminant is not between 1e-15 and 1e.15"),
        ({"images": np.full((3, 4, 5, 3), 1e-38)}, "brightest pixel is 1e-38; 1 is white, scale"),
        ({"images": np.ones((3, 4, 5))}, "images have dtype float64"),
        # Without pixels their number costs no bytes.
        ({"images": np.ones((3, 0, 5, 3))}, r"images have dtype float64 and shape \(3, 0, 5, 3\)"),
        ({"images": np.full((3, 4, 5, 3), np.nan)}, "below 0 or not finite"),
        ({"names": np.array(["a"])}, r"names have dtype <U1 and shape \(1,\)"),
    ],
)
def test_thumbnails_that_do_not_go_together_are_refused(tmp_path, change, message):
    arrays = {"images": np.ones((3, 4, 5, 3)), "illuminant_rgb": ILLUMINANTS, "names": np.arange(3)}
    refused(
        tmp_path / "a.npz",
        rf"a\.npz is damaged or not the expected file.*{message}",
        **arrays | change,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images_u16": np.ones((3, 4, 5, 3), np.uint16)}, "has images_u16 and images; give one"),
        (
            {"images": None, "images_u16": np.ones((3, 4, 5, 3))},
            r"images_u16 has dtype float64 and shape \(3, 4, 5, 3\), not uint16 .* floats images",
        ),
        ({"mask": np.ones((3, 4, 5))}, "an array 'mask', which is not read; name it masks"),
        ({"Lux": np.ones(3)}, "an array 'Lux', which is not read; name it lux"),
        ({"names": None, "name": np.arange(3)}, "an array 'name', which is not read; name it name"),
    ],
)
def test_arrays_that_would_be_read_otherwise_are_refused(tmp_path, change, message):
    """A `mask` masked nothing, and floats in images_u16 were read as of white 1."""
    arrays = {"images": np.ones((3, 4, 5, 3)), "illuminant_rgb": ILLUMINANTS, "names": np.arange(3)}
    refused(tmp_path / "a.npz", rf"a\.npz.* {message}", **arrays | change)


def test_arrays_that_are_not_read_are_named(tmp_path, capsys):
    arrays = {"images": np.ones((3, 4, 5, 3)), "illuminant_rgb": ILLUMINANTS}
    np.savez(tmp_path / "a.npz", **arrays, files=np.arange(3), temperature=np.arange(3))
    thumbnail_set(tmp_path / "a.npz")
    assert not capsys.readouterr().err
    np.savez(tmp_path / "a.npz", **arrays, focal=np.arange(3), scenes=np.arange(3))
    thumbnail_set(tmp_path / "a.npz")
    assert "a.npz: arrays not read: focal, scenes" in capsys.readouterr().err


@pytest.mark.parametrize("camera", ["..", ".", " ", "-"])
def test_a_camera_is_no_other_folder(camera, tmp_path):
    """A file called `...npz` has the stem `..`."""
    path = tmp_path / f"{camera}.npz"
    np.savez(path, images=np.ones((3, 4, 5, 3)), illuminant_rgb=ILLUMINANTS)
    for value in ("", camera):
        with pytest.raises(DataError, match=f"{re.escape(repr(camera))} is not a camera's name"):
            thumbnail_set(path, value)


def test_a_camera_is_no_path(tmp_path):
    names = np.array(["../a_1", "../a_2", "../a_3"])
    np.savez(
        tmp_path / "a.npz", images=np.ones((3, 4, 5, 3)), illuminant_rgb=ILLUMINANTS, names=names
    )
    with pytest.raises(DataError, match=r"'\.\./a' is not a camera's name"):
        thumbnail_set(tmp_path / "a.npz")
