"""Readers of calibration matrices: small files of the form, the real list, damaged ones."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import calibrated_matrix
from everlight_data.color import camera_matrices
from everlight_data.color.camera_matrices import find_matrix, is_alias, read_camera_matrices
from everlight_data.color.photographs.camera_names import DATA_SET_CAMERAS, NUS8_CAMERAS
from everlight_data.color.raw_files import dng
from everlight_data.color.raw_files.calibrations import (
    other_camera,
    read_calibrations,
    read_dng_calibration,
    single_matrix,
)
from everlight_data.color.raw_files.raw import read_raw
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


def listed(folder, text=LIST):
    (folder / "cameras.xml").write_text(text)
    return folder / "cameras.xml"


def flat_dng(path, **tags):
    """Write a mosaic of one value."""
    values = np.full((32, 32), 500, np.uint16)
    dng.write_dng(path, values, [0] * 4, 1000, tags=dng.DngTags(**tags))
    return path


def test_the_list_gives_a_matrix_by_name_and_alias(tmp_path):
    cameras = read_camera_matrices(listed(tmp_path))
    assert set(cameras) == {"Canon EOS 550D", "Canon EOS REBEL T2i"}
    np.testing.assert_allclose(find_matrix(cameras, "Canon550D"), CANON)
    with pytest.raises(DataError, match=r"no calibration matrix of 'Canon 50D'; did you mean"):
        find_matrix(cameras, "Canon 50D")
    one = single_matrix(CANON)
    np.testing.assert_allclose(calibrated_matrix(one, jnp.float32(4000)), CANON, rtol=1e-6)


def test_rows_stand_at_their_planes(tmp_path):
    """Rows were taken in the order of the file."""
    rows = [line for line in LIST.splitlines(keepends=True) if "plane=" in line]
    text = LIST.replace("".join(rows), "".join(rows[::-1]))
    assert text != LIST
    cameras = read_camera_matrices(listed(tmp_path, text))
    np.testing.assert_allclose(cameras["Canon EOS 550D"], CANON)


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
        (LIST.replace(' plane="2"', ' plane="1"'), "rows of the planes 0, 1, 1, not 0, 1 and 2"),
        (LIST.replace(' plane="2"', ""), "rows of the planes 0, 1, None, not 0, 1 and 2"),
        (LIST.replace('planes="3"', 'planes="4"'), "no camera with a matrix"),
        (LIST.replace("<!ELEMENT", '<!ENTITY a "&b;&b;"><!ELEMENT'), "declares entities"),
    ],
)
def test_a_damaged_list_is_refused_by_name(tmp_path, text, message):
    with pytest.raises(DataError, match=rf"cameras\.xml is damaged .*({message})"):
        read_camera_matrices(listed(tmp_path, text))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_entities_do_not_hide_in_another_encoding(tmp_path, encoding):
    path = tmp_path / "cameras.xml"
    hidden = LIST.partition("?>")[2].replace("<!ELEMENT", '<!ENTITY a "aaaa"><!ELEMENT')
    path.write_bytes(hidden.encode(encoding))
    with pytest.raises(DataError, match=r"cameras\.xml is damaged"):
        read_camera_matrices(path)


def test_matrices_that_give_daylight_no_color_are_refused_for_training_too(tmp_path):
    path = listed(tmp_path)
    result = read_calibrations([path], ["Canon EOS 550D"])
    np.testing.assert_allclose(result["Canon EOS 550D"].matrices[0], CANON, rtol=1e-6)
    path.write_text(LIST.replace("6941 -1164 -857", "0 0 0"))
    with pytest.raises(DataError, match=r"cameras\.xml for Canon EOS 550D give daylight a colour"):
        read_calibrations([path], ["Canon EOS 550D"])


def test_a_list_without_end_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(camera_matrices, "MAX_XML_BYTES", 100)
    with pytest.raises(DataError, match=r"cameras\.xml"):
        read_camera_matrices(listed(tmp_path))
    with pytest.raises(MissingDataError):
        read_camera_matrices(tmp_path / "none.xml")


def test_the_real_list_has_every_camera_of_the_sets(real_data):
    cameras = read_camera_matrices(real_data("camera_matrices/cameras.xml"))
    assert len(cameras) > 500
    result = {name: find_matrix(cameras, name) for name in DATA_SET_CAMERAS}
    assert {*NUS8_CAMERAS} < {*result}
    np.testing.assert_allclose(result["Canon550D"], CANON)
    # White of D65 has all channels above 0 in a real camera.
    for matrix in result.values():
        assert (matrix @ [0.95047, 1, 1.08883] > 0.2).all()


def written(path, missing=()):
    """Write a DNG with matrices of D65, which is the first, and of illuminant A."""
    matrices = {50721: CANON, 50722: CANON + 0.05, 50964: 2 * np.eye(3), 50965: np.eye(3)}
    tags = [(code, dng.SIGNED_RATIONAL, 9, dng.rationals(item)) for code, item in matrices.items()]
    tags.append((50779, dng.SHORT, 1, 17))
    tags = [tag for tag in tags if tag[0] not in missing]
    return flat_dng(path, color_matrix=CANON, extra=tags)


def test_a_dngs_matrices_are_in_the_order_of_temperatures(tmp_path):
    calibration, forward, _ = read_dng_calibration(written(tmp_path / "two.dng"))
    np.testing.assert_allclose(calibration.temperatures, [2856, 6504])
    np.testing.assert_allclose(calibration.matrices, [CANON + 0.05, CANON], atol=1e-4)
    np.testing.assert_allclose(forward, [np.eye(3), 2 * np.eye(3)], atol=1e-4)
    one = read_dng_calibration(written(tmp_path / "one.dng", (50721, 50722, 50779, 50965)))
    assert one.calibration.matrices.shape == one.forward.shape == one.individual.shape == (1, 3, 3)
    np.testing.assert_allclose(one.calibration.matrices[0], CANON, atol=1e-4)
    np.testing.assert_array_equal(one.calibration.temperatures, [6504])
    assert (one.forward == 2 * np.eye(3)).all()
    none = read_dng_calibration(written(tmp_path / "none.dng", (50964,)))
    assert none.forward is None


def calibrated_dng(path, rng, **changed):
    """Write a DNG with all calibration tags; return the parts in float64, as they are written."""
    parts = {
        "color_1": rng.uniform(-0.3, 0.9, (3, 3)).round(4),
        "color_2": rng.uniform(-0.3, 0.9, (3, 3)).round(4),
        "calibration_1": (np.eye(3) + rng.uniform(-0.1, 0.1, (3, 3))).round(4),
        "calibration_2": np.diag(rng.uniform(0.8, 1.2, 3).round(4)),
        "balance": np.array([0.625, 1.0, 0.8]),
        "signatures": ("com.adobe", "com.adobe"),
        "planes": (0, 1, 2),
        "illuminants": (17, 21),
    } | changed
    codes = {50721: "color_1", 50722: "color_2", 50723: "calibration_1", 50724: "calibration_2"}
    tags = [
        (code, dng.SIGNED_RATIONAL, 9, dng.rationals(parts[name]))
        for code, name in codes.items()
        if parts[name] is not None
    ]
    illuminants = zip((50778, 50779), parts["illuminants"], strict=True)
    tags += [(code, dng.SHORT, 1, illuminant) for code, illuminant in illuminants]
    tags += [(50727, dng.RATIONAL, 3, dng.rationals(parts["balance"]))]
    tags += [(50710, dng.BYTE, 3, bytes(parts["planes"]))]
    texts = zip((50931, 50932), parts["signatures"], strict=True)
    tags += [(code, dng.ASCII, 0, text) for code, text in texts if text]
    flat_dng(path, extra=tags)
    return parts


@pytest.mark.parametrize(
    ("signatures", "applies"),
    [
        (("com.adobe", "com.adobe"), True),
        (("", ""), True),
        (("com.adobe", ""), False),
        (("", "com.adobe"), False),
        (("com.adobe", "com.Adobe"), False),
    ],
)
def test_the_cameras_calibration_and_balance_are_in_the_matrix(tmp_path, rng, signatures, applies):
    """The DNG specification has XYZtoCamera = AB · CC · CM; CC is for profiles of its name."""
    path = tmp_path / "a.dng"
    parts = calibrated_dng(path, rng, signatures=signatures)
    expected = []
    for number in (1, 2):
        calibration = parts[f"calibration_{number}"] if applies else np.eye(3)
        expected.append(np.diag(parts["balance"]) @ calibration @ parts[f"color_{number}"])
    calibration = read_dng_calibration(path).calibration
    np.testing.assert_allclose(calibration.matrices, expected, rtol=1e-5)
    # The function read_raw takes the matrix of D65.
    np.testing.assert_allclose(read_raw(path).xyz_to_camera, expected[1], rtol=1e-5)
    white = np.array([0.95047, 1, 1.08883])
    seen = np.asarray(calibrated_matrix(calibration, jnp.float32(6504))) @ white
    np.testing.assert_allclose(seen, expected[1] @ white, rtol=1e-4)


def test_one_matrix_with_calibration_serves_both_readers(tmp_path, rng):
    path = tmp_path / "a.dng"
    parts = calibrated_dng(path, rng, color_2=None, illuminants=(0, 0))
    expected = np.diag(parts["balance"]) @ parts["calibration_1"] @ parts["color_1"]
    calibration = read_dng_calibration(path).calibration
    np.testing.assert_allclose(calibration.matrices, expected[None], rtol=1e-5)
    assert np.isnan(calibration.temperatures).all()
    np.testing.assert_allclose(read_raw(path).xyz_to_camera, expected, rtol=1e-5)


@pytest.mark.parametrize("planes", [(2, 1, 0), (1, 2, 0)])
def test_calibrations_of_planes_in_another_order(tmp_path, rng, planes):
    path = tmp_path / "a.dng"
    parts = calibrated_dng(path, rng, planes=planes)
    for number in (1, 2):
        stored = np.diag(parts["balance"]) @ parts[f"calibration_{number}"]
        stored = stored @ parts[f"color_{number}"]
        expected = np.stack([stored[planes.index(color)] for color in range(3)])
        matrix = read_dng_calibration(path).calibration.matrices[number - 1]
        np.testing.assert_allclose(matrix, expected, rtol=1e-5)
    np.testing.assert_allclose(read_raw(path).xyz_to_camera, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("illuminants", "kelvin"),
    [
        ((17, 21), (2856, 6504)),
        ((3, 1), (2850, 5500)),
        ((24, 20), (3200, 5503)),
        ((21, 24), (3200, 6504)),
        ((11, 14), (4150, 7500)),
    ],
)
def test_calibration_illuminants_have_their_temperatures(tmp_path, rng, illuminants, kelvin):
    parts = calibrated_dng(tmp_path / "a.dng", rng, illuminants=illuminants)
    calibration = read_dng_calibration(tmp_path / "a.dng").calibration
    np.testing.assert_allclose(calibration.temperatures, kelvin)
    first = 2 if illuminants == (21, 24) or illuminants == (11, 14) else 1
    expected = np.diag(parts["balance"]) @ parts[f"calibration_{first}"] @ parts[f"color_{first}"]
    np.testing.assert_allclose(calibration.matrices[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("illuminants", "message"),
    [
        ((0, 21), "CalibrationIlluminant1 0 has no known temperature"),
        ((17, 255), "CalibrationIlluminant2 255 has no known temperature"),
        ((17, 99), "CalibrationIlluminant2 99 has no known temperature"),
        ((21, 21), "CalibrationIlluminant1 and 2 are both of 6504 K"),
    ],
)
def test_two_matrices_need_two_known_illuminants(tmp_path, rng, illuminants, message):
    path = tmp_path / "a.dng"
    calibrated_dng(path, rng, illuminants=illuminants)
    with pytest.raises(DataError, match=rf"a\.dng: {message}.*; give a DNG with one or two"):
        read_dng_calibration(path)
    # The photograph itself does not need them.
    matrix = read_raw(path).xyz_to_camera
    assert (matrix is None) == (illuminants != (21, 21))


@pytest.mark.parametrize(
    ("requested", "listed"),
    [
        ("Canon EOS R7", ["Canon EOS REBEL T7"]),
        ("Canon EOS R6 Mark II", ["Canon EOS M", "Canon EOS R6"]),
        ("camera", ["Olympus TG-6 dive camera"]),
        ("Canon EOS 5D Mark II", ["Canon EOS 5D"]),
        ("Sony A7", ["Sony A7 IV"]),
        ("D5200", ["Nikon D5200"]),
        ("Nikon D5200", ["Nikon D520", "Nikon D52000"]),
        ("Canon-EOS-5D", ["Canon EOS 5D"]),
        ("", ["Canon EOS 5D"]),
    ],
)
def test_a_cameras_matrix_is_by_its_whole_name(requested, listed):
    with pytest.raises(DataError, match="no calibration matrix of") as caught:
        find_matrix(dict.fromkeys(listed, CANON), requested)
    assert " Give a DNG by the camera, a cameras.xml" in str(caught.value)


def test_the_names_of_dngs_are_among_the_nearest(tmp_path):
    path = flat_dng(tmp_path / "a.dng", color_matrix=CANON, model="Maker B2")
    with pytest.raises(DataError, match=r"matrix of 'Maker B'; did you mean 'Maker B2'\?"):
        read_calibrations([path], ["Maker B"])
    result = read_calibrations([path], ["maker b2 "])
    np.testing.assert_allclose(result["maker b2 "].matrices[0], CANON, atol=1e-4)


@pytest.mark.parametrize(
    "requested",
    ["canon eos 5d", " Canon EOS 5D ", "Canon Canon EOS 5D", "Canon5D", "Canon Inc. Canon EOS 5D"],
)
def test_case_spaces_and_a_repeated_maker_do_not_count(requested):
    cameras = {"Canon EOS 5D": CANON, "Canon EOS 5D Mark II": 2 * CANON}
    np.testing.assert_array_equal(find_matrix(cameras, requested), CANON)


def test_the_message_about_a_name_without_a_maker_has_an_alias_that_works(tmp_path):
    path = listed(tmp_path)
    with pytest.raises(DataError, match="did you mean 'Canon EOS 550D'") as caught:
        find_matrix(read_camera_matrices(path), "EOS 550D")
    (alias,) = re.findall("<Aliases>.*</Aliases>", str(caught.value))
    path.write_text(LIST.replace("</ID>\n    <Aliases>", f"</ID>{alias}<Aliases>"))
    np.testing.assert_array_equal(find_matrix(read_camera_matrices(path), "EOS 550D"), CANON)


def test_published_names_of_the_real_list(real_data):
    cameras = read_camera_matrices(real_data("camera_matrices/cameras.xml"))
    same = {
        "Canon EOS 550D": ["Canon EOS Kiss X4", "Canon EOS Rebel T2i", "canon canon eos 550d"],
        "Nikon D5200": ["NIKON CORPORATION NIKON D5200"],
        "Olympus E-PL6": ["OLYMPUS IMAGING CORP. E-PL6"],
        "Panasonic DMC-G7": ["Panasonic DMC-G70"],
    }
    for name, others in same.items():
        for other in others:
            np.testing.assert_array_equal(find_matrix(cameras, other), find_matrix(cameras, name))
    # RawTherapee's profile of the camera has the model alone.
    assert is_alias("EOS 550D", "Canon EOS 550D")
    assert not is_alias("EOS 5D", "Canon EOS 5D Mark II")
    # The list is older than these cameras, and has names of several cameras.
    for name in ("Canon EOS R7", "Canon EOS R6 Mark II", "camera", "Panasonic", "Sony"):
        with pytest.raises(DataError, match="no calibration matrix of"):
            find_matrix(cameras, name)


def test_photos_of_one_camera_do_not_pass_for_another(monkeypatch, real_data):
    root = real_data("camera_matrices/cameras.xml").parent.parent
    monkeypatch.setenv("EVERLIGHT_DATA", str(root))
    for camera, trained in (
        ("Canon EOS 5D Mark II", "Canon EOS 5D"),
        ("Sony ILCE-7M4", "Sony ILCE-7"),
        ("Canon EOS 5D", "Canon EOS 5D Mark II"),
    ):
        (warning,) = other_camera(camera, [trained])
        assert warning.startswith(f"taken by {camera}, and the model was trained for {trained}:")
    assert other_camera("Canon EOS Kiss X4", ["Canon550D"]) == []
    assert other_camera("NIKON CORPORATION NIKON D5200", ["NikonD5200"]) == []
    assert other_camera(None, ["Canon EOS 5D"]) == []
    monkeypatch.setenv("EVERLIGHT_DATA", str(root / "nowhere"))
    assert len(other_camera("Canon EOS Kiss X4", ["Canon550D"])) == 1


def test_files_without_a_calibration_are_refused(tmp_path):
    content = written(tmp_path / "whole.dng").read_bytes()
    (tmp_path / "short.dng").write_bytes(content[:200])
    with pytest.raises(DataError, match=r"short\.dng"):
        read_dng_calibration(tmp_path / "short.dng")
    with pytest.raises(DataError, match=r"plain\.dng: ColorMatrix1 is missing; give"):
        read_dng_calibration(flat_dng(tmp_path / "plain.dng"))


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ((50721, 10, 9, (1, 1) * 9), "ColorMatrix1 with its CameraCalibration has no inverse"),
        ((50723, 10, 9, (1, 1) * 9), "ColorMatrix1 with its CameraCalibration has no inverse"),
        ((50721, 10, 9, (99, 1, *(0, 1) * 8)), "ColorMatrix1 has an entry that is not within 20"),
        (
            (50727, 5, 3, (0, 1, 1, 1, 1, 1)),
            r"AnalogBalance is \[0.0, 1.0, 1.0\], not positive",
        ),
        (
            (50727, 10, 3, (-1, 1, 1, 1, 1, 1)),
            r"AnalogBalance is \[-1.0, 1.0, 1.0\], not positive",
        ),
    ],
)
def test_matrices_without_inverse_are_refused_by_both_readers(tmp_path, tag, message):
    path = flat_dng(tmp_path / "a.dng", color_matrix=np.eye(3), extra=[tag])
    for read in (read_raw, read_dng_calibration):
        with pytest.raises(DataError, match=rf"a\.dng: {message}; the tag is damaged"):
            read(path)
