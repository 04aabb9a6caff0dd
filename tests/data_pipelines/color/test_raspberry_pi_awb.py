"""Raspberry Pi's images for white balance, on a small release in the same form."""

import csv
import io
import json
import shutil

import imagecodecs
import numpy as np
import pytest

from everlight_data.color import raspberry_pi_awb
from everlight_data.color.photographs.image_groups import read_image_groups
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.color.raspberry_pi_awb import load_raspberry_pi
from everlight_data.errors import DataError, MissingDataError
from tests.data_pipelines.color.tuning_files.tuning_text import TUNING
from tests.data_pipelines.prepared import arrays, prepare, zipped
from tests.refusals import refused

NAMES = [
    "ann,imx708,00001,4000,321,5000",
    "bob,imx708,00001,7600,8645,6000",
    "ann,imx219,D50,3000,20,3000",
]
# The points at 5,000 K of TUNING: white (0.5, 1, 0.5), and the mean of its two matrices.
WHITE = np.array([0.5, 1, 0.5])
MATRIX = np.array([[1.6, -0.4, -0.2], [-0.3, 1.5, -0.2], [0.05, -0.6, 1.55]])


def tuning(sensitivity=1.0):
    """Return a tuning file whose `rpi.awb` has other sensitivities."""
    return TUNING.replace('"sensitivity_r": 1.0', f'"sensitivity_r": {sensitivity}')


@pytest.fixture
def raw(rng):
    """Return raw colours of three pictures, far from both ends."""
    return rng.uniform(0.2, 0.35, (3, 32, 32, 3)) * WHITE


@pytest.fixture
def release(tmp_path, raw):
    """Write the release: rendered pictures in a zip, and the tuning files."""
    rendered = (raw / WHITE) @ MATRIX.T
    pixels = np.rint(rendered * 65_535).astype(np.uint16)
    pixels[0, 3, 4, 2], pixels[0, 5, 6, 0] = 0, 65_535
    files = {
        f"dataset-pisp/train/{name}.png": imagecodecs.png_encode(image)
        for name, image in zip(NAMES, pixels, strict=True)
    }
    clone = tmp_path / "clone"
    for module in ("imx219", "imx708"):
        path = clone / "tunings/pisp" / f"{module}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tuning())
        (clone / "tunings/vc4").mkdir(exist_ok=True)
        (clone / "tunings/vc4" / f"{module}.json").write_text("{}")
    (clone / "Datasets").mkdir()
    zipped(clone / "Datasets/dataset-pisp.zip", files)
    return clone


def test_rendering_is_undone_and_clipped_pixels_are_masked(root, release, raw):
    folder = prepare(root, "raspberry-pi-awb", release)
    stored = arrays(folder / "imx708.npz")
    assert stored["names"].tolist() == [NAMES[0].replace(",", " "), NAMES[1].replace(",", " ")]
    expected = np.ones((2, 32, 32), bool)
    expected[0, 3, 4] = expected[0, 5, 6] = False
    np.testing.assert_array_equal(stored["masks"], expected)
    np.testing.assert_allclose(
        (stored["images_u16"] / 65_535)[expected], raw[:2][expected], atol=3e-5
    )
    assert (folder / "imx708.json").read_text() == TUNING
    np.testing.assert_array_equal(stored["temperature"], [4000, 7600])
    np.testing.assert_array_equal(stored["lux"], [321, 8645])


def test_labels_and_estimates_are_points_of_the_curve(root, release):
    cameras = load_raspberry_pi(prepare(root, "raspberry-pi-awb", release))
    assert list(cameras) == ["imx219", "imx708"]
    photos = cameras["imx708"]
    # Halfway from 3,000 K to 5,000 K, and the last point.
    expected = [[(0.7451 + 0.5) / 2, 1, (0.3213 + 0.5) / 2], [0.3847, 1, 0.6921]]
    np.testing.assert_allclose(photos.illuminants, expected, rtol=1e-6)
    share = 1000 / 2600
    sixth = [0.5 + share * (0.3847 - 0.5), 1, 0.5 + share * (0.6921 - 0.5)]
    np.testing.assert_allclose(photos.camera_estimates, [[0.5, 1, 0.5], sixth], rtol=1e-6)
    assert photos.tuning.target == "pisp"
    assert not photos.read_image(0).mask[3, 4]
    np.testing.assert_allclose(photos.captures.values, np.log([[322], [8646]]), rtol=1e-6)


