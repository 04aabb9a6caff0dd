"""Sets of photographs, on small files in the releases' formats."""

import re

import imagecodecs
import numpy as np
import pytest
import scipy.io

from everlight_data.color import cube_plus as cube_plus_module
from everlight_data.color.cube_plus import load_cube_plus
from everlight_data.color.gehler_shi import load_gehler_shi
from everlight_data.color.intel_tau import load_intel_tau
from everlight_data.color.nus8 import load_nus8
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.image_headers import tiff_header
from tests import nus_files

ILLUMINANTS = np.array([[0.4, 0.8, 0.5], [0.6, 0.7, 0.3], [0.5, 0.9, 0.6]])


def write_picture(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    encode = imagecodecs.tiff_encode if path.suffix == ".tiff" else imagecodecs.png_encode
    options = {"photometric": "rgb"} if path.suffix == ".tiff" else {}
    path.write_bytes(encode(pixels.astype(np.uint16), **options))


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
    arrays = (
        {"images": np.full((3, 4, 5, 3), 0.5), "illuminant_rgb": ILLUMINANTS} | CAPTURES | change
    )
    stored = {name: value for name, value in arrays.items() if value is not None}
    np.savez(tmp_path / "a.npz", **stored)
    with pytest.raises(DataError, match=rf"a\.npz.*{message}"):
        thumbnail_set(tmp_path / "a.npz")


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
    stored = {name: value for name, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "a.npz", **stored)
    with pytest.raises(DataError, match=rf"a\.npz is damaged or not the expected file.*{message}"):
        thumbnail_set(tmp_path / "a.npz")


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
    stored = {name: value for name, value in (arrays | change).items() if value is not None}
    np.savez(tmp_path / "a.npz", **stored)
    with pytest.raises(DataError, match=rf"a\.npz.* {message}"):
        thumbnail_set(tmp_path / "a.npz")


def test_arrays_that_are_not_read_are_named(tmp_path, capsys):
    arrays = {"images": np.ones((3, 4, 5, 3)), "illuminant_rgb": ILLUMINANTS}
    np.savez(tmp_path / "a.npz", **arrays, files=np.arange(3), temperature=np.arange(3))
    thumbnail_set(tmp_path / "a.npz")
    assert not capsys.readouterr().err
    np.savez(tmp_path / "a.npz", **arrays, focal=np.arange(3), scenes=np.arange(3))
    thumbnail_set(tmp_path / "a.npz")
    assert "a.npz: arrays not read: focal, scenes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "greatest", "fraction"),
    [
        ("images_u16", np.uint16(2**14 - 1), "0.25"),
        ("images_u16", np.uint16(2**15), ""),
        ("images", 2.0**12 - 1, "4.1e+03"),
        ("images", 1 + 1e-6, ""),
    ],
)
def test_raw_numbers_that_are_not_scaled_are_warned_of(tmp_path, capsys, name, greatest, fraction):
    """FFCC used a third of the pixels of raw numbers of 12 bits, without a word."""
    images = np.full((3, 4, 5, 3), greatest)
    images[1:] = images[1:] // 10
    np.savez(tmp_path / "a.npz", **{name: images}, illuminant_rgb=ILLUMINANTS)
    thumbnail_set(tmp_path / "a.npz")
    expected = f"the greatest pixel of a is {fraction} of white" if fraction else ""
    printed = capsys.readouterr().err
    assert expected in printed
    assert bool(printed) == bool(fraction)


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


