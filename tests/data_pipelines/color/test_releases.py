"""Sets of photographs, on small files in the releases' formats."""

import imagecodecs
import numpy as np
import pytest
import scipy.io

from everlight_data.color import cube_plus as cube_plus_module
from everlight_data.color.cube_plus import load_cube_plus
from everlight_data.color.gehler_shi import load_gehler_shi
from everlight_data.color.intel_tau import load_intel_tau
from everlight_data.color.nus8 import load_nus8
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.image_headers import tiff_header
from tests import nus_files

ILLUMINANTS = np.array([[0.4, 0.8, 0.5], [0.6, 0.7, 0.3], [0.5, 0.9, 0.6]])


def write_picture(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    encode = imagecodecs.tiff_encode if path.suffix == ".tiff" else imagecodecs.png_encode
    options = {"photometric": "rgb"} if path.suffix == ".tiff" else {}
    path.write_bytes(encode(pixels.astype(np.uint16), **options))


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
