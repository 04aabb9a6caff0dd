"""The NUS-8 set in the official format, and its published thumbnails."""

import csv

import imagecodecs
import numpy as np
import pytest

from everlight_data.color.dmcc_thumbnails import load_same_scene_pairs
from everlight_data.color.nus8 import load_official
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.errors import DataError, MissingDataError
from tests.nus_files import write_raw_camera

DARKNESS, SATURATION = 1024, 15000
RECTANGLE = (5, 16, 21, 38)  # rows 5 to 16, columns 21 to 38, from 1, as MATLAB counts


def write_camera(folder, camera, *arrays, **variables):
    places = {"CC_coords": np.array([RECTANGLE] * len(arrays[0]), np.uint16)}
    write_raw_camera(folder, camera, *arrays, **places | variables)


@pytest.fixture
def raw(rng):
    """Return two raw images, with a saturated and a below-black pixel, charts and illuminants."""
    images = rng.integers(DARKNESS, SATURATION, (2, 30, 41, 3)).astype(np.uint16)
    images[1, 0, 0, 2] = SATURATION
    images[1, 29, 40] = 1000
    charts = rng.uniform(DARKNESS, SATURATION - 1, (2, 24, 3))
    charts[1, 0, 1] = SATURATION
    return images, charts, np.array([[0.4, 0.8, 0.4], [0.5, 0.7, 0.5]])


@pytest.fixture
def release(tmp_path, raw):
    write_camera(tmp_path, "SonyA57", *raw)
    return tmp_path


def test_official_ground_truth_comes_back(release, raw):
    camera = load_official(release, "SonyA57")
    assert camera.photographs.names == ("SonyA57_0001", "SonyA57_0002")
    assert camera.levels == (1024, 15000)
    np.testing.assert_array_equal(camera.photographs.illuminants, raw[2].astype(np.float32))


def test_official_images_are_linear_from_darkness_to_saturation(release, raw):
    image, mask = load_official(release, "SonyA57").photographs.read_image(1)
    expected = (raw[0][1].astype(np.float64) - 1024) / (15000 - 1024)
    np.testing.assert_allclose(image, np.clip(expected, 0, None), rtol=1e-6)
    assert (image.dtype, mask.dtype) == (np.float32, bool)
    assert image[0, 0, 2] == 1
    assert (image[29, 40] == 0).all()


def test_official_masks_hide_the_chart_and_saturation_and_nothing_else(release):
    camera = load_official(release, "SonyA57")
    _, mask = camera.photographs.read_image(0)
    row, column = np.indices((30, 41)) + 1
    expected = ~((row >= 5) & (row <= 16) & (column >= 21) & (column <= 38))
    np.testing.assert_array_equal(mask, expected)
    _, mask = camera.photographs.read_image(1)
    expected[0, 0] = False
    np.testing.assert_array_equal(mask, expected)


def test_official_charts_are_on_the_images_scale(release, raw):
    colors, usable = load_official(release, "SonyA57").read_chart(1)
    np.testing.assert_allclose(colors, (raw[1][1] - 1024) / 13976, rtol=1e-5)
    assert colors.dtype == np.float32
    assert not usable[0]
    assert usable[1:].all()


def test_a_chart_outside_its_image_is_named(tmp_path, raw):
    write_camera(tmp_path, "SonyA57", *raw, CC_coords=np.array([[5, 31, 21, 38]] * 2))
    with pytest.raises(DataError, match=r"0001\.PNG is 30x41, .* rows 5 to 31.*Download it"):
        load_official(tmp_path, "SonyA57").photographs.read_image(0)