def write_gehler_shi(folder, rng):
    """Write two images of the 5D and one of the 1D; charts are annotated at half their size."""
    names = ("IMG_0300", "8D5U5524", "IMG_0278")
    pixels = {}
    for name in names:
        raw = rng.integers(200, 3_800, (20, 30, 3))
        raw[0, 0] = 0
        raw[1, 1, 2] = 4_000
        pixels[name] = raw
        write_picture(folder / "568_dataset" / "png" / f"{name}.png", raw)
        chart = folder / "568_dataset" / "coordinates" / f"{name}_macbeth.txt"
        chart.parent.mkdir(parents=True, exist_ok=True)
        # Corners are in no order around: (5, 3), (10, 7), (10, 3), (5, 7) of 15 x 10.
        chart.write_text("15 10\n5 3\n10 7\n10 3\n5 7\n" + "1 1\n" * 96)
    scipy.io.savemat(folder / "real_illum_568..mat", {"real_rgb": ILLUMINANTS})
    return pixels


def test_gehler_shi(tmp_path, rng):
    pixels = write_gehler_shi(tmp_path, rng)
    cameras = load_gehler_shi(tmp_path)
    assert {camera: item.names for camera, item in cameras.items()} == {
        "Canon1D": ("8D5U5524",),
        "Canon5D": ("IMG_0278", "IMG_0300"),
    }
    # Illuminants are in the order of all names: 8D5U5524, IMG_0278, IMG_0300.
    np.testing.assert_allclose(cameras["Canon1D"].illuminants, ILLUMINANTS[:1], rtol=1e-6)
    np.testing.assert_allclose(cameras["Canon5D"].illuminants, ILLUMINANTS[1:], rtol=1e-6)
    image, usable = cameras["Canon5D"].read_image(1)
    raw = pixels["IMG_0300"]
    np.testing.assert_allclose(image, np.maximum(raw - 129, 0) / (4095 - 129), rtol=1e-5)
    expected = (raw < 0.95 * 4095).all(axis=-1)
    expected[6:15, 10:21] = False
    np.testing.assert_array_equal(usable, expected)
    np.testing.assert_allclose(
        cameras["Canon1D"].read_image(0)[0], pixels["8D5U5524"] / 4095, rtol=1e-5
    )


def test_gehler_shi_that_is_not_whole_is_named(tmp_path, rng):
    with pytest.raises(MissingDataError, match=r"no real_illum_568\*\.mat below"):
        load_gehler_shi(tmp_path)
    write_gehler_shi(tmp_path, rng)
    (tmp_path / "568_dataset/coordinates/8D5U5524_macbeth.txt").unlink()
    cameras = load_gehler_shi(tmp_path)
    with pytest.raises(MissingDataError, match=r"8D5U5524_macbeth\.txt for .* is missing"):
        cameras["Canon1D"].read_image(0)
    for text in ("15 10\n1 x\n", "15 10\n", "15 10\n1 2\n3 4\n", "0 10\n1 1\n2 2\n3 3\n4 4\n"):
        (tmp_path / "568_dataset/coordinates/IMG_0278_macbeth.txt").write_text(text)
        with pytest.raises(DataError, match=r"IMG_0278_macbeth\.txt is damaged"):
            cameras["Canon5D"].read_image(0)
    (tmp_path / "568_dataset/png/8D5U5524.png").unlink()
    with pytest.raises(DataError, match=r"2 images below png/, .* has 3 illuminants"):
        load_gehler_shi(tmp_path)


def test_an_image_by_neither_camera_of_gehler_shi_is_named(tmp_path, rng):
    write_gehler_shi(tmp_path, rng)
    path = tmp_path / "568_dataset/png/IMG_0278.png"
    path.rename(path.with_name("DSC_0278.png"))
    with pytest.raises(DataError, match=r"png/DSC_0278\.png: .* 8D5U .* IMG_ .*Remove it, or down"):
        load_gehler_shi(tmp_path)


def test_names_of_a_release_may_be_in_upper_case(tmp_path, rng):
    write_gehler_shi(tmp_path, rng)
    expected = load_gehler_shi(tmp_path)
    for path in [*tmp_path.rglob("*.png"), *tmp_path.rglob("*.txt"), *tmp_path.rglob("*.mat")]:
        path.rename(path.with_name(path.name.upper()))
    (tmp_path / "568_dataset/png").rename(tmp_path / "568_dataset/PNG")
    result = load_gehler_shi(tmp_path)
    assert {name: item.names for name, item in result.items()} == {
        name: item.names for name, item in expected.items()
    }
    for name, entry in result.items():
        np.testing.assert_array_equal(entry.illuminants, expected[name].illuminants)
        assert entry.read_image(0)[0].ndim == 3