def test_contributors_are_groups_and_modules_are_cameras(root, release):
    folder = prepare(root, "raspberry-pi-awb", release)
    rows = list(csv.reader(io.StringIO((folder / "contributors.csv").read_text())))
    assert [row[2] for row in rows] == ["group", "ann", "ann", "bob"]
    names = {module: photos.names for module, photos in load_raspberry_pi(folder).items()}
    groups = read_image_groups(folder / "contributors.csv", names)
    assert groups["imx219"][0] == groups["imx708"][0] != groups["imx708"][1]
    assert list(thumbnail_set(folder / "imx708.npz")) == ["imx708"]


def test_sensitivities_multiply_as_in_the_releases_converter(root, release):
    """The converter takes 0.9 times the curve, where libcamera takes the curve over 0.9."""
    (release / "tunings/pisp/imx219.json").write_text(tuning(0.9))
    photos = load_raspberry_pi(prepare(root, "raspberry-pi-awb", release))["imx219"]
    np.testing.assert_allclose(photos.illuminants, [[0.9 * 0.7451, 1, 0.3213]], rtol=1e-6)
    np.testing.assert_allclose(photos.tuning.curve.chromaticities[0, 0], 0.9 * 0.7451)


def repacked(release, names_and_contents):
    zipped(release / "Datasets/dataset-pisp.zip", names_and_contents)


PNG = imagecodecs.png_encode(np.full((32, 32, 3), 20_000, np.uint16))
SMALL = imagecodecs.png_encode(np.zeros((4, 4, 3), np.uint8))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"dataset-pisp.zip has no .png"),
        ({"a/ann,imx708,1,4000.png": PNG}, "is not CONTRIBUTOR,MODULE,NUMBER"),
        ({"a/ann,imx708,1,hot,2,3.png": PNG}, "could not convert string"),
        ({"a/ann,imx708,1,4000,5,9.png": PNG}, "a temperature or brightness that cannot be"),
        ({"a/ann,imx999,1,4000,5,4000.png": PNG}, "has images by 'imx999'"),
        ({f"{a}/ann,imx708,1,4000,5,4000.png": PNG for a in "ab"}, "two pictures"),
        ({"a/ann,imx708,1,4000,5,4000.png": PNG[:60]}, "damaged or not the expected file"),
        (
            {
                "a/ann,imx708,1,4000,5,4000.png": imagecodecs.png_encode(
                    np.zeros((4, 4, 3), np.uint8)
                )
            },
            "is not a picture of 32x32 pixels",
        ),
    ],
)
def test_other_pictures_are_refused(root, release, files, message):
    repacked(release, files)
    line = refused(message, lambda: prepare(root, "raspberry-pi-awb", release), DataError)
    assert str(release) in line


def test_a_release_without_its_zip_or_a_tuning_is_refused(root, release):
    (release / "tunings/pisp/imx219.json").unlink()
    with pytest.raises(DataError, match=r"tunings/pisp/imx219\.json was not found"):
        prepare(root, "raspberry-pi-awb", release)
    shutil.rmtree(release / "Datasets")
    with pytest.raises(DataError, match=r"dataset-pisp\.zip was not found"):
        prepare(root, "raspberry-pi-awb", release)


def test_an_empty_or_damaged_folder_is_refused(root, release, tmp_path):
    with pytest.raises(MissingDataError, match=r"has no imx219\.npz.*everlight data prepare"):
        load_raspberry_pi(tmp_path)
    folder = prepare(root, "raspberry-pi-awb", release)
    stored = arrays(folder / "imx219.npz")
    np.savez(
        folder / "imx219.npz", **{n: v for n, v in stored.items() if n != "camera_temperature"}
    )
    refused("camera_temperature has", lambda: load_raspberry_pi(folder), DataError)
    (folder / "imx219.json").write_text(json.dumps({"version": 2.0}))
    refused(r"imx219\.json is damaged", lambda: load_raspberry_pi(folder), DataError)


def test_the_row_names_all_files():
    row = raspberry_pi_awb.DATA_SETS["raspberry-pi-awb"]
    assert len(row.files) == 15
    assert row.folder == "raspberry_pi_awb"