@pytest.mark.parametrize(("channels", "bitdepth"), [(3, 8), (1, 16)])
def test_images_of_another_kind_are_named(release, channels, bitdepth):
    camera = load_official(release, "SonyA57")
    pixels = np.ones((30, 41, channels), f"uint{bitdepth}").squeeze()
    path = camera.folder / "PNG" / "SonyA57_0001.PNG"
    path.write_bytes(imagecodecs.png_encode(pixels))
    with pytest.raises(DataError, match=f"{channels} channels of {bitdepth} bits"):
        camera.photographs.read_image(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [("1,2,3\n" * 23, r"\(23, 3\)"), ("1,2\nx,y\n", "should hold R,G,B on each line")],
)
def test_faulty_charts_are_named(release, text, message):
    camera = load_official(release, "SonyA57")
    (camera.folder / "CHECKER" / "SonyA57_0002_color.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        camera.read_chart(1)


COUNTS = {"Canon1DsMkIII": 259, "Canon600D": 200, "FujifilmXM1": 196, "NikonD5200": 200}
COUNTS |= {"NikonD40": 117, "OlympusEPL6": 208, "PanasonicGX1": 203, "SamsungNX2000": 202}
COUNTS["SonyA57"] = 268


@pytest.mark.parametrize("camera", COUNTS)
def test_thumbnails_match_the_published_table_of_illuminants(real_data, camera):
    """The table is another file than the thumbnails' own, with more digits."""
    with real_data("nus8_64x64/GT_NUS.csv").open() as lines:
        table = {row["File"]: row for row in csv.DictReader(lines)}
    file = {"NikonD40": "NikonD5200"}.get(camera, camera)
    thumbnails = thumbnail_set(real_data(f"nus8_64x64/{file}.npz"))[camera]
    rows = [table[f"{camera}/{name}.PNG"] for name in thumbnails.names]
    truth = [[float(row[f"GT_{channel}"]) for channel in "RGB"] for row in rows]
    assert len(rows) == COUNTS[camera]
    np.testing.assert_allclose(thumbnails.illuminants, truth, atol=1e-6)


def test_missing_and_damaged_thumbnails_are_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"SonyA57\.npz does not exist"):
        thumbnail_set(tmp_path / "SonyA57.npz")
    np.savez(tmp_path / "SonyA57.npz", names=np.array(["SonyA57_0001"]))
    with pytest.raises(
        DataError, match=r"SonyA57\.npz is damaged or not the expected file.*images_u16"
    ):
        thumbnail_set(tmp_path / "SonyA57.npz")


def test_same_scene_pairs_share_their_illuminant(real_data):
    """Chromaticities of pairs correlate as those of one illuminant in two cameras."""
    folder = real_data("nus8_64x64")
    pairs = load_same_scene_pairs(folder)
    assert len(pairs.main) == len(pairs.second) == len(pairs.similarity) == 172
    assert pairs.main[0] == "NikonD5200_0001"
    assert pairs.second[0] == "Canon1DsMkIII_0235"
    illuminants = []
    for camera, names in (("NikonD5200", pairs.main), ("Canon1DsMkIII", pairs.second)):
        thumbnails = thumbnail_set(folder / f"{camera}.npz")[camera]
        chosen = thumbnails.illuminants[[thumbnails.names.index(name) for name in names]]
        illuminants.append(chosen[:, ::2] / chosen[:, 1:2])
    for channel in (0, 1):
        first, second = (illuminant[:, channel] for illuminant in illuminants)
        assert np.corrcoef(first, second)[0, 1] > 0.99
        assert np.corrcoef(first, np.roll(second, 40))[0, 1] < 0.9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nikon,second\na,b\n", "lacks the columns"),
        ("nikon,canon,structure_similarity\na,b,c\n", "could not convert string to float"),
        ("nikon,canon,structure_similarity\na,b,1\na,c,1\n", "has an image in two pairs"),
    ],
)
def test_faulty_lists_of_pairs_are_named(tmp_path, text, message):
    (tmp_path / "pairs_NikonD5200_Canon1DsMkIII.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        load_same_scene_pairs(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"CC_coords": None}, "has no variable CC_coords"),
        ({"groundtruth_illuminants": np.ones((3, 3))}, r"2 names, but illuminants \(3, 3\)"),
        ({"groundtruth_illuminants": np.array([[1, np.nan, 1]] * 2)}, "not above 0 or not finite"),
        ({"groundtruth_illuminants": np.zeros((2, 3))}, "not above 0 or not finite"),
        ({"groundtruth_illuminants": np.ones((2, 3)) * 1j}, "complex"),
        ({"groundtruth_illuminants": np.ones((2, 2))}, r"illuminants \(2, 2\)"),
        ({"saturation_level": 0}, "darkness .* saturation 0"),
        ({"saturation_level": np.nan}, "darkness .* saturation nan"),
        ({"all_image_names": np.array([["../a"], ["b"]], object)}, "points outside the folder"),
        ({"all_image_names": np.array([["a"], ["a"]], object)}, "several images have the name 'a'"),
    ],
)
def test_a_ground_truth_that_makes_no_sense_is_refused(tmp_path, raw, change, reason):
    write_camera(tmp_path, "SonyA57", *raw, **change)
    with pytest.raises(DataError, match=rf"SonyA57_gt\.mat.*{reason}"):
        load_official(tmp_path, "SonyA57")


@pytest.mark.parametrize("value", [np.nan, 0.0, -1.0])
def test_thumbnails_with_illuminants_that_are_none_are_refused(tmp_path, value):
    illuminants = np.array([[1.0, 1.0, value]])
    images = np.ones((1, 64, 64, 3), np.uint16)
    names = np.array(["SonyA57_1"])
    np.savez(tmp_path / "SonyA57.npz", names=names, images_u16=images, illuminant_rgb=illuminants)
    with pytest.raises(DataError, match=r"SonyA57\.npz is damaged.*not above 0"):
        thumbnail_set(tmp_path / "SonyA57.npz")