@pytest.mark.parametrize("copied", ["coordinates/IMG_0278_macbeth.txt", "png/IMG_0278.png"])
def test_gehler_shi_with_two_files_of_one_name_is_refused(tmp_path, rng, copied):
    write_gehler_shi(tmp_path, rng)
    first = tmp_path / "568_dataset" / copied
    second = first.parent / "again" / first.name
    second.parent.mkdir()
    second.write_bytes(first.read_bytes())
    with pytest.raises(DataError, match=r"IMG_0278.* have one name; remove one") as no:
        load_gehler_shi(tmp_path)
    assert str(second) in str(no.value)


def test_cube_plus_with_two_files_of_one_name_is_refused(tmp_path, rng):
    (tmp_path / "cube+_gt.txt").write_text("".join(f"{r} {g} {b}\n" for r, g, b in ILLUMINANTS))
    for name in ("a/1.PNG", "a/2.PNG", "a/3.PNG", "b/2.png"):
        write_picture(tmp_path / name, rng.integers(2_100, 9_000, (18, 26, 3)))
    with pytest.raises(DataError, match=r"2\.(png|PNG) and .*2\.(png|PNG) have one name"):
        load_cube_plus(tmp_path)


def test_two_ground_truths_are_refused(tmp_path, rng):
    """The first of both was read."""
    write_gehler_shi(tmp_path, rng)
    scipy.io.savemat(tmp_path / "real_illum_568_old.mat", {"real_rgb": ILLUMINANTS[::-1]})
    with pytest.raises(DataError, match=r"568\.\.mat and .*real_illum_568_old\.mat; keep the"):
        load_gehler_shi(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("a_1.tif", "a_1.tiff", "a_001.wp"), r"a_1\.tiff and .*a_1\.tif have one name"),
        (("a_1.tiff", "a_001.tiff", "a_001.wp"), r"a_001\.wp belongs to two images"),
        (("a_1.tiff", "a_1.wp", "a_001.wp"), r"a_1\.tiff has two illuminants"),
    ],
)
def test_intel_tau_with_two_files_for_one_is_refused(tmp_path, rng, files, message):
    folder = tmp_path / "Sony" / "field"
    folder.mkdir(parents=True)
    for name in files:
        if name.endswith(".wp"):
            (folder / name).write_text("1 2 3")
        else:
            write_picture(folder / name, rng.integers(0, 9_000, (8, 10, 3)))
    with pytest.raises(DataError, match=message):
        load_intel_tau(tmp_path)


def test_one_name_in_two_folders_of_intel_tau_is_two_images(tmp_path, rng):
    for part in ("field", "lab"):
        write_picture(tmp_path / "Sony" / part / "a_1.tiff", rng.integers(1, 9_000, (8, 10, 3)))
        (tmp_path / "Sony" / part / "a_001.wp").write_text("1 2 3")
    assert load_intel_tau(tmp_path)["Sony"].names == ("field/a_1", "lab/a_1")


