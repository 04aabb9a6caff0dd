"""Sidecars against float64 NumPy, exiftool, and what RawTherapee and darktable make of them."""

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from PIL import Image

from everlight_data.color.profiles.sidecars import (
    check_sidecar,
    rawtherapee_white,
    sidecar_path,
    sidecar_text,
    write_sidecars,
)
from everlight_data.color.raw_files.photo_whites import PhotoWhite
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from tests.color.references import degrees
from tests.dng_writer import write_dng

CANON = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
ILLUMINANT = np.array([0.62, 1, 0.45])
WHITE = PhotoWhite((0.42, 0.40), 3241.6, -7.5, CANON)
DARKTABLE = "{http://darktable.sf.net/}"
ADOBE = "{http://ns.adobe.com/camera-raw-settings/1.0/}"
DESCRIPTION = ".//{http://www.w3.org/1999/02/22-rdf-syntax-ns#}Description"


def tool(name):
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


def gray_photo(folder, illuminant=ILLUMINANT):
    """Write a grey scene under an illuminant, whose file states another one."""
    scene = np.full((300, 450, 3), 0.2) * illuminant
    path = folder / "photo.dng"
    write_dng(path, scene, 512, 16383, CANON, (0.9, 1, 0.9))
    return read_raw(path)


@pytest.fixture
def photo(tmp_path):
    return gray_photo(tmp_path)


def test_names_are_those_that_converters_look_for():
    raw = Path("a/IMG_1.CR2")
    assert sidecar_path(raw, "adobe", None) == Path("a/IMG_1.xmp")
    assert sidecar_path(raw, "darktable", None) == Path("a/IMG_1.CR2.xmp")
    assert sidecar_path(raw, "rawtherapee", Path("b")) == Path("b/IMG_1.CR2.pp3")


def test_adobes_sidecar_has_temperature_and_tint(photo):
    root = ElementTree.fromstring(sidecar_text(photo, ILLUMINANT, WHITE, "adobe").encode())
    attributes = root.find(DESCRIPTION).attrib
    stated = {name: attributes[ADOBE + name] for name in ("WhiteBalance", "Temperature", "Tint")}
    assert stated == {"WhiteBalance": "Custom", "Temperature": "3242", "Tint": "-8"}


def test_darktables_sidecar_has_multipliers_and_no_second_balance(photo):
    root = ElementTree.fromstring(sidecar_text(photo, ILLUMINANT, None, "darktable").encode())
    modules = {}
    for module in root.iter("{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"):
        modules[module.attrib[f"{DARKTABLE}operation"]] = module.attrib
    balance = bytes.fromhex(modules["temperature"][f"{DARKTABLE}params"])
    np.testing.assert_allclose(struct.unpack("<4f", balance), [1 / 0.62, 1, 1 / 0.45, 0], rtol=1e-6)
    assert modules["temperature"][f"{DARKTABLE}enabled"] == "1"
    assert modules["channelmixerrgb"][f"{DARKTABLE}enabled"] == "0"
    assert len(bytes.fromhex(modules["channelmixerrgb"][f"{DARKTABLE}params"])) == 160


# Temperatures and greens by which RawTherapee 5.9 makes a scene of the illuminant grey.
@pytest.mark.parametrize(
    ("illuminant", "temperature", "green"),
    [
        ((0.62, 1, 0.45), 3208, 0.9708),
        ((0.5, 1, 0.6), 4451, 1.1041),
        ((0.4, 1, 0.9), 7290, 1.4066),
        ((0.8, 1, 0.3), 2243, 0.8193),
    ],
)
def test_rawtherapees_white_balance_is_the_one_that_makes_gray(illuminant, temperature, green):
    result = rawtherapee_white(7 * np.array(illuminant), CANON)
    assert abs(result.temperature - temperature) <= 2
    np.testing.assert_allclose(result.green, green, atol=1e-3)


def test_an_illuminant_outside_of_a_converters_range_is_refused(photo):
    with pytest.raises(DataError, match="the illuminant lies outside"):
        sidecar_text(photo, np.array([0.62, 1, 0.2]), WHITE, "rawtherapee")
    for changes, message in (({"tint": 151.0}, "tint 151"), ({"temperature": 1900.0}, "1900")):
        with pytest.raises(DataError, match=rf"{message}.* lies outside"):
            sidecar_text(photo, ILLUMINANT, WHITE._replace(**changes), "adobe")


def test_a_camera_without_matrices_has_only_darktables_sidecar(photo):
    unknown = photo._replace(xyz_to_camera=None)
    with pytest.raises(DataError, match=r"needs the camera's calibration, .* --matrices"):
        sidecar_text(unknown, ILLUMINANT, None, "adobe")
    with pytest.raises(DataError, match=r"no matrix of daylight, .*RawTherapee"):
        sidecar_text(unknown, ILLUMINANT, None, "rawtherapee")
    assert "temperature" in sidecar_text(unknown, ILLUMINANT, None, "darktable")


