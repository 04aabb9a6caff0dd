"""Tuning files of libcamera: what is read, what is replaced, and that all else stays."""

import difflib

import numpy as np
import pytest

from everlight_data.color.tuning_files.libcamera import (
    MAX_BYTES,
    parse_tuning,
    read_tuning,
    replace_colors,
    searched_temperatures,
    write_tuning,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.sets.camera_tuning import ColorMatrices, TemperatureCurve
from tests.data_pipelines.color.tuning_files.tuning_text import TUNING
from tests.refusals import refused

CURVE = TemperatureCurve(np.array([2800.0, 6500.5]), np.array([[0.8, 0.3], [0.41237, 0.6]]))
MATRICES = ColorMatrices(
    np.array([4000.4]), np.array([[[1.23456789, -0.2, 0], [0, 1, 0]] * 3])[:, :3]
)


@pytest.fixture
def path(tmp_path):
    (tmp_path / "imx1.json").write_bytes(TUNING.encode())
    return tmp_path / "imx1.json"


def test_colors_are_read(path):
    tuning = read_tuning(path)
    assert (tuning.target, tuning.text) == ("pisp", TUNING)
    np.testing.assert_array_equal(tuning.curve.temperatures, [3000, 5000, 7600])
    np.testing.assert_array_equal(tuning.curve.chromaticities[1], [0.5, 0.5])
    np.testing.assert_array_equal(tuning.matrices.temperatures, [3000, 7000])
    np.testing.assert_array_equal(tuning.matrices.matrices[1, 2], [0.1, -0.7, 1.6])


def test_a_curve_is_divided_by_the_sensitivities():
    """libcamera multiplies what the sensor measures by them before it compares with the curve."""
    text = TUNING.replace('"rpi.awb"', '"disable.other"')
    tuning = parse_tuning("a.json", text)
    np.testing.assert_allclose(tuning.curve.chromaticities, [[0.7451, 0.3213], [0.3847, 0.6921]])


@pytest.mark.parametrize("old", ['"reference_Y": 8627', '"reference_gain": 1.12'])
def test_a_brightness_that_libcamera_accepts_is_no_reason_to_refuse(old):
    text = TUNING.replace(old, f"{old.split(':')[0]}: 0")
    assert len(parse_tuning("a.json", text).curve.temperatures) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rpi.awb"', '"disable.rpi.awb"'),
        ('"sensitivity_r": 1.0', '"enabled": false, "sensitivity_r": 1.0'),
    ],
)
def test_the_curve_is_that_of_the_algorithm_that_runs(old, new):
    """libcamera's `Controller::createAlgorithm` passes over names it lacks and over `enabled`."""
    tuning = parse_tuning("a.json", TUNING.replace(old, new))
    np.testing.assert_array_equal(tuning.curve.temperatures, [3000, 7600])
    assert next(iter(tuning.sensitivities.values())) == (2, 3)
    # The other algorithm's curve is replaced too.
    assert replace_colors(tuning, CURVE).count("6500.5") == 2


def test_modes_state_the_temperatures_that_are_searched():
    text = TUNING.replace('"hi": 7700', '"hi": 7700 }, "cloudy": { "lo": 6500, "hi": 8000')
    assert searched_temperatures(parse_tuning("a.json", text)) == (2500, 8000)
    for without in ('"others"', '"modes": 3, "others"'):
        other = TUNING.replace('"modes"', without)
        assert searched_temperatures(parse_tuning("a.json", other)) is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_replaced_lists_have_libcameras_layout_and_all_else_stays(end):
    text = TUNING.replace("\n", end)
    replaced = replace_colors(parse_tuning("a.json", text), CURVE, MATRICES)
    changed = [
        line.strip()
        for line in difflib.ndiff(text.split(end), replaced.split(end))
        if line[0] == "+"
    ]
    assert changed == [
        "+                     2800.0, 0.8, 0.3,",
        "+                     6500.5, 0.4124, 0.6",
        "+                     2800.0, 1.6, 0.9,",
        "+                     6500.5, 0.8247, 1.8",
        '+                         "ct": 4000,',
        "+                             1.23457, -0.2, 0.0,",
        "+                             0.0, 1.0, 0.0,",
        "+                             1.23457, -0.2, 0.0",
    ]
    assert ("\r" in replaced) == ("\r" in end)
    again = parse_tuning("a.json", replaced)
    np.testing.assert_allclose(again.curve.chromaticities, CURVE.chromaticities, atol=5e-5)


