"""Camera profiles against bytes made by hand, RawTherapee's profiles, and exiftool."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import calibrated_matrix
from everlight_data.color.raw_files.calibrations import read_dng_calibration
from everlight_data.color.raw_files.camera_profile import (
    IlluminantMatrices,
    ProfileTag,
    new_profile,
    profile_bytes,
    read_profile,
    write_profile,
)
from everlight_data.color.raw_files.dng_colors import TEMPERATURES
from everlight_data.color.raw_files.raw import camera_name
from everlight_data.errors import DataError

PROFILES = Path("/usr/share/rawtherapee/dcpprofiles")
"""Folder of Debian's package rawtherapee-data."""
WARM = np.array([[0.75, -0.15, -0.05], [-0.42, 1.25, 0.18], [-0.06, 0.2, 0.5]])
DAY = np.array([[0.6941, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
FORWARD = np.array([[0.6, 0.3, 0.0642], [0.25, 0.85, -0.1], [0.02, -0.1, 0.9049]])

needs_profiles = pytest.mark.skipif(
    not PROFILES.is_dir(), reason="Debian's package rawtherapee-data is not installed"
)


def layout(order, padding):
    """Return a profile of an unknown, an inline and a matrix tag, byte by byte."""
    matrix = b"".join(struct.pack(f"{order}2i", round(1e4 * v), 10_000) for v in DAY.ravel())
    model, table = b"Made Up\0\0", struct.pack(f"{order}3f", 0, 1, 0.5)
    start = 8 + 2 + 4 * 12 + 4
    second = start + len(model) + -len(model) % padding
    third = second + len(matrix)
    entries = [
        struct.pack(f"{order}HHII", 50708, 2, len(model), start),
        struct.pack(f"{order}HHII", 50721, 10, 9, second),
        struct.pack(f"{order}HHIHH", 50778, 3, 1, 21, 0),
        struct.pack(f"{order}HHII", 65000, 11, 3, third),
    ]
    magic = b"IIRC" if order == "<" else b"MMCR"
    head = magic + struct.pack(f"{order}IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return head + model + bytes(-len(model) % padding) + matrix + table


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("padding", [2, 4])
def test_bytes_made_by_hand_are_read_and_written_again(tmp_path, order, padding):
    path, content = tmp_path / "camera.dcp", layout(order, padding)
    path.write_bytes(content)
    profile = read_profile(path)
    assert (profile.byte_order, profile.padding) == (order, padding)
    assert profile.tags[0] == ProfileTag(50708, 2, 9, b"Made Up\0\0")
    assert profile.tags[3] == ProfileTag(65000, 11, 3, struct.pack(f"{order}3f", 0, 1, 0.5))
    write_profile(tmp_path / "again.dcp", profile)
    assert (tmp_path / "again.dcp").read_bytes() == content
    calibration = read_dng_calibration(path).calibration
    assert calibration.matrices.shape == (1, 3, 3)
    np.testing.assert_allclose(calibration.matrices[0], DAY, rtol=1e-6)


@needs_profiles
def test_every_profile_of_rawtherapee_has_its_bytes_again():
    paths = sorted(PROFILES.glob("*.dcp"))
    profiles = [read_profile(path) for path in paths]
    for path, profile in zip(paths, profiles, strict=True):
        assert profile_bytes(profile) == path.read_bytes(), path
    dual = [profile for profile in profiles if any(tag.code == 50722 for tag in profile.tags)]
    assert (len(profiles), len(dual)) >= (139, 102)


@needs_profiles
def test_a_profile_has_as_many_matrices_as_illuminants():
    """A profile of one illuminant has no second temperature to interpolate towards."""
    single = []
    for path in sorted(PROFILES.glob("*.dcp")):
        codes = {tag.code for tag in read_profile(path).tags}
        count = 2 if 50722 in codes else 1
        result = read_dng_calibration(path)
        assert result.calibration.matrices.shape == (count, 3, 3), path
        assert result.calibration.temperatures.shape == (count,), path
        assert result.forward is None or len(result.forward) == len(result.individual) == count
        single += [result] if count == 1 else []
    assert len(single) >= 37
    for result in single[:3]:
        kelvin = float(result.calibration.temperatures[0])
        assert kelvin in TEMPERATURES.values()
        at_ends = [calibrated_matrix(result.calibration, jnp.float32(k)) for k in (2000, 9000)]
        np.testing.assert_array_equal(at_ends[0], at_ends[1])


@needs_profiles
def test_a_profiles_calibration_equals_exiftools():
    """The numbers are exiftool's, of "NIKON D7500.dcp"."""
    path = PROFILES / "NIKON D7500.dcp"
    result = read_dng_calibration(path)
    warm = [[1.5739, -0.8184, -0.0282], [-0.7344, 1.7549, 0.408], [-0.1729, 0.2287, 0.9393]]
    day = [[0.7888, -0.2331, -0.0958], [-0.496, 1.2614, 0.2635], [-0.1668, 0.2573, 0.6799]]
    forward_warm = [[0.6398, 0.1731, 0.1514], [0.248, 0.7072, 0.0447], [0.0002, 0.1047, 0.7202]]
    forward_day = [[0.6135, 0.1276, 0.2232], [0.2925, 0.6382, 0.0693], [0.0001, 0.0002, 0.8247]]
    np.testing.assert_allclose(result.calibration.matrices, [warm, day], atol=1e-6)
    np.testing.assert_allclose(result.calibration.temperatures, [2856, 6504])
    np.testing.assert_allclose(result.forward, [forward_warm, forward_day], atol=1e-6)
    assert camera_name(path) == "NIKON D7500"


def dual_profile():
    matrices = [IlluminantMatrices(17, WARM, FORWARD), IlluminantMatrices(21, DAY, FORWARD)]
    return new_profile("Made Up é", "everlight", matrices)


def test_a_new_profile_is_read_as_a_calibration(tmp_path):
    path = tmp_path / "new.dcp"
    write_profile(path, dual_profile())
    result = read_dng_calibration(path)
    np.testing.assert_allclose(result.calibration.matrices, [WARM, DAY], atol=1e-6)
    np.testing.assert_allclose(result.forward, [FORWARD, FORWARD], atol=1e-6)
    assert profile_bytes(read_profile(path)) == path.read_bytes()
    codes = [tag.code for tag in dual_profile().tags]
    assert codes == sorted(codes)


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not installed")
def test_exiftool_reads_a_new_profile(tmp_path):
    path = tmp_path / "new.dcp"
    write_profile(path, dual_profile())
    command = ["exiftool", "-j", "-n", "-IFD0:all", str(path)]
    (tags,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert tags["UniqueCameraModel"] == "Made Up é"
    assert tags["ProfileName"] == "everlight"
    assert (tags["CalibrationIlluminant1"], tags["CalibrationIlluminant2"]) == (17, 21)
    expected = {"ColorMatrix1": WARM, "ColorMatrix2": DAY, "ForwardMatrix2": FORWARD}
    for name, matrix in expected.items():
        numbers = [float(number) for number in tags[name].split()]
        np.testing.assert_allclose(numbers, matrix.ravel(), atol=1e-6)


def replaced(content, place, new):
    return content[:place] + new + content[place + len(new) :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"", "does not begin with IIRC or MMCR"),
        (lambda content: b"II*\0" + content[4:], "does not begin with IIRC or MMCR"),
        (lambda content: content[:60], "is damaged or not the expected file"),
        (lambda content: content[:-6], "3 of its 4 tags are readable"),
        (lambda content: replaced(content, 8, struct.pack("<H", 900)), "is damaged or not"),
        (lambda content: replaced(content, 4, struct.pack("<I", 1 << 30)), "is damaged or not"),
        (lambda content: replaced(content, 22, struct.pack("<H", 50708)), "occurs twice"),
        (
            lambda content: replaced(content, 14, struct.pack("<I", 1 << 31)),
            "3 of its 4 tags are readable",
        ),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path, change, message):
    path = tmp_path / "camera.dcp"
    path.write_bytes(change(layout("<", 2)))
    with pytest.raises(DataError, match=rf"camera\.dcp.*{message}.*Give a DNG camera profile"):
        read_profile(path)


def test_a_truncated_profile_gives_no_calibration(tmp_path):
    """The matrices are complete, and the forward matrices of the file's end are not."""
    path = tmp_path / "camera.dcp"
    write_profile(path, dual_profile())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"camera\.dcp is damaged.*tags are readable"):
        read_dng_calibration(path)


def test_tags_that_share_their_bytes_are_refused(tmp_path):
    path, count = tmp_path / "bomb.dcp", 900
    entries = [struct.pack("<HHII", 50000 + k, 1, 10_000, 20) for k in range(count)]
    path.write_bytes(b"IIRC" + struct.pack("<IH", 8, count) + b"".join(entries) + bytes(4))
    with pytest.raises(DataError, match=r"bomb\.dcp .*overlap"):
        read_profile(path)