def test_no_sidecar_is_replaced(photo, tmp_path):
    write_sidecars(photo, ILLUMINANT, WHITE, ("adobe",), None)
    before = (tmp_path / "photo.xmp").read_bytes()
    other = write_sidecars(photo, ILLUMINANT, WHITE._replace(tint=3.0), ("adobe",), None)
    assert not other.paths
    assert re.search(r"photo\.xmp exists .*--sidecar-folder", " ".join(other.warnings))
    assert (tmp_path / "photo.xmp").read_bytes() == before
    written = write_sidecars(photo, ILLUMINANT, WHITE, ("adobe",), tmp_path / "folder")
    assert written.paths == [tmp_path / "folder" / "photo.xmp"]


KINDS = ("darktable", "rawtherapee", "adobe")


def test_the_same_sidecars_are_neither_written_again_nor_refused(photo):
    first = write_sidecars(photo, ILLUMINANT, WHITE, KINDS, None)
    times = [path.stat().st_mtime_ns for path in first.paths]
    again = write_sidecars(photo, ILLUMINANT, WHITE, KINDS, None)
    assert (again.paths, again.warnings) == ([], first.warnings)
    assert [path.stat().st_mtime_ns for path in first.paths] == times
    for kind in KINDS:
        check_sidecar(sidecar_path(photo.path, kind, None), kind)


def test_an_edited_sidecar_is_refused(photo, tmp_path):
    """Lightroom adds attributes, and RawTherapee keys, to the files that it read."""
    write_sidecars(photo, ILLUMINANT, WHITE, KINDS, None)
    edits = {
        "adobe": ('crs:Tint="-8"', 'crs:Tint="-8" crs:Exposure2012="+0.50"'),
        "rawtherapee": ("Equal=1", "Equal=1\n\n[Exposure]\nCompensation=0.5"),
        "darktable": ("</rdf:Seq>", '<rdf:li darktable:operation="exposure"/></rdf:Seq>'),
    }
    for kind, (old, new) in edits.items():
        path = sidecar_path(photo.path, kind, None)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(DataError, match="exists and may have a user's settings"):
            check_sidecar(path, kind)


def test_a_kind_without_the_illuminant_is_a_warning_and_the_others_are_written(photo, tmp_path):
    result = write_sidecars(photo, ILLUMINANT, None, ("rawtherapee", "adobe"), None)
    assert result.paths == [tmp_path / "photo.dng.pp3"]
    (warning,) = result.warnings
    assert warning.startswith("no sidecar for adobe: it needs the camera's calibration")


def test_adobes_sidecar_of_a_dng_is_warned_of(photo):
    renamed = photo._replace(path=photo.path.with_suffix(".CR2"))
    assert not write_sidecars(renamed, ILLUMINANT, WHITE, ("adobe",), None).warnings
    (warning,) = write_sidecars(photo, ILLUMINANT, WHITE, ("rawtherapee", "adobe"), None).warnings
    assert "--formats dng" in warning


@tool("exiftool")
def test_exiftool_reads_adobes_sidecar(photo, tmp_path):
    (path,) = write_sidecars(photo, ILLUMINANT, WHITE, ("adobe",), None).paths
    command = ["exiftool", "-j", "-n", "-XMP:all", str(path)]
    (tags,) = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert (tags["WhiteBalance"], tags["ColorTemperature"], tags["Tint"]) == ("Custom", 3242, -8)


def median_color(path):
    """Return the linear colour of a picture's centre, which is encoded as sRGB."""
    picture = tifffile.imread(path) / 65535 if path.suffix == ".tif" else Image.open(path)
    encoded = np.asarray(picture, float) / (1 if path.suffix == ".tif" else 255)
    color = np.median(encoded[100:200, 150:300].reshape(-1, 3), axis=0)
    return np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)


@pytest.mark.slow
@tool("rawtherapee-cli")
@pytest.mark.parametrize("illuminant", [(0.62, 1, 0.45), (0.5, 1, 0.6), (0.45, 1, 0.75)])
def test_rawtherapee_makes_the_scene_gray(tmp_path, monkeypatch, illuminant):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    illuminant = np.array(illuminant)
    photo, output = gray_photo(tmp_path, illuminant), tmp_path / "out.tif"
    command = ["rawtherapee-cli", "-o", output, "-t", "-b16", "-Y", "-s", "-c", photo.path]
    subprocess.run(command, capture_output=True, check=True)
    assert degrees(median_color(output), np.ones(3)) > 5
    write_sidecars(photo, illuminant, None, ("rawtherapee",), None)
    subprocess.run(command, capture_output=True, check=True)
    assert degrees(median_color(output), np.ones(3)) < 0.1


@pytest.mark.slow
@tool("darktable-cli")
@pytest.mark.parametrize("workflow", ["legacy", "modern"])
def test_darktable_makes_the_scene_gray(tmp_path, photo, workflow):
    output = tmp_path / "out.png"
    command = [
        *("darktable-cli", photo.path, output, "--icc-type", "SRGB", "--core"),
        *("--configdir", tmp_path / "config", "--library", ":memory:"),
        *("--conf", f"plugins/darkroom/chromatic-adaptation={workflow}"),
    ]
    subprocess.run(command, capture_output=True, check=True)
    assert degrees(median_color(output), np.ones(3)) > 5
    output.unlink()
    write_sidecars(photo, ILLUMINANT, None, ("darktable",), None)
    subprocess.run(command, capture_output=True, check=True)
    assert degrees(median_color(output), np.ones(3)) < 0.8
