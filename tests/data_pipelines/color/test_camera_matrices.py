"""Readers of calibration matrices: small files of the form, the real list, damaged ones."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import calibrated_matrix
from everlight_data.color import camera_matrices
from everlight_data.color.camera_matrices import (
    calibrations_from,
    matrix_for,
    read_camera_matrices,
    read_dng_calibration,
    single_matrix,
)
from everlight_data.color.dng import SHORT, SIGNED_RATIONAL, rationals, write_dng
from everlight_data.color.nus import CAMERAS
from everlight_data.errors import DataError, MissingDataError

CANON = np.array([[0.6941, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
LIST = """<?xml version="1.0"?>
<!DOCTYPE Cameras [ <!ELEMENT Cameras ( Camera+ ) > ]>
<Cameras>
  <Camera make="Canon" model="Canon EOS 550D"><ID make="Canon" model="EOS 550D">Canon EOS 550D</ID>
    <Aliases><Alias id="T2i">Canon EOS REBEL T2i</Alias></Aliases>
    <ColorMatrices><ColorMatrix planes="3">
      <ColorMatrixRow plane="0">6941 -1164 -857</ColorMatrixRow>
      <ColorMatrixRow plane="1">-3825 11597 2534</ColorMatrixRow>
      <ColorMatrixRow plane="2">-416 1540 6039</ColorMatrixRow>
    </ColorMatrix></ColorMatrices></Camera>
  <Camera make="Sony" model="F828"><ID make="Sony" model="F828">Sony F828</ID>
    <ColorMatrices><ColorMatrix planes="4"/></ColorMatrices></Camera>