def test_a_files_own_colors_give_the_file_again(path, tmp_path):
    opening = '        {\n            "rpi.'
    start, end = (TUNING.index(f"{opening}{name}") for name in ("nn", "ccm"))
    only = TUNING[:start] + TUNING[end:]
    tuning = parse_tuning(path, only)
    assert replace_colors(tuning, tuning.curve, tuning.matrices) == only
    write_tuning(tmp_path / "copy.json", read_tuning(path).text)
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 2.0', '"version": 1.0', "version 1.0 and target 'pisp' are not 2"),
        ('"pisp"', '"rkisp1"', "target 'rkisp1'"),
        ('"algorithms"', '"other"', "algorithms is missing"),
        ("5000.0, 0.5, 0.5,", "5000.0, 0.5,", "ct_curve has 8 numbers"),
        ("5000.0, 0.5, 0.5", "3000.0, 0.5, 0.5", "temperatures of ct_curve do not ascend"),
        ("5000.0, 0.5, 0.5", "5000.0, 0.0, 0.5", "not above 0"),
        ("5000.0, 0.5, 0.5", '5000.0, "a", 0.5', "ct_curve is not a list of numbers"),
        ("5000.0, 0.5, 0.5", "5000.0, 1e400, 0.5", "ct_curve is not a list of numbers"),
        ('"ct": 7000', '"ct": 3000', "temperatures of ccms do not ascend"),
        ('"ct": 7000', '"ct": true', "ct is True, not a number above 0"),
        ("0.1, -0.7, 1.6", "0.1, -0.7", "a ccm has not nine numbers"),
        ('"sensitivity_r": 1.0', '"sensitivity_r": 0', "sensitivity_r is 0"),
        ('"rpi.ccm":', '"rpi.ccm": 3, "x":', "rpi.ccm is not an object"),
    ],
)
def test_what_libcamera_would_not_read_is_refused(path, old, new, message):
    path.write_text(TUNING.replace(old, new, 1))
    with pytest.raises(DataError, match=rf"imx1\.json is damaged or not the .*{message}.*Give a"):
        read_tuning(path)


def test_missing_truncated_large_and_foreign_files_get_one_line(path, tmp_path):
    with pytest.raises(MissingDataError, match=r"none\.json does not exist"):
        read_tuning(tmp_path / "none.json")
    for content in (TUNING[:900].encode(), b"\x89PNG\r\n", b"{}", b"[]", b"\xff"):
        path.write_bytes(content)
        refused(
            r"imx1\.json is damaged or not the expected file", lambda: read_tuning(path), DataError
        )
    path.write_bytes(b" " * (MAX_BYTES + 1))
    refused("more than the limit", lambda: read_tuning(path), DataError)


def test_a_file_without_a_list_is_not_edited():
    plain = '{"version": 2.0, "target": "pisp", "algorithms": [{"rpi.awb": {"bayes": 0}}]}'
    tuning = parse_tuning("mono.json", plain)
    refused(r"mono\.json has no ct_curve", lambda: replace_colors(tuning, CURVE), DataError)
    refused(r"mono\.json has no ccms", lambda: replace_colors(tuning, None, MATRICES), DataError)


def test_colors_that_libcamera_would_not_read_are_not_written():
    falling = CURVE._replace(temperatures=CURVE.temperatures[::-1])
    with pytest.raises(DataError, match="temperatures of ct_curve do not ascend"):
        replace_colors(parse_tuning("a.json", TUNING), falling)