def test_cube_plus(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(cube_plus_module, "_CUBE_TARGET", (12, 20))
    (tmp_path / "cube+_gt.txt").write_text("".join(f"{r} {g} {b}\n" for r, g, b in ILLUMINANTS))
    pixels = [rng.integers(1_500, 12_000, (18, 26, 3)) for _ in ILLUMINANTS]
    for number, raw in enumerate(pixels, start=1):
        raw[2, 3, 1] = 15_000
        write_picture(tmp_path / "PNG_1_200" / f"{number}.PNG", raw)
    (camera, item) = load_cube_plus(tmp_path).popitem()
    assert (camera, item.names) == ("Canon550D", ("1", "2", "3"))
    np.testing.assert_allclose(item.illuminants, ILLUMINANTS, rtol=1e-6)
    image, usable = item.read_image(1)
    expected = np.maximum(pixels[1] - 2048, 0) / (14_998 - 2048)
    np.testing.assert_allclose(image, expected, rtol=1e-5)
    open_to_use = np.ones((18, 26), bool)
    open_to_use[12:, 20:] = open_to_use[2, 3] = False
    np.testing.assert_array_equal(usable, open_to_use)
    (tmp_path / "PNG_1_200" / "2.PNG").unlink()
    with pytest.raises(MissingDataError, match=r"lacks 2\.PNG of the 3"):
        load_cube_plus(tmp_path)


def test_intel_tau(tmp_path, rng):
    raw = rng.integers(0, 9_000, (8, 10, 3))
    raw[4, 4, 0] = 10_000
    camera = tmp_path / "Canon_5DSR"
    write_picture(camera / "field_1_cameras/Canon_5DSR_field_7.tiff", raw)
    write_picture(camera / "lab_printouts/Canon_5DSR_lab_012.tiff", raw // 2)
    (camera / "field_1_cameras/Canon_5DSR_field_007.wp").write_text("0.4 0.8\t0.5\n")
    (camera / "lab_printouts/Canon_5DSR_lab_012.wp").write_text("0.6,0.7,0.3")
    (tmp_path / "info").mkdir()
    cameras = load_intel_tau(tmp_path)
    assert list(cameras) == ["Canon_5DSR"]
    item = cameras["Canon_5DSR"]
    assert item.names == ("field_1_cameras/Canon_5DSR_field_7", "lab_printouts/Canon_5DSR_lab_012")
    np.testing.assert_allclose(item.illuminants, ILLUMINANTS[:2], rtol=1e-6)
    image, usable = item.read_image(0)
    np.testing.assert_allclose(image, raw / 10_000, rtol=1e-5)
    np.testing.assert_array_equal(usable, (raw < 9_500).all(axis=-1))
    (camera / "lab_printouts/Canon_5DSR_lab_012.wp").unlink()
    with pytest.raises(MissingDataError, match=r"Canon_5DSR_lab_012\.wp for .* is missing"):
        load_intel_tau(tmp_path)
    with pytest.raises(MissingDataError, match=r"<camera>/<set>/<name>\.tiff"):
        load_intel_tau(tmp_path / "info")


def test_nus8_reads_the_cameras_that_are_there(tmp_path, rng):
    _, images, charts, illuminants = nus_files.render(rng, 2)
    nus_files.write_camera(tmp_path, nus_files.SECOND, images[1], charts[1], illuminants[1])
    (camera, item) = load_nus8(tmp_path).popitem()
    assert camera == nus_files.SECOND
    image, usable = item.read_image(1)
    assert image.shape == (26, 40, 3)
    assert not usable[7:15, 10:22].any()
    with pytest.raises(MissingDataError, match="Cheng, Prasad and Brown"):
        load_nus8(tmp_path / "elsewhere")


@pytest.mark.parametrize("keep", [0, 3, 8, 12, 40, -30])
def test_cut_pictures_are_named(tmp_path, rng, keep):
    folder = tmp_path / "Sony" / "field"
    write_picture(folder / "a_1.tiff", rng.integers(0, 9_000, (8, 10, 3)))
    content = (folder / "a_1.tiff").read_bytes()
    assert tiff_header(content)[:2] == (8, 10)
    (folder / "a_1.tiff").write_bytes(content[:keep])
    (folder / "a_001.wp").write_text("1 2 3")
    with pytest.raises(DataError, match=r"a_1\.tiff is damaged or not the expected file"):
        load_intel_tau(tmp_path)["Sony"].read_image(0)