</Cameras>
"""


def test_the_list_gives_a_matrix_by_name_and_alias(tmp_path):
    path = tmp_path / "cameras.xml"
    path.write_text(LIST)
    cameras = read_camera_matrices(path)
    assert set(cameras) == {"Canon EOS 550D", "Canon EOS REBEL T2i"}
    np.testing.assert_allclose(matrix_for(cameras, "Canon550D"), CANON)
    with pytest.raises(DataError, match=r"no calibration matrix of 'Canon 50D'; the nearest"):
        matrix_for(cameras, "Canon 50D")
    one = single_matrix(CANON)
    np.testing.assert_allclose(calibrated_matrix(one, jnp.float32(4000)), CANON, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ParseError"),
        (LIST[:300], "ParseError"),
        (LIST.replace("Cameras>", "Lenses>"), "ParseError|its root"),
        (LIST.replace("6941", "x"), "ValueError"),
        (LIST.replace("6941", "1e9"), "not within 20"),
        (LIST.replace("6941", "nan"), "not within 20"),
        (LIST.replace("6941", ""), "ValueError"),
        (LIST.replace('planes="3"', 'planes="4"'), "no camera with a matrix"),
        (LIST.replace("<!ELEMENT", '<!ENTITY a "&b;&b;"><!ELEMENT'), "declares entities"),
    ],
)
def test_a_damaged_list_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "cameras.xml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"cameras\.xml is damaged .*({message})"):
        read_camera_matrices(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_entities_do_not_hide_in_another_encoding(tmp_path, encoding):
    path = tmp_path / "cameras.xml"
    head = LIST.partition("?>")[2] if LIST.startswith("<?xml") else LIST
    hidden = head.replace("<!ELEMENT", '<!ENTITY a "aaaa"><!ELEMENT')
    path.write_bytes(hidden.encode(encoding))
    with pytest.raises(DataError, match=r"cameras\.xml is damaged"):
        read_camera_matrices(path)


def test_matrices_that_give_daylight_no_colour_are_refused_for_training_too(tmp_path):
    path = tmp_path / "cameras.xml"
    path.write_text(LIST)
    found = calibrations_from([path], ["Canon EOS 550D"])
    np.testing.assert_allclose(found["Canon EOS 550D"].matrices[0], CANON, rtol=1e-6)
    path.write_text(LIST.replace("6941 -1164 -857", "0 0 0"))
    with pytest.raises(DataError, match=r"cameras\.xml for Canon EOS 550D give daylight a colour"):
        calibrations_from([path], ["Canon EOS 550D"])


def test_a_list_without_end_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "cameras.xml"
    path.write_text(LIST)
    monkeypatch.setattr(camera_matrices, "MAX_XML_BYTES", 100)
    with pytest.raises(DataError, match=r"cameras\.xml"):
        read_camera_matrices(path)
    with pytest.raises(MissingDataError):
        read_camera_matrices(tmp_path / "none.xml")


def test_the_real_list_has_every_camera_of_the_sets(real_data):
    cameras = read_camera_matrices(real_data("camera_matrices/cameras.xml"))
    assert len(cameras) > 500
    found = {name: matrix_for(cameras, name) for name in (*CAMERAS, "Canon550D")}
    np.testing.assert_allclose(found["Canon550D"], CANON)
    # White of D65 has all channels above 0 in a real camera.
    for matrix in found.values():
        assert (matrix @ [0.95047, 1, 1.08883] > 0.2).all()


def written(path, **changed):
    matrices = {
        "color_a": CANON + 0.05,
        "color_d65": CANON,
        "forward_a": np.eye(3),
        "forward_d65": 2 * np.eye(3),
    }
    codes = {"color_d65": 50722, "forward_d65": 50964, "forward_a": 50965}
    tags = [
        (code, SIGNED_RATIONAL, 9, rationals(matrices[name]))
        for name, code in codes.items()
        if changed.get(name, True)
    ]
    # Illuminants in descending order of temperature: D65 is written first.
    if changed.get("color_d65", True):
        tags += [
            (50721, SIGNED_RATIONAL, 9, rationals(matrices["color_d65"])),
            (50722, SIGNED_RATIONAL, 9, rationals(matrices["color_a"])),
            (50779, SHORT, 1, changed.get("light", 17)),
        ]
        tags = list({tag[0]: tag for tag in tags}.values())
    mosaic = np.full((32, 32), 500, np.uint16)
    write_dng(path, mosaic, [0] * 4, 1000, color_matrix=CANON, extra_tags=tags)
    return path


def test_a_dngs_matrices_are_in_the_order_of_temperatures(tmp_path):
    calibration, forward = read_dng_calibration(written(tmp_path / "two.dng"))
    np.testing.assert_allclose(calibration.temperatures, [2856, 6504])
    np.testing.assert_allclose(calibration.matrices, [CANON + 0.05, CANON], atol=1e-4)
    np.testing.assert_allclose(forward, [np.eye(3), 2 * np.eye(3)], atol=1e-4)
    one = read_dng_calibration(written(tmp_path / "one.dng", color_d65=False, forward_a=False))
    np.testing.assert_allclose(one.calibration.matrices, [CANON, CANON], atol=1e-4)
    assert (one.forward == 2 * np.eye(3)).all()
    none = read_dng_calibration(written(tmp_path / "none.dng", forward_d65=False))
    assert none.forward is None


def test_what_is_no_calibration_is_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"odd\.dng: CalibrationIlluminant2 255 has no known temperature"
    ):
        read_dng_calibration(written(tmp_path / "odd.dng", light=255))
    (tmp_path / "short.dng").write_bytes((tmp_path / "odd.dng").read_bytes()[:200])
    with pytest.raises(DataError, match=r"short\.dng"):
        read_dng_calibration(tmp_path / "short.dng")
    mosaic = np.full((32, 32), 500, np.uint16)
    write_dng(tmp_path / "plain.dng", mosaic, [0] * 4, 1000)
    with pytest.raises(DataError, match=r"plain\.dng .*no ColorMatrix1"):
        read_dng_calibration(tmp_path / "plain.dng")
